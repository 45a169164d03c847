package server

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/store"
)

// traces are the spans that are in no period yet, by trace.
type traces struct {
	set Settings

	mu      sync.Mutex
	open    map[genai.TraceID]*trace
	sealing map[genai.TraceID]*trace // taken out to be sealed; still answered from
	spans   int                      // in both
	changed uint64                   // counts what changes an answer
	clocks  *genai.Clocks            // what sealed spans told of clocks

	seed  maphash.Seed
	seen  remembered // spans that were taken
	calls remembered // traces of which calls are sealed
	await remembered // parents of sealed calls that had not come

	taken, duplicates, late uint64
	newest                  time.Time // when a span came last
}

// trace is one trace while spans of it come.
type trace struct {
	id          genai.TraceID
	spans       []genai.Span
	first, last time.Time // when spans of it came
	from        store.Position
	late        bool // calls of it are sealed already
}

func newTraces(set Settings) *traces {
	return &traces{set: set, open: map[genai.TraceID]*trace{}, sealing: map[genai.TraceID]*trace{}, clocks: &genai.Clocks{}, seed: maphash.MakeSeed(),
		seen: remembered{most: 4 * set.HotSpans}, calls: remembered{most: set.HotSpans}, await: remembered{most: set.HotSpans}}
}

// key is a span's, 64 bits of what nobody outside can choose.
func (t *traces) key(trace genai.TraceID, id genai.SpanID) uint64 {
	var b [24]byte
	copy(b[:16], trace[:])
	copy(b[16:], id[:])
	return maphash.Bytes(t.seed, b[:])
}

func (t *traces) keyOf(trace genai.TraceID) uint64 { return maphash.Bytes(t.seed, trace[:]) }

// remembered is a set that forgets: of the keys of late at least most and at most twice as many are there.
type remembered struct {
	most        int
	now, before map[uint64]struct{}
}

func (r *remembered) has(k uint64) bool {
	if _, ok := r.now[k]; ok {
		return true
	}
	_, ok := r.before[k]
	return ok
}

func (r *remembered) add(k uint64) {
	if r.now == nil || len(r.now) >= r.most {
		r.before, r.now = r.now, map[uint64]struct{}{}
	}
	r.now[k] = struct{}{}
}

// size is how many spans are in memory.
func (t *traces) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.spans
}

// unknown is the spans of a list that were not taken yet.
func (t *traces) unknown(list []genai.Span) []genai.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := slices.IndexFunc(list, func(s genai.Span) bool { return t.seen.has(t.key(s.Trace, s.ID)) })
	if first < 0 {
		return list
	}
	out := slices.Clone(list[:first])
	for i := first; i < len(list); i++ {
		if t.seen.has(t.key(list[i].Trace, list[i].ID)) {
			t.duplicates++
		} else {
			out = append(out, list[i])
		}
	}
	return out
}

// known notes a span that is sealed.
func (t *traces) known(s *genai.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.add(t.key(s.Trace, s.ID))
	t.calls.add(t.keyOf(s.Trace))
}

// take puts spans that are in the log behind a position with those of their traces.
func (t *traces) take(list []genai.Span, from store.Position, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed++
	t.newest = now
	var tr *trace
	for i := range list {
		s := &list[i]
		k := t.key(s.Trace, s.ID)
		if t.seen.has(k) {
			t.duplicates++
			continue
		}
		t.seen.add(k)
		if tr == nil || tr.id != s.Trace {
			if tr = t.open[s.Trace]; tr == nil {
				tr = &trace{id: s.Trace, first: now, from: from, late: t.sealing[s.Trace] != nil || t.calls.has(t.keyOf(s.Trace))}
				t.open[s.Trace] = tr
			}
			tr.last = now
		}
		tr.spans = append(tr.spans, *s)
		t.spans++
		t.taken++
		if tr.late {
			t.late++
		}
	}
}

