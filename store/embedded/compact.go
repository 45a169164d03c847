package embedded

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Compact implements [store.Sealed].
func (s *Store) Compact(ctx context.Context, rows int64, fan int) (int, error) {
	s.sealing.Lock()
	defer s.sealing.Unlock()
	ps, err := s.all("compact")
	if err != nil {
		return 0, err
	}
	less := 0
	runs := mergeable(slices.DeleteFunc(slices.Clone(ps), (*period).ofCalls), rows, max(fan, 2))
	runs = append(runs, mergeable(slices.DeleteFunc(ps, func(p *period) bool { return !p.ofCalls() }), max(rows/callWeight, 1), max(fan, 2))...)
	for _, run := range runs {
		switch err := s.merge(ctx, run); {
		case errors.Is(err, store.ErrCorrupt): // it stays as it is, and is named
		case err != nil:
			return less, err
		default:
			less += len(run) - 1
		}
	}
	return less, nil
}

// mergeable returns runs of neighbours that are to become one period each: at most rows iterations together, and at least fan of like
// size: none is larger than the mean of fan − 1. They are looked for among the smallest first; what they become has its turn at the next call.
func mergeable(ps []*period, rows int64, fan int) (runs [][]*period) {
	most := rows
	for fan > 2 && most > 1 {
		most = max(most/int64(fan), 1)
	}
	taken := map[*period]bool{}
	for ; ; most = min(most*int64(fan), rows) {
		for i := 0; i < len(ps); {
			n, total, largest := 0, int64(0), int64(0)
			for i+n < len(ps) && sizeOf(ps[i+n]) <= most && !taken[ps[i+n]] && (n == 0 || follows(ps[i+n-1], ps[i+n])) && total+sizeOf(ps[i+n]) <= rows {
				total += sizeOf(ps[i+n])
				largest = max(largest, sizeOf(ps[i+n]))
				n++
			}
			if n >= fan && total >= int64(fan-1)*largest {
				run := ps[i : i+n]
				for _, p := range run {
					taken[p] = true
				}
				runs = append(runs, run)
			}
			i += max(n, 1)
		}
		if most == rows {
			return runs
		}
	}
}

// callWeight is how many iterations a call counts for where periods are merged: as much memory.
const callWeight = 10

// ofCalls reports a period that has calls and nothing else.
func (p *period) ofCalls() bool {
	return p.m.Engine == (ledger.EngineID{}) && !p.m.lacks("calls") && p.m.Files["calls"].Rows == p.m.Files["requests"].Rows
}

// sizeOf is what a period weighs where periods are merged: iterations, or calls of one that has nothing else.
func sizeOf(p *period) int64 {
	if p.ofCalls() {
		return p.m.Files["calls"].Rows
	}
	return p.m.Files["iterations"].Rows
}

// follows reports whether b goes on where a ends, and both are whole.
func follows(a, b *period) bool {
	whole := func(p *period) bool {
		return p.info().Damaged == "" && len(p.m.Dropped) == 0 && (p.m.First != 0 || p.ofCalls())
	}
	if a.ofCalls() {
		return whole(a) && whole(b)
	}
	return a.m.Engine == b.m.Engine && a.m.Engine != (ledger.EngineID{}) && whole(a) && whole(b) && a.m.Last+1 == b.m.First
}

// merge writes one period in place of several. What replaces them says so: a crash before they are gone is cleaned up at the next open.
func (s *Store) merge(ctx context.Context, ps []*period) error {
	m := manifest{Engine: ps[0].m.Engine, First: ps[0].m.First, Last: ps[len(ps)-1].m.Last}
	parts := make([]*content, len(ps))
	var requests int64
	for i, p := range ps {
		if err := ctx.Err(); err != nil {
			return err
		}
		var err error
		if parts[i], err = p.content(); err != nil {
			return err
		}
		m.Replaces = append(m.Replaces, replaced{p.m.ID, requests})
		for _, r := range p.m.Replaces {
			m.Replaces = append(m.Replaces, replaced{r.ID, requests + r.Requests})
		}
		m.Batch = max(m.Batch, p.m.Batch)
		requests += int64(len(parts[i].requests))
	}
	c := &content{}
	home := homes(parts)
	for i, part := range parts {
		c.append(part, i, home)
	}
	c.reindex()
	if _, err := s.publish(ctx, c, m); err != nil {
		return err
	}
	for _, p := range ps {
		if err := s.unlink(p); err != nil {
			return err
		}
	}
	return nil
}

