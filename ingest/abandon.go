package ingest

import (
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/ledger"
)

// unrestated is how many iterations a sequence may wait without being named again: probes restate each that is alive every 1,024.
const unrestated = 8 * 1024

// Abandon ends what nothing more will be told of, so that it does not stay alive for ever: the sequences of engines that died or of which
// nothing came for as long as patience, those that their scheduler does not name any more (their end was lost), exchanges whose front end is
// silent or has gone on for as long after their sequences ended, and clients' views of requests that no server spoke of. A sequence then ends with
// [ledger.FinishLost], an exchange with [ledger.EndUnknown], both at the last time that is known of them.
//
// It is to be called regularly. Silence is judged by when records come, not by what they say: an agent may be hours behind. now is the
// caller's clock in Unix ns; alive says of an engine that its process is known to live, however silent it is.
func (a *Assembler) Abandon(now int64, patience time.Duration, alive func(ledger.EngineID) bool) {
	a.update()
	a.listen(now)
	heard, speaks := map[string]int64{}, map[string]bool{} // by incarnation
	for _, s := range a.sources {
		heard[s.id.Incarnation] = max(heard[s.id.Incarnation], s.lastTime)
		speaks[s.id.Incarnation] = speaks[s.id.Incarnation] || now-s.quiet < int64(patience)
	}
	silent := func(id ledger.EngineID) bool { return !speaks[id.Incarnation] && !alive(id) }
	for id, g := range a.engines {
		if silent(id) {
			g.abandon(heard[id.Incarnation])
		} else {
			g.abandonUnnamed()
		}
	}
	a.inInbox = slices.DeleteFunc(a.inInbox, func(w waiting) bool {
		if !silent(w.engine) {
			return false
		}
		w.seq.Finished, w.seq.Reason = max(heard[w.engine.Incarnation], w.seq.Arrived), ledger.FinishLost
		return true
	})
	a.update()
	for _, s := range a.sources {
		for _, r := range s.http {
			abandonExchange(r, silent(s.id), s.lastTime-int64(patience))
		}
	}
	a.clients = slices.DeleteFunc(a.clients, func(c clientView) bool {
		if max(c.view.Sent, c.view.Ended) >= now-int64(patience) {
			return false
		}
		a.unserved(c)
		return true
	})
}

// AbandonIf ends those sequences that were given up before, in a former life of whoever asks, and their exchanges with them.
func (a *Assembler) AbandonIf(lost func(*ledger.Sequence) bool) {
	a.update()
	ended := map[*ledger.Request]bool{}
	for _, g := range a.engines {
		for _, k := range slices.Collect(maps.Values(g.members)) {
			if lost(k.seq) {
				g.end(k, max(g.lastEnd, k.seq.Queued), ledger.FinishLost, 0)
				ended[k.seq.Request] = true
			}
		}
		for _, q := range g.e.Sequences {
			if r := q.Request; r != nil && r.Received != 0 && r.LastByte == 0 && q.Finished != 0 && (ended[r] || lost(q)) {
				ended[r] = true
			}
		}
	}
	a.update()
	for r := range ended {
		abandonExchange(r, true, 0)
	}
}

// listen notes of which sources something has come since it was called last.
func (a *Assembler) listen(now int64) {
	for _, s := range a.sources {
		if n := uint64(s.Frames) - s.beats; n != s.noted || s.quiet == 0 {
			s.noted, s.quiet = n, now
		}
		if s.beats != s.notedBeats {
			if s.notedBeats = s.beats; a.beats[s.id].State != ledger.BeatDead {
				s.quiet = now
			}
		}
	}
}

// abandon ends everything of an engine that was last heard of at a time.
func (g *engine) abandon(heard int64) {
	for len(g.open) > 0 {
		g.close(g.open[0], heard, 0, 0)
	}
	for _, k := range slices.Collect(maps.Values(g.members)) {
		g.end(k, max(heard, g.lastEnd, k.seq.Queued), ledger.FinishLost, 0)
	}
}

// abandonUnnamed ends the sequences that wait and have not been named for long.
func (g *engine) abandonUnnamed() {
	for _, k := range slices.Collect(maps.Values(g.members)) {
		if k.in || g.current() < k.named+unrestated {
			continue
		}
		at := k.seq.Queued
		if row := g.e.Row(k.named); row != nil {
			at = max(at, row.End)
		}
		g.end(k, at, ledger.FinishLost, 0)
		g.aborted = append(g.aborted, k)
		// Whether it waited after that nobody knows.
		k.seq.Skips = slices.DeleteFunc(k.seq.Skips, func(s ledger.Skip) bool { return s.First > k.named })
		if n := len(k.seq.Skips); n > 0 {
			k.seq.Skips[n-1].Last = min(k.seq.Skips[n-1].Last, k.named)
		}
	}
}

// abandonExchange ends an exchange if its front end is silent and none of its sequences is alive, or if they all ended before a time.
func abandonExchange(r *ledger.Request, silent bool, before int64) {
	if r.LastByte != 0 || r.Received == 0 && r.FirstByte == 0 {
		return
	}
	last := max(r.Received, r.FirstByte, r.Disconnect)
	for _, q := range r.Sequences {
		if q.Finished == 0 {
			return
		}
		last = max(last, q.Finished, q.Answered, q.Delivered)
	}
	if silent || len(r.Sequences) > 0 && last < before {
		r.LastByte, r.End = last, ledger.EndUnknown
	}
}

// unserved makes a request of a client's view that no server spoke of.
func (a *Assembler) unserved(c clientView) {
	r := &ledger.Request{RequestID: c.requestID, TraceID: c.traceID, TraceParent: c.traceParent}
	a.addRequest(r)
	c.join(r)
}

// Unserved reports whether a request is over, and no engine took it up: its front end refused it, or only its client spoke of it.
func Unserved(r *ledger.Request) bool {
	if slices.ContainsFunc(r.Sequences, func(q *ledger.Sequence) bool { return q.Engine != nil || q.Finished == 0 }) {
		return false
	}
	if r.Received == 0 && r.FirstByte == 0 {
		return len(r.Clients) > 0 || len(r.Sequences) > 0
	}
	return r.LastByte != 0
}

// ForgetUnserved lets go of requests that no engine took up.
func (a *Assembler) ForgetUnserved(requests []*ledger.Request) {
	gone, ended := map[*ledger.Sequence]bool{}, map[*ledger.Request]bool{}
	for _, r := range requests {
		ended[r] = true
		for _, q := range r.Sequences {
			gone[q] = true
		}
	}
	a.unname(gone, ended)
	for _, s := range a.sources {
		maps.DeleteFunc(s.handles, func(_ uint32, q *ledger.Sequence) bool { return gone[q] })
		maps.DeleteFunc(s.http, func(_ uint32, r *ledger.Request) bool { return ended[r] })
	}
	maps.DeleteFunc(a.byID, func(_ sequenceKey, q *ledger.Sequence) bool { return gone[q] })
	a.drop(ended)
}
