package ingest

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// Book puts together what has been taken so far, checks whether it balances, and returns it. The book shares the assembler's
// memory: it is only to be read while the assembler is not being fed, and stays valid for as long.
func (a *Assembler) Book() *ledger.Book {
	a.update()
	for _, c := range a.clients { // nobody will tell any more whose they are
		a.unserved(c)
	}
	a.clients = nil
	for _, g := range a.engines {
		for _, v := range ledger.Check(g.e) {
			g.e.Gaps = append(g.e.Gaps, ledger.Gap{Producer: g.s.Name, Engine: g.e.ID.String(), At: v.At, Why: v.String()})
		}
	}
	return a.view()
}

// Live is Book for an assembler that goes on being fed: the books of what is still going on are not checked, and clients'
// views that speak of requests not yet seen wait for them.
func (a *Assembler) Live() *ledger.Book {
	a.update()
	return a.view()
}

// update brings what is carried as sums or waits to be joined up to date. What it costs is in proportion to what is alive and
// to what is new since the last time.
func (a *Assembler) update() {
	for _, s := range a.sources {
		s.batch.flush(s)
	}
	a.inInbox = slices.DeleteFunc(a.inInbox, func(w waiting) bool {
		// Whom the scheduler has not taken up belong to their engine all the same.
		if g := a.engines[w.engine]; g != nil && w.seq.Queued == 0 && w.seq.Engine == nil {
			w.seq.Engine = g.e
			g.e.Sequences = append(g.e.Sequences, w.seq)
		}
		return w.seq.Queued != 0
	})
	for _, g := range a.engines {
		g.bringUp()
	}
	a.executions()
	a.attach()
	a.joinClients()
}

// view lists what there is.
func (a *Assembler) view() *ledger.Book {
	b := &ledger.Book{Notices: a.notices, Newest: a.now, Now: a.now, Beats: a.beats}
	for _, g := range a.engines {
		b.Engines = append(b.Engines, g.e)
	}
	slices.SortFunc(b.Engines, func(x, y *ledger.Engine) int {
		return cmp.Or(cmp.Compare(firstTime(x), firstTime(y)), cmp.Compare(x.ID.String(), y.ID.String()))
	})
	b.Devices = a.listDevices()
	a.sortRequests()
	b.Requests = a.requests
	b.Gaps = slices.Clone(a.gaps)
	b.Processes = map[ledger.ProcessID]ledger.EngineID{}
	for _, s := range a.sources {
		if s.Name == "" {
			continue // let go
		}
		if s.id.Incarnation != "" && (s.Role == "engine" || s.Role == "worker") {
			b.Processes[ledger.ProcessID{Boot: s.hello.Boot, PID: s.hello.PID}] = s.id
		}
		s.Uncertainty = s.clock.Uncertainty
		b.Sources = append(b.Sources, s.Source)
		for _, g := range s.refusals {
			b.Gaps = append(b.Gaps, *g)
		}
	}
	return b
}

// sortRequests brings those that were added into their places, which are near the end.
func (a *Assembler) sortRequests() {
	byTime := func(x, y *ledger.Request) int { return cmp.Compare(x.FirstSeen(), y.FirstSeen()) }
	fresh := a.requests[min(a.sorted, len(a.requests)):]
	if len(fresh) == 0 {
		return
	}
	earliest := slices.MinFunc(fresh, byTime).FirstSeen()
	from := len(a.requests) - len(fresh)
	for from > 0 && a.requests[from-1].FirstSeen() > earliest {
		from--
	}
	slices.SortStableFunc(a.requests[from:], byTime)
	a.sorted = len(a.requests)
}

func firstTime(e *ledger.Engine) int64 {
	if len(e.Iterations) == 0 {
		return 0
	}
	return e.Iterations[0].Decided
}

