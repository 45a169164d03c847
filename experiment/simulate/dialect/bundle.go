package dialect

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Evidence is what of a run is left behind: the more, the more can be said of it (levels L0 to L2).
type Evidence uint8

const (
	Scrapes  Evidence = 1 << iota // metrics pages of engines and devices
	Logs                          // of engines
	Traces                        // spans of front ends and clients
	Captures                      // the probes' own records
	Changes

	Everything = Scrapes | Logs | Traces | Captures | Changes
)

// Options say how a run is told. The zero value tells everything.
type Options struct {
	Keep        Evidence      // 0 = Everything
	ScrapeEvery time.Duration // between metrics pages; 0 = 15 s
	Device      string        // whose memory the KV cache lies in, as the engine's log calls it; "" = GPU
	Producer    string        // of the manifest; "" = whylate
	// Window is how much later a message may come than one of another source that happened after it: as long as the longest time that a
	// process of the world is stalled, since its messages tell then what it will do. 0 = 30 s. What comes later still is in no page before
	// its coming, and counted: see [Bundle.Late].
	Window time.Duration
	Truth  []byte // becomes truth.json; nil = the truth is not known
	// Until is when the scraping ends. Zero is with the last message, or, if no request is left, when a page has told how all ended.
	Until time.Time
}

const (
	scrapeEvery = 15 * time.Second
	outOfOrder  = 30 * time.Second
)

// Bundle is a [world.Recorder] that writes a run bundle as a directory, file by file: what it holds in memory does not grow with the run. The same
// messages give the same bytes.
type Bundle struct {
	o        Options
	dir      *bundle.Dir
	fleet    *fleet
	captures map[string]*capture
	files    map[string]*file
	sources  []recorded // by source
	calls    []*calls
	manifest bundle.Manifest
	first    int64 // Unix ns
	page     []byte
	err      error // the first one
}

// recorded is a source in a capture.
type recorded struct {
	capture *capture // nil = it is not kept
	source  int
}

// capture is one file of captures.
type capture struct {
	out io.WriteCloser
	*wire.CaptureWriter
	frames *world.Frames
}

// file is a text that is written line by line.
type file struct {
	out io.WriteCloser
	*bufio.Writer
}

// Create begins a bundle in a directory that must not be there yet. It is whole when it is closed.
func Create(path string, o Options) (*Bundle, error) {
	if o.Keep == 0 {
		o.Keep = Everything
	}
	if o.ScrapeEvery <= 0 {
		o.ScrapeEvery = scrapeEvery
	}
	o.Window = cmp.Or(o.Window, outOfOrder)
	o.Device = cmp.Or(o.Device, "GPU")
	o.Producer = cmp.Or(o.Producer, "whylate")
	dir, err := bundle.CreateDir(path)
	if err != nil {
		return nil, err
	}
	b := &Bundle{o: o, dir: dir, fleet: newFleet(o.Window), captures: map[string]*capture{}, files: map[string]*file{}}
	b.manifest.Producer = o.Producer
	b.fleet.metFront, b.fleet.metSource = b.listenToFront, b.listenTo
	return b, nil
}

// Source implements [world.Recorder].
func (b *Bundle) Source(h *wire.Hello) (int, error) {
	p, err := b.fleet.open(h)
	if err != nil {
		return 0, err
	}
	at := h.Clock[2] + offset(h.Clock[0], h.Clock[1], h.Clock[2])
	if b.first == 0 && b.o.Keep&Scrapes != 0 {
		b.fleet.every(at-int64(b.o.ScrapeEvery), b.o.ScrapeEvery, b.scrape)
	}
	if b.first == 0 || at < b.first {
		b.first = at
	}
	b.name(h)
	r, err := b.capture(p)
	b.sources = append(b.sources, r)
	return p.source, err
}

// capture opens a source in the capture that it belongs to.
func (b *Bundle) capture(p *process) (r recorded, err error) {
	if b.o.Keep&Captures == 0 {
		return r, nil
	}
	name := captureOf(p)
	if b.captures[name] == nil {
		out, err := b.dir.Create(name)
		if err != nil {
			return r, err
		}
		w, err := wire.NewCaptureWriter(out)
		if err != nil {
			return r, errors.Join(err, out.Close())
		}
		b.captures[name] = &capture{out, w, world.NewFrames(w)}
	}
	r.capture = b.captures[name]
	r.source, err = r.capture.frames.Source(&p.hello)
	return r, err
}

// captureOf is the capture that a source goes into: each kind can be left out by itself.
func captureOf(p *process) string {
	switch {
	case p.card != nil:
		return "gpu.wlc"
	case p.front != nil || p.engine != nil || p.hello.Role == "worker":
		return "engine.wlc"
	}
	return p.hello.Role + ".wlc"
}

// name notes in the manifest who speaks, and by which clock.
func (b *Bundle) name(h *wire.Hello) {
	m := &b.manifest
	id := ledger.EngineID{Deployment: h.Engine.Deployment, Replica: h.Engine.Replica, Rank: h.Engine.Rank, Incarnation: h.Engine.Incarnation}.String()
	if model, _ := h.Settings["served_model"].(string); model != "" && !slices.ContainsFunc(m.Engines, func(e bundle.Engine) bool { return e.ID == id }) {
		m.Engines = append(m.Engines, bundle.Engine{ID: id, Name: h.Engine.Name, Version: h.Engine.Version, Model: model})
	}
	if !slices.ContainsFunc(m.Clocks, func(c bundle.Clock) bool { return c.Domain == h.Boot }) {
		m.Clocks = append(m.Clocks, bundle.Clock{Domain: h.Boot, Offset: offset(h.Clock[0], h.Clock[1], h.Clock[2]), Uncertainty: (h.Clock[2] - h.Clock[0] + 1) / 2})
	}
}