// content reads all rows of a period.
func (p *period) content() (*content, error) {
	c := &content{}
	names := slices.Concat([]string{"ids"}, sliceTables, callTables)
	return c, p.use(names, func(t map[string]*table) error {
		for _, err := range []error{
			all(t["engines"], &c.engines), all(t["iterations"], &c.iterations), all(t["sequences"], &c.sequences), all(t["stints"], &c.stints),
			all(t["skips"], &c.skips), all(t["preemptions"], &c.preemptions), all(t["holdings"], &c.holdings), all(t["executions"], &c.executions),
			all(t["evictions"], &c.evictions), all(t["requests"], &c.requests),
			all(t["clients"], &c.clients), all(t["gaps"], &c.gaps), all(t["calls"], &c.calls), all(t["call_parts"], &c.callParts), all(t["call_spans"], &c.callSpans),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func all[T any](t *table, into *[]T) (err error) {
	*into, err = readRows[T](t, 0, math.MaxInt64)
	return err
}

// place is a sequence's row in one of several parts.
type place struct {
	part int
	row  int32
}

// homes finds for each internal id the part in which its request is sealed: its rows as a guest of others are not needed there.
func homes(parts []*content) map[string]place {
	home := map[string]place{}
	for i, c := range parts {
		for k := range c.sequences {
			if r := &c.sequences[k]; !r.Guest {
				home[c.fullID(r)] = place{i, int32(k)}
			}
		}
	}
	return home
}

// fullID is a sequence's internal id without templates.
func (c *content) fullID(r *store.SequenceRow) string {
	if r.Templates && int(r.Request) < len(c.requests) {
		return untemplate(r.ID, c.requests[r.Request].RequestID)
	}
	return r.ID
}

// append adds part number i. Rows that point to rows are numbered anew.
func (c *content) append(part *content, i int, home map[string]place) {
	c.starts = append(c.starts, nil)
	engines, requests, clients := int32(len(c.engines)), int32(len(c.requests)), int32(len(c.clients))
	// First where each sequence of the part will be; guests whose home is another part are settled when all parts are numbered.
	row := make([]int32, len(part.sequences))
	for k := range part.sequences {
		r := part.sequences[k]
		if h, ok := home[part.fullID(&r)]; r.Guest && ok {
			c.pending = append(c.pending, h)
			row[k] = -1 - int32(len(c.pending)) // a debt, paid by reindex
			continue
		}
		row[k] = int32(len(c.sequences))
		stints := part.stints[r.StintRow : r.StintRow+r.Stints]
		skips := part.skips[r.SkipRow : r.SkipRow+r.Skips]
		r.StintRow, r.SkipRow = int32(len(c.stints)), int32(len(c.skips))
		if r.Request >= 0 {
			r.Request += requests
		}
		for _, s := range stints {
			s.Sequence = row[k]
			c.stints = append(c.stints, s)
		}
		for _, s := range skips {
			s.Sequence = row[k]
			c.skips = append(c.skips, s)
		}
		c.sequences = append(c.sequences, r)
	}
	c.starts[i] = row
	ref := func(k int32) int32 {
		if k < 0 || int(k) >= len(row) {
			return -1
		}
		return row[k]
	}
	for k := range part.sequences { // heads of skips, now that the part is numbered
		if row[k] < 0 {
			continue
		}
		r := &c.sequences[row[k]]
		for j := range c.skips[r.SkipRow : r.SkipRow+r.Skips] {
			s := &c.skips[int(r.SkipRow)+j]
			s.Head = ref(s.Head)
		}
	}
	for _, r := range part.iterations {
		r.Head = ref(r.Head)
		c.iterations = append(c.iterations, r)
	}
	for _, r := range part.preemptions {
		r.Victim, r.Preemptor = ref(r.Victim), ref(r.Preemptor)
		c.preemptions = append(c.preemptions, r)
	}
	for _, r := range part.holdings {
		r.Head, r.Holder = ref(r.Head), ref(r.Holder)
		c.holdings = append(c.holdings, r)
	}
	c.executions = append(c.executions, part.executions...)
	for _, r := range part.evictions {
		r.LastUser = ref(r.LastUser)
		c.evictions = append(c.evictions, r)
	}
	for _, r := range part.requests {
		r.Stretch += engines
		r.ClientRow += clients
		for j, k := range r.SequenceRows {
			r.SequenceRows[j] = ref(k)
		}
		c.requests = append(c.requests, r)
	}
	for _, r := range part.clients {
		r.Request += requests
		c.clients = append(c.clients, r)
	}
	c.appendCalls(part, requests)
	c.engines = append(c.engines, part.engines...)
	c.gaps = append(c.gaps, part.gaps...)
}

// reindex settles references to sequences whose home came later, and makes the index of ids.
func (c *content) reindex() {
	settle := func(k *int32) {
		if *k < -1 {
			h := c.pending[-2-*k]
			*k = c.starts[h.part][h.row]
		}
	}
	for i := range c.iterations {
		settle(&c.iterations[i].Head)
	}
	for i := range c.skips {
		settle(&c.skips[i].Head)
	}
	for i := range c.preemptions {
		settle(&c.preemptions[i].Victim)
		settle(&c.preemptions[i].Preemptor)
	}
	for i := range c.holdings {
		settle(&c.holdings[i].Head)
		settle(&c.holdings[i].Holder)
	}
	for i := range c.evictions {
		settle(&c.evictions[i].LastUser)
	}
	requests := make([]*ledger.Request, len(c.requests))
	for i := range c.requests {
		r := requestOf(&c.requests[i], nil)
		for _, k := range c.requests[i].SequenceRows {
			r.Sequences = append(r.Sequences, sequenceOf(&c.sequences[k], r))
		}
		requests[i] = r
	}
	c.index(requests)
}
