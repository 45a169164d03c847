package account

import (
	"math"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// Part is one of the mutually exclusive and exhaustive parts of a request's time (DESIGN §7).
type Part string

// The parts, in order of time.
const (
	Gateway     Part = "gateway"     // client accepted – front end received
	Frontend    Part = "frontend"    // front end received – reached the engine process
	Inbox       Part = "inbox"       // reached the engine process – taken up by the scheduler
	Queue       Part = "queue"       // queued – first scheduled
	Prefill     Part = "prefill"     // first scheduled – first token
	Decode      Part = "decode"      // first token – last token
	Transfer    Part = "transfer"    // KV hand-over between legs
	Stream      Part = "stream"      // last token emitted – last byte flushed
	Unexplained Part = "unexplained" // the rest
)

// Parts lists all parts in order.
var Parts = []Part{Gateway, Frontend, Inbox, Queue, Prefill, Decode, Transfer, Stream, Unexplained}

// Names of splits that are not skip reasons.
const (
	SplitTokenise     = "tokenise and validate"
	SplitHandOver     = "hand over"
	SplitNextPass     = "until the next pass"
	SplitOwn          = "own work"
	SplitPrefills     = "others' prefill"
	SplitDecodes      = "others' decode"
	SplitBase         = "base"
	SplitBatch        = "batch"
	SplitContext      = "context"
	SplitInterference = "others' prefill"
	SplitSkipped      = "skipped"
	SplitPreempted    = "preempted"
	SplitRecompute    = "recompute"
	SplitHostGap      = "host gap"
	SplitSlowdown     = "slowdown"
	SplitInFlight     = "iteration in flight"
	SplitUnsplit      = "not split: no model"
	SplitSibling      = "sibling not yet started"
)

// Split is a share of a part. Measured ones are differences of recorded times; modelled ones come from the iteration-time model.
type Split struct {
	Name     string `json:"name"`
	NS       int64  `json:"ns"`
	Modelled bool   `json:"modelled,omitempty"`
	// Band is, for a slowdown, what the model may be wrong by. WithinError marks a slowdown that this explains: it is blamed on nobody.
	Band        int64 `json:"model_error_ns,omitempty"`
	WithinError bool  `json:"within_model_error,omitempty"`
}

// Line is one part of an account.
type Line struct {
	Part   Part    `json:"part"`
	NS     int64   `json:"ns"`
	Share  float64 `json:"share"` // of E2E
	Seen   bool    `json:"seen"`  // false: no source saw this part; its 0 is not a measurement
	Splits []Split `json:"splits,omitempty"`
}

// State of a request at the moment of the account.
type State string

// States.
const (
	Finished State = "finished"
	Waiting  State = "waiting" // not scheduled now
	Running  State = "running"
	InInbox  State = "in the inbox"
	InFront  State = "in the front end"
)

// Account says where the time of one request went, up to its end or up to now.
type Account struct {
	Request *ledger.Request  `json:"-"`
	Lead    *ledger.Sequence `json:"-"` // emitted the first token: the parts up to prefill are its own
	Tail    *ledger.Sequence `json:"-"` // emitted the last token: decode is its own; the same as Lead when n = 1

	From  int64  `json:"from_unix_ns"`
	To    int64  `json:"to_unix_ns"`
	State State  `json:"state"`
	Lines []Line `json:"parts"` // all parts, in order; they sum to To − From exactly

	TTFT       int64             `json:"ttft_ns"`   // 0 = no token yet
	TTFTEnd    string            `json:"ttft_ends"` // which moment ends it
	TPOT       int64             `json:"tpot_ns"`   // (E2E − TTFT) / (output − 1), 0 if output < 2
	Output     uint32            `json:"output_tokens"`
	TailOutput uint32            `json:"tail_output_tokens"` // of the sequence that TPOT is of: all of Output when n = 1
	Model      *Model            `json:"-"`                  // nil: too few iterations to fit one
	Bounds     []Bound           `json:"-"`                  // where the parts lie, in order of time; they touch, and cover From … To exactly
	InFlight   *ledger.Iteration `json:"-"`                  // of an unfinished request: the iteration now in flight
}

// Bound is a stretch of an account that one part has, but for what is missing in it: that the account gives to [Unexplained].
type Bound struct {
	Part     Part
	From, To int64 // Unix ns
	Missing  int64 // ns of it that no record covers
}

// E2E is the length of the account in nanoseconds.
func (a *Account) E2E() int64 { return a.To - a.From }

// Line returns the line of part p.
func (a *Account) Line(p Part) *Line {
	if i := slices.Index(Parts, p); i >= 0 && i < len(a.Lines) {
		return &a.Lines[i]
	}
	return &Line{Part: p}
}

// Split returns the nanoseconds of the named split of part p, 0 if there is none.
func (a *Account) Split(p Part, name string) int64 {
	var ns int64
	for _, s := range a.Line(p).Splits {
		if s.Name == name {
			ns += s.NS
		}
	}
	return ns
}

// Of makes the account of r up to now (Unix ns), which matters only if r has not ended. m is the model of the engine that
// served it; nil leaves the modelled splits out and says so.
func Of(r *ledger.Request, m *Model, now int64) *Account {
	a := &Account{Request: r, Model: m, TTFTEnd: "no token yet"}
	a.Lead, a.Tail = pick(r.Sequences)
	b := &builder{a: a, parts: map[Part]*Line{}}
	for _, p := range Parts {
		b.parts[p] = &Line{Part: p}
	}
	b.build(r, now)
	for _, p := range Parts {
		l := b.parts[p]
		if e := a.E2E(); e > 0 {
			l.Share = float64(l.NS) / float64(e)
		}
		a.Lines = append(a.Lines, *l)
	}
	return a
}

// pick chooses the sequence with the earliest first token and the one with the latest last token: between them they
// bound what the client waited for. Of sequences without a token the one queued first, then the one that ended last.
func pick(qs []*ledger.Sequence) (lead, tail *ledger.Sequence) {
	for _, q := range qs {
		if lead == nil || earlier(q.FirstToken, lead.FirstToken) || q.FirstToken == lead.FirstToken && earlier(q.Queued, lead.Queued) {
			lead = q
		}
		if tail == nil || later(q, tail) {
			tail = q
		}
	}
	if lead != nil && tail != nil && lead.Engine != tail.Engine {
		lead = tail // iterations of two engines cannot be subtracted
	}
	return lead, tail
}

func earlier(a, b int64) bool { return a != 0 && (b == 0 || a < b) }

// later reports whether q ends after p; a live sequence ends after every finished one.
func later(q, p *ledger.Sequence) bool {
	if ql, pl := q.Finished == 0, p.Finished == 0; ql != pl {
		return ql
	}
	if q.LastToken != p.LastToken {
		return q.LastToken > p.LastToken
	}
	return q.Finished > p.Finished
}

// builder walks the boundaries in order of time. at is where the last part ended: each part takes the time from there to its
// own boundary, so the parts sum to E2E by construction whatever is missing.
type builder struct {
	a     *Account
	parts map[Part]*Line
	at    int64
}

// take gives the time up to boundary t to part p and returns it. A boundary that lies before the last one, or after the end, is clipped.
func (b *builder) take(p Part, t int64) int64 {
	t = min(max(t, b.at), b.a.To)
	ns := t - b.at
	b.parts[p].NS += ns
	b.bound(p, b.at, t)
	if p != Unexplained {
		b.parts[p].Seen = true
	}
	b.at = t
	return ns
}

// bound keeps where a part lies; what touches more of the same part is one stretch.
func (b *builder) bound(p Part, from, to int64) {
	last := len(b.a.Bounds) - 1
	switch {
	case to == from:
	case last >= 0 && b.a.Bounds[last].Part == p:
		b.a.Bounds[last].To = to
	default:
		b.a.Bounds = append(b.a.Bounds, Bound{Part: p, From: from, To: to})
	}
}

// unexplain moves ns from part p, whose stretch is the last one, to unexplained: a record is missing there.
func (b *builder) unexplain(p Part, ns int64) {
	b.parts[p].NS -= ns
	b.parts[Unexplained].NS += ns
	if last := len(b.a.Bounds) - 1; last >= 0 && b.a.Bounds[last].Part == p {
		b.a.Bounds[last].Missing += ns
	}
}

func (b *builder) split(p Part, s Split) {
	if s.NS != 0 {
		b.parts[p].Splits = append(b.parts[p].Splits, s)
	}
}

func (b *builder) build(r *ledger.Request, now int64) {
	a := b.a
	lead, tail := a.Lead, a.Tail
	a.From = r.Received
	if lead != nil && a.From == 0 {
		a.From = firstKnown(lead.Submitted, lead.Arrived, lead.Queued)
	}
	a.To, a.State = end(r, now)
	a.To = max(a.To, a.From)
	b.at = a.From
	b.parts[Unexplained].Seen = true
	if lead == nil { // the front end alone saw it: refused there, or still there
		if r.LastByte != 0 {
			b.take(Frontend, r.LastByte)
		} else {
			b.take(Frontend, now)
			a.State = InFront
		}
		return
	}
	for _, q := range r.Sequences {
		a.Output += q.Output
	}
	a.TailOutput = tail.Output

	// Front end and inbox. Without the engine's own arrival the boundary between them is not known, and neither is charged.
	if lead.Submitted != 0 {
		b.split(Frontend, Split{Name: SplitTokenise, NS: b.take(Frontend, lead.Submitted)})
	}
	switch {
	case lead.Arrived != 0:
		if ns := b.take(Frontend, lead.Arrived); lead.Submitted != 0 {
			b.split(Frontend, Split{Name: SplitHandOver, NS: ns})
		}
		if lead.Queued != 0 {
			b.take(Inbox, lead.Queued)
		}
	case lead.Queued != 0:
		b.take(Unexplained, lead.Queued)
	}
	if lead.Queued == 0 {
		b.rest(r, lead)
		return
	}

	e := lead.Engine
	scheduled := b.scheduledAt(lead)
	if scheduled == 0 {
		b.queue(lead, b.limit(lead))
		b.rest(r, lead)
		return
	}
	b.queue(lead, scheduled)

	last := e.Completed()
	if lead.FirstToken == 0 || lead.FirstEmit == 0 {
		b.run(Prefill, lead, lead.Join, min(lead.Leave, last), b.limit(lead))
		b.rest(r, lead)
		return
	}
	b.run(Prefill, lead, lead.Join, lead.FirstEmit, lead.FirstToken)

	if tail.LastEmit > lead.FirstEmit {
		stop := tail.LastEmit
		until := tail.LastToken
		if tail.Finished == 0 {
			stop, until = last, b.limit(tail)
		}
		b.run(Decode, tail, lead.FirstEmit+1, stop, until)
	} else if tail.Finished == 0 {
		b.run(Decode, tail, lead.FirstEmit+1, last, b.limit(tail))
	} else {
		b.parts[Decode].Seen = true
	}
	b.rest(r, tail)
	b.ttft(r)
}

// scheduledAt is when the first iteration of q began on its engine's line, 0 if it never did.
func (b *builder) scheduledAt(q *ledger.Sequence) int64 {
	if q.Join == 0 {
		return 0
	}
	if it := q.Engine.Row(q.Join); it != nil {
		return it.Start
	}
	return 0
}

// limit is where the engine's part of q ends if no later boundary is known: its own end, or the end of the account.
func (b *builder) limit(q *ledger.Sequence) int64 {
	if q.Finished != 0 {
		return q.Finished
	}
	return b.a.To
}

// rest charges what is left after the engine's part: the stream of a request whose exchange ended, or the part it is now in.
func (b *builder) rest(r *ledger.Request, q *ledger.Sequence) {
	a := b.a
	switch {
	case a.State == Finished && r.LastByte != 0:
		b.take(Stream, a.To)
	case a.State == Finished:
		b.take(Unexplained, a.To)
	case q.Queued == 0 && q.Arrived != 0:
		a.State = InInbox
		b.take(Inbox, a.To)
	case q.Queued == 0:
		a.State = InFront
		b.take(Frontend, a.To)
	case q.Finished != 0: // the engine is through with it, the exchange is still open
		b.take(Stream, a.To)
	case q.Join == 0:
		a.State = Waiting
		b.take(Queue, a.To)
	default:
		if q.Leave < q.Engine.Completed() {
			a.State = Waiting // preempted, or skipped
		}
		b.take(Unexplained, a.To)
	}
	if a.State != Finished && q.Engine != nil {
		a.InFlight = q.Engine.InFlight()
	}
}

// end is where the account of r ends, and the state it is in.
func end(r *ledger.Request, now int64) (int64, State) {
	if r.LastByte != 0 {
		return r.LastByte, Finished
	}
	var t int64
	for _, q := range r.Sequences {
		if q.Finished == 0 {
			return now, Running
		}
		t = max(t, q.Finished, q.LastToken)
	}
	if r.Received != 0 || t == 0 { // the exchange is open though the engine is through, or never saw it
		return now, Running
	}
	return t, Finished
}

func firstKnown(ts ...int64) int64 {
	for _, t := range ts {
		if t != 0 {
			return t
		}
	}
	return 0
}

// queue charges the wait of q before until, split by the reason of each run of iterations that skipped it. What no run covers
// is the wait for the next pass, except where records are missing: there q may have been running, and nothing is claimed.
func (b *builder) queue(q *ledger.Sequence, until int64) {
	from := b.at
	b.take(Queue, until)
	until = b.at
	e, last := q.Engine, q.Engine.Completed()
	missing := b.missing(e, from, until)
	var named, unknown int64
	for _, s := range q.Skips {
		if s.Away || q.Join != 0 && s.First > q.Join {
			break
		}
		f, l := s.First, min(s.Last, last)
		if f > l {
			continue
		}
		lo, hi := max(e.TileStart(f), from), min(e.Row(l).End, until)
		if hi <= lo {
			continue
		}
		hidden := min(e.Between(f, l).Unknown, hi-lo)
		unknown += hidden
		b.split(Queue, Split{Name: s.Reason.String(), NS: hi - lo - hidden})
		named += hi - lo
	}
	loose := until - from - named
	hidden := min(max(missing-unknown, 0), loose)
	b.unexplain(Queue, unknown+hidden)
	name := SplitNextPass
	if q.Join == 0 && q.Finished == 0 {
		name = SplitInFlight // decided without it, not done yet
	}
	b.split(Queue, Split{Name: name, NS: loose - hidden})
	b.merge(Queue)
}

// missing is how much of from … until lies in tiles of which a record is missing.
func (b *builder) missing(e *ledger.Engine, from, until int64) int64 {
	first, _ := slices.BinarySearchFunc(e.Iterations, from, func(it ledger.Iteration, t int64) int {
		if it.End == 0 || it.End > t {
			return 1
		}
		return -1
	})
	after, _ := slices.BinarySearchFunc(e.Iterations, until, func(it ledger.Iteration, t int64) int {
		if it.End == 0 || it.Start >= t {
			return 1
		}
		return -1
	})
	if first >= after {
		return 0
	}
	return min(e.Between(e.First+uint64(first), e.First+uint64(after)-1).Unknown, until-from)
}

// run charges iterations from … to of q's engine to part p, which ends at until.
func (b *builder) run(p Part, q *ledger.Sequence, from, to uint64, until int64) {
	e := q.Engine
	start := b.at
	b.take(p, until)
	until = b.at
	t := tally{m: b.a.Model, phase: p}
	if from <= to && e.Row(to) != nil {
		t.walk(q, from, to, start, until)
	}
	// What no iteration covers: the tail up to now is the iteration in flight; anything else is not known.
	loose := until - start - t.covered
	if loose > 0 && q.Finished == 0 {
		b.split(p, Split{Name: SplitInFlight, NS: loose})
		loose = 0
	}
	b.unexplain(p, t.unknown+loose)
	for _, s := range t.splits() {
		b.split(p, s)
	}
	b.merge(p)
}

// merge adds up splits of the same name.
func (b *builder) merge(p Part) {
	l := b.parts[p]
	var out []Split
next:
	for _, s := range l.Splits {
		for i := range out {
			if out[i].Name == s.Name && out[i].Modelled == s.Modelled {
				out[i].NS += s.NS
				continue next
			}
		}
		out = append(out, s)
	}
	l.Splits = out
}

func (b *builder) ttft(r *ledger.Request) {
	a := b.a
	switch {
	case r.FirstByte != 0 && r.Received != 0 && r.LastByte != 0 && r.Chunks == 1 && a.Output > 1:
		// The whole answer came in one piece: it has a first byte and no gaps between tokens.
		a.TTFT, a.TTFTEnd = r.FirstByte-a.From, "first byte to the client; the answer was not streamed"
		return
	case r.FirstByte != 0 && r.Received != 0:
		a.TTFT, a.TTFTEnd = r.FirstByte-a.From, "first byte to the client"
	case a.Lead.FirstToken != 0:
		a.TTFT, a.TTFTEnd = a.Lead.FirstToken-a.From, "completion of the emitting iteration"
	}
	if a.State == Finished && a.TailOutput > 1 && a.TTFT > 0 {
		a.TPOT = (a.E2E() - a.TTFT) / int64(a.TailOutput-1)
	}
}

// tally adds up the tiles of a run of iterations as one sequence lived through them.
type tally struct {
	m       *Model
	phase   Part
	covered int64 // ns of tiles that a stint or a skip accounts for
	unknown int64 // ns of those of which a record is missing
	gap     int64
	busy    int64 // measured durations of iterations it was a member of
	rows    uint64
	skipped map[string]int64

	own, base, context, batch, prefills, recompute float64 // modelled ns
	prefillTime                                    float64 // modelled ns of prefill, own and others'
}

// walk visits the stints and skips of q inside iterations from … to. Tiles that begin before start or end after until
// are clipped (a first tile begins with a gap that belongs to the queue).
func (t *tally) walk(q *ledger.Sequence, from, to uint64, start, until int64) {
	e := q.Engine
	to = min(to, e.Completed())
	t.skipped = map[string]int64{}
	for k := range q.Stints {
		s := &q.Stints[k]
		f, l := max(s.First, from), min(s.Last, to)
		if f > l {
			continue
		}
		d := e.Between(f, l)
		span := e.Row(l).End - e.TileStart(f)
		// The gap before the first iteration lies before start: it was charged to the queue.
		early := min(max(start-e.TileStart(f), 0), d.Gap)
		late := max(e.Row(l).End-until, 0) // it was aborted while its last iteration ran
		t.covered += span - early - late
		t.gap += d.Gap - early
		if e.Row(l).Complete() {
			t.busy += d.Busy - late
			t.unknown += d.Unknown
		} else {
			t.busy += d.Busy
			t.unknown += d.Unknown - late
		}
		t.rows += l - f + 1
		t.share(s, f, l, d.Work)
	}
	for _, s := range q.Skips {
		f, l := max(s.First, from), min(s.Last, to)
		if f > l {
			continue
		}
		lo, hi := max(e.TileStart(f), start), min(e.Row(l).End, until)
		if hi <= lo {
			continue
		}
		unknown := min(e.Between(f, l).Unknown, hi-lo)
		t.covered += hi - lo
		t.unknown += unknown
		name := SplitSkipped + ": " + s.Reason.String()
		switch {
		case s.Away:
			name = SplitPreempted
		case q.Join > s.Last:
			name = SplitSibling
		}
		t.skipped[name] += hi - lo - unknown
	}
}

// share splits the modelled time of iterations f … l of stint s: what the member's own tokens cost, and what the others' did.
func (t *tally) share(s *ledger.Stint, f, l uint64, all ledger.Work) {
	if t.m == nil {
		return
	}
	c := t.m.Coefficients
	own := ledger.MemberWork(s, f, l)
	for i := range own {
		own[i] = min(own[i], all[i]) // of iterations whose records are missing only the member's own work is known
	}
	others := all.Sub(own)
	base := all[ledger.WorkIterations] * c[ledger.WorkIterations]
	others[ledger.WorkIterations] = 0
	prefills := ofPrefill.only(others).Dot(c)
	decodes := others.Dot(c) - prefills
	mine := own.Dot(c)
	context := own[ledger.WorkDecodeContext] * c[ledger.WorkDecodeContext]
	t.prefills += prefills
	t.prefillTime += prefills
	if s.Phase != ledger.Decode {
		t.prefillTime += mine
	}
	switch {
	case t.phase == Prefill:
		t.own += base + mine
		t.batch += decodes
	case s.Phase == ledger.Recompute:
		t.recompute += base + mine
		t.batch += decodes
	default:
		t.base += base + mine - context
		t.context += context
		t.batch += decodes
	}
}

// splits lists what was tallied. The slowdown is what the modelled shares leave of the measured durations, signed.
func (t *tally) splits() []Split {
	var out []Split
	add := func(name string, ns float64) {
		out = append(out, Split{Name: name, NS: int64(math.Round(ns)), Modelled: true})
	}
	switch {
	case t.m == nil:
		out = append(out, Split{Name: SplitUnsplit, NS: t.busy})
	case t.rows > 0:
		if t.phase == Prefill {
			add(SplitOwn, t.own)
			add(SplitPrefills, t.prefills)
			add(SplitDecodes, t.batch)
		} else {
			add(SplitBase, t.base)
			add(SplitBatch, t.batch)
			add(SplitContext, t.context)
			add(SplitInterference, t.prefills)
			add(SplitRecompute, t.recompute)
		}
		modelled := int64(0)
		for _, s := range out {
			modelled += s.NS
		}
		slow := t.busy - modelled
		band := int64(t.m.Band(float64(modelled), t.prefillTime, t.rows))
		out = append(out, Split{Name: SplitSlowdown, NS: slow, Modelled: true, Band: band, WithinError: max(slow, -slow) <= band})
	}
	for _, name := range sortedKeys(t.skipped) {
		out = append(out, Split{Name: name, NS: t.skipped[name]})
	}
	return append(out, Split{Name: SplitHostGap, NS: t.gap})
}