// cut takes out the traces that are quiet or old, and where there are too many spans those that were quiet longest.
func (t *traces) cut(now time.Time) (ready []*trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*trace, 0, len(t.open))
	spans := 0
	for _, tr := range t.open {
		all = append(all, tr)
		spans += len(tr.spans)
	}
	slices.SortFunc(all, func(a, b *trace) int {
		return cmp.Or(a.last.Compare(b.last), slices.Compare(a.id[:], b.id[:]))
	})
	full := spans > t.set.HotSpans
	quiet := map[genai.TraceID]bool{}
	for _, tr := range all {
		if full && spans > t.set.HotSpans/2 || now.Sub(tr.last) >= t.set.SpanQuiet || now.Sub(tr.first) >= t.set.SpanAge {
			quiet[tr.id] = true
			spans -= len(tr.spans)
		}
	}
	if !full {
		t.keepTogether(all, quiet, now)
	}
	for _, tr := range all {
		if quiet[tr.id] && t.sealing[tr.id] == nil {
			delete(t.open, tr.id)
			t.sealing[tr.id] = tr
			ready = append(ready, tr)
		}
	}
	return ready
}

// keepTogether leaves traces that may belong to one call until all of them are quiet.
func (t *traces) keepTogether(all []*trace, quiet map[genai.TraceID]bool, now time.Time) {
	seekers := map[string]bool{}
	kin := map[string][]*trace{}
	for _, tr := range all {
		for i := range tr.spans {
			tr.spans[i].Kin(func(id string, looks bool) {
				if looks {
					seekers[id] = true
				}
				kin[id] = append(kin[id], tr)
			})
		}
	}
	for changed := len(seekers) > 0; changed; {
		changed = false
		for id := range seekers {
			if !slices.ContainsFunc(kin[id], func(tr *trace) bool { return !quiet[tr.id] }) {
				continue
			}
			for _, tr := range kin[id] {
				if quiet[tr.id] && now.Sub(tr.first) < t.set.SpanAge {
					delete(quiet, tr.id)
					changed = true
				}
			}
		}
	}
}

// sealed lets go of traces that a period has now, with what is to be known of them if spans come late.
func (t *traces) sealed(list []*trace, calls []store.Call, clk *genai.Clocks) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.changed++
	t.clocks = clk
	for _, c := range calls {
		t.calls.add(t.keyOf(c.Trace))
		if c.MissingParent != (genai.SpanID{}) {
			t.await.add(t.key(c.Trace, c.MissingParent))
		}
	}
	for _, tr := range list {
		delete(t.sealing, tr.id)
		t.spans -= len(tr.spans)
	}
}

// back takes traces up again that could not be sealed.
func (t *traces) back(list []*trace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tr := range list {
		delete(t.sealing, tr.id)
		if came := t.open[tr.id]; came != nil {
			tr.spans = append(tr.spans, came.spans...)
			tr.last = came.last
		}
		t.open[tr.id] = tr
	}
}

// amends reports whether a call of a late trace is part of one that is sealed.
func (t *traces) amends(c *genai.Call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.calls.has(t.keyOf(c.Trace)) {
		return false
	}
	if c.MissingParent != (genai.SpanID{}) && t.seen.has(t.key(c.Trace, c.MissingParent)) {
		return true
	}
	return slices.ContainsFunc(c.Layers, func(l genai.Layer) bool { return t.await.has(t.key(c.Trace, l.Span.ID)) })
}

// oldest is the place in the log before everything that is in no period; ok is false where there is nothing.
func (t *traces) oldest() (at store.Position, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, list := range []map[genai.TraceID]*trace{t.open, t.sealing} {
		for _, tr := range list {
			if !ok || tr.from.Before(at) {
				at, ok = tr.from, true
			}
		}
	}
	return at, ok
}

// all is a copy of the spans in memory, and what is known of clocks.
func (t *traces) all(of func(*trace) bool) (list []genai.Span, clk *genai.Clocks) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range []map[genai.TraceID]*trace{t.sealing, t.open} {
		for _, tr := range m {
			if of == nil || of(tr) {
				list = append(list, tr.spans...)
			}
		}
	}
	return list, t.clocks.Clone()
}
