package ingest

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Assembler builds a [ledger.Book] from frames. It is not safe for concurrent use.
type Assembler struct {
	// Samples is told what was read of devices, as it is taken. May be nil.
	Samples func(Sample)
	// KeepHashes keeps the hashes of prompt blocks in the ledger, 8 bytes each. Without it they are only counted.
	KeepHashes bool

	sources   []*source
	names     map[string]uint16 // of sources
	free      []uint16          // numbers of sources that were let go
	clocks    map[string]*clock
	engines   map[ledger.EngineID]*engine
	byID      map[sequenceKey]*ledger.Sequence
	fresh     []*ledger.Sequence // not given to a request yet
	requests  []*ledger.Request
	sorted    int // requests that are in order of their first sight; those after them were added since
	byParent  map[sequenceKey]*ledger.Request
	byTrace   map[string]*ledger.Request
	byRequest map[string][]*ledger.Request
	clients   []clientView
	beats     map[ledger.EngineID]ledger.Beat
	devices   map[ledger.DeviceID]*ledger.Device
	inInbox   []waiting
	early     map[ledger.EngineID]map[uint64]*ledger.Execution // what ranks said of iterations that are not there yet
	gaps      []ledger.Gap
	notices   []string
	now       int64
}

// sequenceKey finds a sequence from any of the sources that speak of it: internal ids are unique within an incarnation.
type sequenceKey struct{ incarnation, id string }

// source is one ring, stream or capture channel.
type source struct {
	ledger.Source
	hello    wire.Hello
	id       ledger.EngineID
	clock    *clock
	last     uint64 // sequence number of the last frame
	lastTime int64  // of the last frame, on the book's line

	beats             uint64 // of its frames, heartbeats: told by the reader of a ring, not by its writer
	noted, notedBeats uint64 // other frames and heartbeats when it was last listened
	quiet             int64  // since when nothing has come, by the clock of whoever listens
	reader            string // why frames are missing, where the reader of the ring said so
	refusals          map[wire.Type]*ledger.Gap

	engine  *engine  // what this source says as an engine; nil until it does
	sampled *sampled // what it says of a GPU; nil until it does
	handles map[uint32]*ledger.Sequence
	http    map[uint32]*ledger.Request
	batch   delivery

	msg messages
}

// messages are reused for every frame of a source, so that decoding does not allocate.
type messages struct {
	clock     wire.Clock
	received  wire.Received
	labels    wire.Labels
	submitted wire.Submitted
	first     wire.FirstByte
	last      wire.LastByte
	answered  wire.Answered
	delivered wire.Delivered
	arrived   wire.Arrived
	queued    wire.Queued
	hashes    wire.Hashes
	scheduled wire.Scheduled
	done      wire.Done
	finished  wire.Finished
	cache     wire.Cache
	step      wire.Step
	client    wire.Client
	lost      wire.Lost
	notice    wire.Notice
	beat      wire.Heartbeat
	sample    wire.Sample
}

// New returns an empty assembler.
func New() *Assembler {
	return &Assembler{
		beats:     map[ledger.EngineID]ledger.Beat{},
		devices:   map[ledger.DeviceID]*ledger.Device{},
		early:     map[ledger.EngineID]map[uint64]*ledger.Execution{},
		names:     map[string]uint16{},
		clocks:    map[string]*clock{},
		engines:   map[ledger.EngineID]*engine{},
		byID:      map[sequenceKey]*ledger.Sequence{},
		byParent:  map[sequenceKey]*ledger.Request{},
		byTrace:   map[string]*ledger.Request{},
		byRequest: map[string][]*ledger.Request{},
	}
}

// Source implements [wire.Sink]: it opens a source, or finds it again by its name, which is a ring's for good.
func (a *Assembler) Source(w wire.Source) (uint16, error) {
	if id, known := a.names[w.Name]; known {
		return id, nil
	}
	s := newSource(w.Name)
	var id uint16
	switch n := len(a.free); {
	case n > 0:
		id = a.free[n-1]
		a.free, a.sources[id] = a.free[:n-1], s
	case len(a.sources) > math.MaxUint16:
		return 0, fmt.Errorf("source %s: more than %d sources; read fewer files at once", w.Name, math.MaxUint16)
	default:
		id = uint16(len(a.sources))
		a.sources = append(a.sources, s)
	}
	a.names[w.Name] = id
	if w.Hello != nil {
		h, err := wire.ParseHello(w.Hello)
		if err != nil {
			a.gap(s, ledger.Gap{Why: err.Error()})
		} else {
			a.introduce(s, h)
		}
	}
	return id, nil
}

func newSource(name string) *source {
	s := &source{refusals: map[wire.Type]*ledger.Gap{}, handles: map[uint32]*ledger.Sequence{}, http: map[uint32]*ledger.Request{}}
	s.Name = name
	s.clock = &clock{Clock: ledger.Clock{Domain: "unknown/" + name}}
	return s
}