// attach gives every new sequence its request. Those whose front end has not been seen get one of their own; children of
// one parent share it.
func (a *Assembler) attach() {
	for _, q := range a.fresh {
		if q.Request == nil && q.Parent != "" {
			q.Request = a.byParent[sequenceKey{incarnationOf(q), q.Parent}]
		}
		if q.Request == nil {
			q.Request = &ledger.Request{}
			a.addRequest(q.Request)
		}
		if q.Parent != "" {
			a.byParent[sequenceKey{incarnationOf(q), q.Parent}] = q.Request
		}
		r := q.Request
		r.Sequences = append(r.Sequences, q)
		slices.SortStableFunc(r.Sequences, func(x, y *ledger.Sequence) int { return cmp.Compare(x.Index, y.Index) })
		if q.Parent != "" {
			for _, sibling := range r.Sequences {
				sibling.N = max(sibling.N, uint16(min(len(r.Sequences), math.MaxUint16)))
			}
		}
	}
	a.fresh = a.fresh[:0]
}

func incarnationOf(q *ledger.Sequence) string {
	if q.Engine == nil {
		return ""
	}
	return q.Engine.ID.Incarnation
}

// addRequest lists a request and makes it findable for the clients' views.
func (a *Assembler) addRequest(r *ledger.Request) {
	a.requests = append(a.requests, r)
	if r.TraceID != "" {
		a.byTrace[r.TraceID] = r
	}
	if r.RequestID != "" {
		a.byRequest[r.RequestID] = append(a.byRequest[r.RequestID], r)
	}
}

// move gives a sequence to the request that its front end names, after it had been given one of its own.
func (a *Assembler) move(q *ledger.Sequence, to *ledger.Request) {
	from := q.Request
	if from == to {
		return
	}
	q.Request = to
	if from == nil {
		return // it is still to be attached
	}
	from.Sequences = slices.DeleteFunc(from.Sequences, func(s *ledger.Sequence) bool { return s == q })
	if len(from.Sequences) == 0 && from.Received == 0 && len(from.Clients) == 0 {
		a.drop(map[*ledger.Request]bool{from: true})
	}
	a.fresh = append(a.fresh, q)
}

// bringUp brings what is carried as sums up to the newest iteration, for live sequences and for those whose last
// decision has not been followed by another.
func (g *engine) bringUp() {
	last := g.current()
	bring := func(k *member) {
		q := k.seq
		if k.in {
			k.stint().Last = last
			q.Leave = last
		}
		if s := k.openSkip(); s != nil {
			s.Last = last
		}
		if k.ended {
			return
		}
		g.lastEmit(k)
	}
	for _, k := range g.members {
		bring(k)
	}
	for _, k := range g.gone {
		bring(k)
	}
	for _, k := range g.aborted { // the engine did not say when they last emitted
		if k.seq.FirstEmit != 0 {
			g.lastEmit(k)
		}
	}
	g.aborted = g.aborted[:0]
}

// lastEmit finds the newest completed iteration in which a sequence emitted: the last of its decode stint, or the end of
// its prefill. Its output is counted the same way where the engine has not said it.
func (g *engine) lastEmit(k *member) {
	e, q := g.e, k.seq
	completed := e.Completed()
	output := k.extra
	for i := range q.Stints {
		s := &q.Stints[i]
		l := min(s.Last, completed)
		if l < s.First {
			continue
		}
		if q.Finished != 0 { // what was computed after its end was thrown away
			for l >= s.First && e.Row(l).End > q.Finished {
				l--
			}
			if l < s.First {
				continue
			}
		}
		if s.Phase == ledger.Decode {
			output += int(l - s.First + 1)
		} else if s.Final && l == s.Last {
			output++
		} else {
			continue
		}
		first := s.First
		if s.Phase != ledger.Decode {
			first = s.Last
		}
		for ; l >= first; l-- {
			if _, quiet := slices.BinarySearch(k.quiet, l); !quiet {
				q.LastEmit = l
				break
			}
		}
	}
	if row := e.Row(q.LastEmit); row != nil {
		q.LastToken = row.End
	}
	if q.Output == 0 || q.Finished == 0 { // the engine's own count comes with the end
		q.Output = uint32(max(output, 0))
	}
}
