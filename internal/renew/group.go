package renew

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Every is how often files are looked at: what is put there is in force within two looks.
const Every = time.Second

// Group is the files of a process.
type Group struct {
	log *slog.Logger
	now func() time.Time

	looking sync.Mutex // one look at a time; nobody else waits for a disk that hangs

	mu     sync.Mutex
	files  []file
	broken map[file]Broken
	counts map[file]uint64 // contents that were refused
}

// file is a [File] of any type.
type file interface {
	name() string
	look() (outcome, error)
}

// Broken says of files that what they hold is not in force, and why.
type Broken struct {
	What  string
	Err   error
	Count uint64    // contents that were refused since the start
	At    time.Time // when that was seen
}

// NewGroup makes a group without files. now may be nil: the time of the day.
func NewGroup(log *slog.Logger, now func() time.Time) *Group {
	if now == nil {
		now = time.Now
	}
	return &Group{log: log, now: now, broken: map[file]Broken{}, counts: map[file]uint64{}}
}

func (g *Group) add(f file) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.files = append(g.files, f)
}

// Look looks at all files once, and reports whether anything new is in force. A change is logged once, good or bad.
func (g *Group) Look() (changed bool) {
	g.looking.Lock()
	defer g.looking.Unlock()
	g.mu.Lock()
	files := slices.Clone(g.files)
	g.mu.Unlock()
	for _, f := range files {
		found, err := f.look()
		changed = g.note(f, found, err) || changed
	}
	return changed
}

// note keeps and logs what a look found, and reports whether anything new is in force.
func (g *Group) note(f file, found outcome, err error) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch found {
	case renewed:
		changed = true
		g.log.Info("renewed", "what", f.name())
		delete(g.broken, f)
	case mended:
		g.log.Info("what is in force is back in its files", "what", f.name())
		delete(g.broken, f)
	case refused:
		g.counts[f]++
		g.broken[f] = Broken{What: f.name(), Err: err, Count: g.counts[f], At: g.now()}
		g.log.Error("not renewed; what was read before stays in force", "what", f.name(), "error", err)
	}
	return changed
}

// Run looks every so often until ctx ends, and calls changed when anything new is in force; changed may be nil.
func (g *Group) Run(ctx context.Context, every time.Duration, changed func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if g.Look() && changed != nil {
				changed()
			}
		}
	}
}

// Broken lists the files whose contents are not in force now.
func (g *Group) Broken() []Broken {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Broken
	for _, f := range g.files {
		if b, ok := g.broken[f]; ok {
			out = append(out, b)
		}
	}
	return out
}
