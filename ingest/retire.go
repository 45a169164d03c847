package ingest

import (
	"maps"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// How much of what only grows an assembler keeps that is fed for months; of gaps, those that are sealed go first.
const (
	keepGaps    = 10_000
	keepNotices = 1_000
)

// Retire lets go of engine incarnations, and of other sources, that have not said anything since before (Unix ns) and of which nothing is
// in memory any more: an engine that was started anew has another incarnation. Should one speak again after all, it is met like a new one.
// It returns the engines that are gone.
func (a *Assembler) Retire(before int64) (gone []*ledger.Engine) {
	a.update()
	alive := map[string]bool{} // incarnations
	for id, g := range a.engines {
		b, beats := a.beats[id]
		if len(g.e.Iterations) > 0 || len(g.e.Sequences) > 0 || len(g.open) > 0 || g.e.BaseEnd >= before || beats && b.At >= before {
			alive[id.Incarnation] = true
		}
	}
	for _, s := range a.sources {
		if s.lastTime >= before || len(s.handles) > 0 || len(s.http) > 0 {
			alive[s.id.Incarnation] = true
		}
	}
	for i, s := range a.sources {
		silent := s.lastTime < before && len(s.handles) == 0 && len(s.http) == 0
		if s.id.Incarnation != "" && alive[s.id.Incarnation] || !silent || s.Name == "" {
			continue
		}
		delete(a.names, s.Name)
		a.sources[i] = newSource("")
		a.free = append(a.free, uint16(i))
	}
	maps.DeleteFunc(a.engines, func(id ledger.EngineID, g *engine) bool {
		if alive[id.Incarnation] {
			return false
		}
		gone = append(gone, g.e)
		delete(a.beats, id)
		return true
	})
	a.gaps = newest(a.gaps, keepGaps)
	a.notices = newest(a.notices, keepNotices)
	return gone
}

// newest keeps the last n.
func newest[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[len(all)-n:])
}