// Record implements [world.Recorder].
func (b *Bundle) Record(source int, m wire.Message) error {
	return b.take(source, m, (*world.Frames).Record)
}

// Lose implements [world.Loser]: the capture has a hole there, and all others say what they say anyhow.
func (b *Bundle) Lose(source int, m wire.Message) error {
	return b.take(source, m, (*world.Frames).Lose)
}

func (b *Bundle) take(source int, m wire.Message, keep func(*world.Frames, int, wire.Message) error) error {
	if _, ok := m.(*wire.Hello); ok || b.err != nil {
		return b.err
	}
	b.fail(b.fleet.record(source, m))
	if b.err != nil {
		return b.err
	}
	if r := b.sources[source]; r.capture != nil {
		b.fail(keep(r.capture.frames, r.source, m))
	}
	return b.err
}

// Late is how many messages came later than [Options.Window] allows.
func (b *Bundle) Late() int { return b.fleet.line.late }

func (b *Bundle) fail(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("bundle: %w", err)
	}
}

// listenToFront has the dialects listen to a front end.
func (b *Bundle) listenToFront(f *front, h *wire.Hello, at int64) {
	if b.o.Keep&Logs != 0 {
		c := newConsole(f, b.o.Device, at, b.append("log/"+f.target+".log"))
		f.hears = append(f.hears, c)
		b.fleet.every(at, statusEvery, func(at int64) error {
			if b.fleet.fronts[f.target] == f { // of a restarted one, another speaks
				c.status(at)
			}
			return b.err
		})
	}
	if b.o.Keep&Traces != 0 {
		f.traces = newRequests(h, b.append("otlp/"+f.target+".jsonl"))
		f.hears = append(f.hears, f.traces)
	}
}

// listenTo has the dialects listen to a source.
func (b *Bundle) listenTo(p *process) {
	var calls *calls
	if b.o.Keep&Traces != 0 && (p.hello.Role == "client" || p.hello.Role == "gateway") {
		calls = newCalls(&p.hello, b.model, b.append("otlp/"+p.hello.Role+".jsonl"))
		b.calls = append(b.calls, calls)
	}
	p.seen = func(at int64, m wire.Message) {
		switch m := m.(type) {
		case *wire.Client:
			if calls != nil {
				calls.seen(at, at-m.End, m)
			}
		case *wire.ChangeEvent:
			if b.o.Keep&Changes != 0 {
				b.fail(b.change(p, at, m))
			}
		}
	}
}

// model is the name of the model that is served, as a client asks for it.
func (b *Bundle) model() string {
	for _, target := range slices.Sorted(maps.Keys(b.fleet.fronts)) {
		for _, e := range b.fleet.fronts[target].engines {
			if name := e.model(); name != "" {
				return name
			}
		}
	}
	return ""
}

// change writes a change.
func (b *Bundle) change(p *process, at int64, m *wire.ChangeEvent) error {
	c := ledger.Change{At: at, Kind: ledger.ChangeKind(m.Kind), Subject: m.Subject, From: m.From, To: m.To, Source: p.hello.Producer.Name + " " + p.hello.Producer.Version,
		Text: fmt.Sprintf("%s is %s, was %s", m.Subject, m.To, m.From)}
	c.ID = c.Key()
	var line bytes.Buffer
	if err := bundle.WriteChanges(&line, []ledger.Change{c}); err != nil {
		return err
	}
	b.append(bundle.ChangesName)(line.Bytes())
	return nil
}

// append gives a writer to the end of a file, which is made when there is something to write.
func (b *Bundle) append(path string) func(text []byte) {
	return func(text []byte) {
		f := b.files[path]
		if f == nil {
			out, err := b.dir.Create(path)
			if err != nil {
				b.fail(err)
				return
			}
			f = &file{out, bufio.NewWriter(out)}
			b.files[path] = f
		}
		_, err := f.Write(text)
		b.fail(err)
	}
}

// scrape writes the page of every target.
func (b *Bundle) scrape(at int64) error {
	for _, target := range b.fleet.targets() {
		if b.page = b.fleet.page(target, b.page); len(b.page) == 0 {
			continue
		}
		out, err := b.dir.Create(bundle.ScrapePath(target, at/1e6))
		if err != nil {
			return err
		}
		_, err = out.Write(b.page)
		if err := errors.Join(err, out.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Close writes what waits, and the manifest.
func (b *Bundle) Close() error {
	b.fail(b.fleet.end())
	switch {
	case !b.o.Until.IsZero():
		b.fail(b.fleet.until(b.o.Until.UnixNano()))
	case b.fleet.atRest(): // else it was cut off, and nobody knows what comes
		b.fail(b.fleet.until(b.fleet.latest + int64(b.o.ScrapeEvery)))
	}
	for _, target := range slices.Sorted(maps.Keys(b.fleet.fronts)) {
		if t := b.fleet.fronts[target].traces; t != nil {
			t.flush()
		}
	}
	for _, c := range b.calls {
		c.flush()
	}
	for _, c := range b.captures {
		b.fail(errors.Join(c.CaptureWriter.Close(), c.out.Close()))
	}
	for _, f := range b.files {
		b.fail(errors.Join(f.Flush(), f.out.Close()))
	}
	if b.o.Truth != nil {
		out, err := b.dir.Create(bundle.TruthName)
		if err == nil {
			_, err = out.Write(b.o.Truth)
			err = errors.Join(err, out.Close())
		}
		b.fail(err)
	}
	b.manifest.Span = bundle.Span{From: b.first, To: max(b.first, b.fleet.latest)}
	b.fail(b.dir.Close(b.manifest))
	return b.err
}