// Newest is the sequence of the newest frame taken of a source, 0 if there is none: whoever may offer a frame twice asks first.
func (a *Assembler) Newest(id uint16) uint64 {
	if int(id) >= len(a.sources) {
		return 0
	}
	return a.sources[id].last
}

// introduce takes up who a source is.
func (a *Assembler) introduce(s *source, h wire.Hello) {
	s.hello = h
	s.Producer = h.Producer.Name + " " + h.Producer.Version
	s.Role, s.Thread = h.Role, h.Thread
	s.id = ledger.EngineID{Deployment: h.Engine.Deployment, Replica: h.Engine.Replica, Rank: h.Engine.Rank, Incarnation: h.Engine.Incarnation}
	s.clock = a.clockOf(h)
}

// Gap implements [wire.Sink]: what the reader of a ring or capture knows to be missing. Where it is a run of frames, the hole
// that the next frame shows is filed with the reader's words.
func (a *Assembler) Gap(id uint16, g wire.Gap) error {
	if int(id) >= len(a.sources) {
		a.gaps = append(a.gaps, ledger.Gap{Producer: "capture", Count: g.Count, From: g.From, To: g.To, Why: g.Why})
		return nil
	}
	s := a.sources[id]
	switch {
	case g.Why == wire.WhyDuplicate || g.Why == wire.WhyOutOfOrder:
		s.Refused++
		a.gap(s, ledger.Gap{From: g.From, To: g.To, Why: g.Why})
	case g.From > s.last && g.Count > 0:
		s.reader = g.Why
	default:
		a.gap(s, ledger.Gap{From: g.From, To: g.To, Count: g.Count, Why: g.Why})
	}
	return nil
}

// Frame implements [wire.Sink]: it takes one frame. It never fails: what cannot be right is refused, counted and left as a gap.
func (a *Assembler) Frame(id uint16, f wire.Frame) error {
	if int(id) >= len(a.sources) {
		return fmt.Errorf("source %d was never opened", id)
	}
	s := a.sources[id]
	s.Frames++
	if f.Type == wire.TypeHeartbeat {
		s.beats++
	}
	if s.last != 0 {
		switch {
		case f.Sequence <= s.last:
			a.refuse(s, f, fmt.Sprintf("sequence %d after %d: duplicated or out of order", f.Sequence, s.last), "the record is ignored; check what copied the stream")
			return nil
		case f.Sequence > s.last+1:
			a.hole(s, s.last+1, f.Sequence-1)
		}
	} else if f.Sequence > 1 && s.reader != "" { // a reader that began at the newest frame on purpose reports nothing
		a.hole(s, 1, f.Sequence-1)
	}
	s.last = f.Sequence
	if err := a.take(s, f); err != nil {
		a.refuse(s, f, err.Error(), "")
	}
	return nil
}

// hole records frames that never came. A ring that is read from its middle begins with one.
func (a *Assembler) hole(s *source, from, to uint64) {
	why := s.reader
	if why == "" {
		why = "frames are missing from the source"
	}
	s.reader = ""
	s.Lost += to - from + 1
	a.gap(s, ledger.Gap{From: from, To: to, Count: to - from + 1, Why: why})
	if s.engine != nil {
		s.engine.lost()
	}
}

// gap files a gap under the engine it concerns, if any.
func (a *Assembler) gap(s *source, g ledger.Gap) {
	g.Producer = s.Name
	if g.At == 0 {
		g.At = s.lastTime
	}
	if s.engine != nil {
		g.Engine = s.engine.e.ID.String()
		s.engine.e.Gaps = append(s.engine.e.Gaps, g)
		return
	}
	a.gaps = append(a.gaps, g)
}

// refuse counts a record that cannot be right. Refusals of one source for one reason share a gap record, so a hostile
// stream cannot fill the memory.
func (a *Assembler) refuse(s *source, f wire.Frame, why, remedy string) {
	s.Refused++
	g := s.refusals[f.Type]
	if g == nil {
		g = &ledger.Gap{Producer: s.Name, From: f.Sequence, At: s.lastTime, Why: fmt.Sprintf("%s refused: %s", f.Type, why), Remedy: remedy}
		if s.engine != nil {
			g.Engine = s.engine.e.ID.String()
		}
		s.refusals[f.Type] = g
	}
	g.Count++
	g.To = f.Sequence
	if s.engine != nil && (f.Type == wire.TypeScheduled || f.Type == wire.TypeDone) {
		s.engine.lost()
	}
}

