package ingest

import (
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// skip keeps the runs of iterations that passed over the live sequences. The wire says who stopped admission and why; who
// waits for what follows from it, so runs are touched only when that changes.
func (g *engine) skip(m *wire.Scheduled, i uint64, head *ledger.Sequence) {
	changed := m.Stop != g.stop || m.StopCode != g.stopCode || head != g.head
	g.stop, g.stopCode, g.head = m.Stop, m.StopCode, head
	if m.SkipsListed && !g.sameOwn(m.Skips) {
		changed = true
		clear(g.own)
		for _, s := range m.Skips {
			g.own[s.Handle] = s
		}
	}
	list := g.fresh
	if changed {
		list = g.waiting
	}
	for _, k := range list {
		if k.in || k.ended {
			continue
		}
		if g.uncertain { // it may be running: nothing is claimed about these iterations
			g.closeSkip(k, i-1)
			continue
		}
		want := g.reason(k)
		if s := k.openSkip(); s != nil {
			if s.Reason == want.Reason && s.Code == want.Code && s.Head == want.Head && s.Away == want.Away {
				continue
			}
			g.closeSkip(k, i-1)
		}
		want.First, want.Last = i, i
		k.seq.Skips = append(k.seq.Skips, want)
		k.skipping = true
	}
	g.fresh = g.fresh[:0]
	if g.uncertain {
		g.fresh = append(g.fresh, g.waiting...) // to be judged again as soon as the membership is known
		for _, k := range g.waiting {
			g.closeSkip(k, i-1)
		}
	}
}

// sameOwn reports whether a list of sequences skipped for reasons of their own says nothing new.
func (g *engine) sameOwn(list []wire.SkipEntry) bool {
	if len(list) != len(g.own) {
		return false
	}
	for _, s := range list {
		if g.own[s.Handle] != s {
			return false
		}
	}
	return true
}

// reason says why a live sequence is not a member of the newest decision.
func (g *engine) reason(k *member) ledger.Skip {
	s := ledger.Skip{Reason: g.stop, Code: g.stopCode, Away: k.away}
	if own, ok := g.own[k.handle]; ok {
		s.Reason, s.Code = own.Reason, own.Code
		return s
	}
	switch {
	case s.Reason == ledger.SkipNone:
		s.Reason = ledger.SkipOther
	case s.Reason == ledger.SkipKVBlocks && g.head != nil && g.head != k.seq:
		s.Reason, s.Head = ledger.SkipHeadOfLine, g.head
	}
	return s
}

// openSkip is the run that is still going on, or nil. Its Last is only brought up to date when the book is looked at.
func (k *member) openSkip() *ledger.Skip {
	if !k.skipping {
		return nil
	}
	return &k.seq.Skips[len(k.seq.Skips)-1]
}

// closeSkip ends the run of k, if there is one, with iteration last.
func (g *engine) closeSkip(k *member, last uint64) {
	if s := k.openSkip(); s != nil {
		s.Last = max(last, s.First)
		k.skipping = false
	}
}

// stopWaiting takes k off the waiting list: it has become a member of the newest decision, or has ended.
func (g *engine) stopWaiting(k *member) {
	last := g.current()
	if !k.ended {
		last-- // the newest decision is the one it joins
	}
	if s := k.openSkip(); s != nil {
		if s.First > last {
			k.seq.Skips = k.seq.Skips[:len(k.seq.Skips)-1]
		} else {
			s.Last = last
		}
		k.skipping = false
	}
	if i := slices.Index(g.waiting, k); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	if i := slices.Index(g.fresh, k); i >= 0 {
		g.fresh = slices.Delete(g.fresh, i, i+1)
	}
}
