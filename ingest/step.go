package ingest

import (
	"fmt"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// maxSteps bounds what one engine's ranks may say of iterations that its scheduler has not told yet.
const maxSteps = 1 << 16

// step takes one rank's execution of a batch. Ranks write rings of their own, which may be read before the scheduler's: what they
// say of an iteration waits until it is there.
func (a *Assembler) step(s *source, m *wire.Step) error {
	if m.Iteration == 0 || m.Iteration > 1<<62 {
		return fmt.Errorf("field iteration: %d; iterations are numbered from 1", m.Iteration)
	}
	if m.Returned < m.Time {
		return fmt.Errorf("field returned: %d ns before time", m.Time-m.Returned)
	}
	if m.Device > 1<<62 || m.Wait > 1<<62 {
		return fmt.Errorf("field device or wait: %d and %d ns; no batch takes that long", m.Device, m.Wait)
	}
	x := ledger.Execution{Ranks: 1, Slowest: m.Rank, Host: m.Returned - m.Time, Device: int64(m.Device), Wait: int64(m.Wait), Peak: m.Peak,
		Padded: m.Padded, Graph: ledger.GraphMode(m.Mode), Eager: m.Eager != 0}
	if g := a.engines[s.id]; g != nil {
		if row := g.e.Row(m.Iteration); row != nil {
			executed(row, &x)
			return nil
		}
		if m.Iteration < g.e.First {
			return nil // let go already
		}
	}
	early := a.early[s.id]
	if early == nil {
		early = map[uint64]*ledger.Execution{}
		a.early[s.id] = early
	}
	if known := early[m.Iteration]; known != nil {
		known.Add(x)
		return nil
	}
	if len(early) >= maxSteps {
		return fmt.Errorf("field iteration: %d: of more than %d iterations only ranks have spoken; is the scheduler's ring read, too?", m.Iteration, maxSteps)
	}
	early[m.Iteration] = &x
	return nil
}

func executed(row *ledger.Iteration, x *ledger.Execution) {
	if row.Execution == nil {
		row.Execution = x
	} else {
		row.Execution.Add(*x)
	}
}

// executions gives what ranks said too early to its iterations.
func (a *Assembler) executions() {
	for id, early := range a.early {
		g := a.engines[id]
		if g == nil {
			continue
		}
		for n, x := range early {
			row := g.e.Row(n)
			if row != nil {
				executed(row, x)
			}
			if row != nil || n < g.e.First {
				delete(early, n)
			}
		}
	}
}
