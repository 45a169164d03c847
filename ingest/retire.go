package ingest

import (
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/ledger"
)

// How much of what only grows an assembler keeps that is fed for months; of gaps, those that are sealed go first.
const (
	keepGaps    = 10_000
	keepNotices = 1_000
)

// Retire lets go of engine incarnations, and of other sources, of which nothing came for as long as silence and nothing is in memory any more:
// an engine that was started anew has another incarnation. Should one speak again after all, it is met like a new one. It is to be called
// regularly; now and alive are as in [Assembler.Abandon]. It returns the engines that are gone.
func (a *Assembler) Retire(now int64, silence time.Duration, alive func(ledger.EngineID) bool) (gone []*ledger.Engine) {
	a.update()
	a.listen(now)
	kept := map[string]bool{} // incarnations
	for id, g := range a.engines {
		if len(g.e.Iterations) > 0 || len(g.e.Sequences) > 0 || len(g.open) > 0 || alive(id) {
			kept[id.Incarnation] = true
		}
	}
	inUse := func(s *source) bool { return now-s.quiet < int64(silence) || len(s.handles) > 0 || len(s.http) > 0 }
	for _, s := range a.sources {
		if inUse(s) {
			kept[s.id.Incarnation] = true
		}
	}
	for i, s := range a.sources {
		if s.id.Incarnation != "" && kept[s.id.Incarnation] || inUse(s) || s.Name == "" {
			continue
		}
		delete(a.names, s.Name)
		a.sources[i] = newSource("")
		a.free = append(a.free, uint16(i))
	}
	maps.DeleteFunc(a.engines, func(id ledger.EngineID, g *engine) bool {
		if kept[id.Incarnation] {
			return false
		}
		gone = append(gone, g.e)
		delete(a.beats, id)
		return true
	})
	maps.DeleteFunc(a.devices, func(_ ledger.DeviceID, d *ledger.Device) bool { return now-d.At > int64(silence) })
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