// take decodes a frame and hands it to whom it concerns.
func (a *Assembler) take(s *source, f wire.Frame) error {
	m := &s.msg
	if f.Type != wire.TypeHello && f.Time != 0 {
		t := s.clock.at(f.Time)
		if t > a.now {
			a.now = t
		}
		s.lastTime = t
	}
	switch f.Type {
	case wire.TypeHello:
		var h wire.Hello
		if err := wire.Decode(f, &h); err != nil {
			return err
		}
		if s.hello.Role == "" {
			a.introduce(s, h)
		}
		return nil
	case wire.TypeClock:
		if err := wire.Decode(f, &m.clock); err != nil {
			return err
		}
		if note := s.clock.pair(m.clock.MonoBefore, m.clock.Realtime, m.clock.MonoAfter); note != "" {
			a.gap(s, ledger.Gap{Why: note})
		}
		return nil
	case wire.TypeReceived:
		return decoded(wire.Decode(f, &m.received), func() error { return a.received(s, &m.received) })
	case wire.TypeLabels:
		return decoded(wire.Decode(f, &m.labels), func() error { return a.labels(s, &m.labels) })
	case wire.TypeSubmitted:
		return decoded(wire.Decode(f, &m.submitted), func() error { return a.submitted(s, &m.submitted) })
	case wire.TypeFirstByte:
		return decoded(wire.Decode(f, &m.first), func() error { return a.firstByte(s, &m.first) })
	case wire.TypeLastByte:
		return decoded(wire.Decode(f, &m.last), func() error { return a.lastByte(s, &m.last) })
	case wire.TypeAnswered:
		return decoded(wire.Decode(f, &m.answered), func() error { return a.answered(s, &m.answered) })
	case wire.TypeDelivered:
		return decoded(wire.Decode(f, &m.delivered), func() error { return a.delivered(s, &m.delivered) })
	case wire.TypeArrived:
		return decoded(wire.Decode(f, &m.arrived), func() error { return a.arrived(s, &m.arrived) })
	case wire.TypeQueued:
		return decoded(wire.Decode(f, &m.queued), func() error { return a.engineOf(s).queued(&m.queued) })
	case wire.TypeHashes:
		return decoded(wire.Decode(f, &m.hashes), func() error { return a.engineOf(s).hashes(&m.hashes) })
	case wire.TypeScheduled:
		return decoded(wire.Decode(f, &m.scheduled), func() error { return a.engineOf(s).scheduled(&m.scheduled) })
	case wire.TypeDone:
		return decoded(wire.Decode(f, &m.done), func() error { return a.engineOf(s).done(&m.done) })
	case wire.TypeFinished:
		return decoded(wire.Decode(f, &m.finished), func() error { return a.engineOf(s).finished(&m.finished) })
	case wire.TypeClient:
		return decoded(wire.Decode(f, &m.client), func() error { a.client(s, &m.client); return nil })
	case wire.TypeLost:
		return decoded(wire.Decode(f, &m.lost), func() error {
			a.gap(s, ledger.Gap{Count: m.lost.Count, At: s.clock.at(m.lost.Since), Why: m.lost.Why})
			return nil
		})
	case wire.TypeNotice:
		return decoded(wire.Decode(f, &m.notice), func() error {
			a.notices = append(a.notices, s.Name+": "+m.notice.Text)
			return nil
		})
	case wire.TypeHeartbeat:
		return decoded(wire.Decode(f, &m.beat), func() error {
			if b := &m.beat; s.Role == "agent" && s.Thread == "engine-scheduler" {
				a.beats[s.id] = ledger.Beat{At: s.clock.at(b.Time), State: ledger.BeatState(b.State), Iteration: b.Iteration, Since: s.clock.at(b.Since)}
			}
			return nil
		})
	case wire.TypeCache:
		return decoded(wire.Decode(f, &m.cache), func() error { return a.engineOf(s).cache(&m.cache) })
	case wire.TypeStep:
		return decoded(wire.Decode(f, &m.step), func() error { return a.step(s, &m.step) })
	case wire.TypeSample:
		return decoded(wire.Decode(f, &m.sample), func() error { return a.sample(s, &m.sample) })
	case wire.TypeChange:
		return nil // kept in the capture; no question asks for them yet
	}
	s.Unknown++
	return nil
}

func decoded(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// sequence returns the sequence with an internal id, made on first sight by whichever source speaks of it first.
func (a *Assembler) sequence(s *source, id string) *ledger.Sequence {
	key := sequenceKey{s.id.Incarnation, id}
	q := a.byID[key]
	if q == nil {
		q = &ledger.Sequence{ID: id, N: 1, Logprobs: -1, PromptLogprobs: -1}
		a.byID[key] = q
		a.fresh = append(a.fresh, q)
	}
	return q
}

// engineOf returns the scheduler that this source records, made on first use.
func (a *Assembler) engineOf(s *source) *engine {
	if s.engine != nil {
		return s.engine
	}
	g := a.engines[s.id]
	if g == nil {
		h := s.hello
		g = &engine{a: a, members: map[uint32]*member{}, known: map[uint32]*ledger.Sequence{}, own: map[uint32]wire.SkipEntry{}, past: map[*ledger.Sequence]bool{}}
		g.e = &ledger.Engine{ID: s.id, Name: h.Engine.Name, Version: h.Engine.Version, Producer: s.Producer,
			Depth: max(h.Depth, 1), Settings: h.Settings, Capabilities: h.Capabilities}
		a.engines[s.id] = g
	}
	g.s = s
	g.e.Clock = s.clock.Clock
	s.engine = g
	return g
}
