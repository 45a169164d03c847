package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/tsdb/wlog"
)

// Lost is what a damaged log cost.
type Lost struct {
	Store string    // detail or rollup
	At    string    // the file of the log that was damaged, and how far in
	Bytes int64     // of the log at most: from there to its end
	After time.Time // of the newest sample that is left: those that are lost are younger, or of other series
	Why   string
}

// Lost is what was lost when the directory was opened, none where its logs were whole.
func (db *DB) Lost() (out []Lost) {
	for _, p := range []*part{db.detail, db.rollup} {
		if p.lost != nil {
			out = append(out, *p.lost)
		}
	}
	return out
}

// opening is the log of a store. The TSDB says only there that it repairs its own log; its diary of compactions is for debugging.
type opening struct {
	slog.Handler
	found func(*wlog.CorruptionErr)
}

func (o opening) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		var damage *wlog.CorruptionErr
		if err, ok := a.Value.Any().(error); ok && errors.As(err, &damage) {
			o.found(damage)
		}
		return true
	})
	if r.Level == slog.LevelInfo {
		r.Level = slog.LevelDebug
	}
	if !o.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return o.Handler.Handle(ctx, r)
}

// Enabled implements [slog.Handler]: warnings are read here, even if nobody else wants them.
func (o opening) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || o.Handler.Enabled(ctx, l)
}

func (o opening) WithAttrs(as []slog.Attr) slog.Handler {
	o.Handler = o.Handler.WithAttrs(as)
	return o
}

func (o opening) WithGroup(name string) slog.Handler {
	o.Handler = o.Handler.WithGroup(name)
	return o
}

// wal are the files of a log with their sizes, as they were before it was opened.
type wal map[string]int64

func walOf(dir string) wal {
	w := wal{}
	for _, sub := range []string{"wal", "wbl"} {
		files, _ := os.ReadDir(filepath.Join(dir, sub)) // none yet is none lost
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
				w[filepath.Join(sub, f.Name())] = info.Size()
			}
		}
	}
	return w
}

// lost says what a repair cost: the damaged file from the damage on, and the files behind it.
func (w wal) lost(d *wlog.CorruptionErr) *Lost {
	sub := "wal"
	if filepath.Base(d.Dir) == "wbl" {
		sub = "wbl"
	}
	name := func(segment int) string { return filepath.Join(sub, fmt.Sprintf("%08d", segment)) }
	l := &Lost{At: fmt.Sprintf("%s byte %d", name(d.Segment), d.Offset), Bytes: w[name(d.Segment)] - d.Offset, Why: d.Err.Error()}
	for segment := d.Segment + 1; ; segment++ {
		size, ok := w[name(segment)]
		if !ok {
			return l
		}
		l.Bytes += size
	}
}
