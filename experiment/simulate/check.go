package simulate

import "fmt"

// Check says what is wrong with the scheduler's books: a block that is lost or held by nobody, a sequence in no list or in two.
func (s *Scheduler) Check() error {
	held := make([]int32, s.settings.Blocks)
	lists := map[*Sequence]string{}
	for _, list := range []struct {
		name  string
		state state
		of    []*Sequence
	}{{"running", running, s.running}, {"waiting", waiting, s.waiting.line}, {"passed over", waiting, s.held.line}} {
		for _, q := range list.of {
			switch {
			case lists[q] != "":
				return fmt.Errorf("simulate: sequence %q is %s, and %s", q.ID, lists[q], list.name)
			case q.state != list.state:
				return fmt.Errorf("simulate: sequence %q is %s, and its state is %d", q.ID, list.name, q.state)
			case q.Computed < 0 || q.Placeholders < 0 || q.InFlight < 0 || q.Stale < 0 || q.Stale > q.InFlight:
				return fmt.Errorf("simulate: sequence %q: %+v: a count is negative, or more is stale than in flight", q.ID, q.Progress)
			case q.state == waiting && len(q.Blocks) > 0:
				return fmt.Errorf("simulate: sequence %q is %s, and holds %d blocks", q.ID, list.name, len(q.Blocks))
			case q.Cached > len(q.Blocks):
				return fmt.Errorf("simulate: sequence %q has %d blocks, and cached %d", q.ID, len(q.Blocks), q.Cached)
			}
			lists[q] = list.name
			for _, b := range q.Blocks {
				held[b]++
			}
		}
	}
	if len(s.running) > s.settings.MaxSequences {
		return fmt.Errorf("simulate: %d sequences run; at most %d may", len(s.running), s.settings.MaxSequences)
	}
	p, free := s.pool, 0
	for b := p.next[0]; b != 0; b = p.next[b] {
		if free++; free > p.free || p.refs[b] != 0 {
			return fmt.Errorf("simulate: block %d is free, and %d hold it; %d of %d free blocks seen", b, p.refs[b], free, p.free)
		}
	}
	for b := 1; b < s.settings.Blocks; b++ {
		if p.refs[b] != held[b] {
			return fmt.Errorf("simulate: block %d: %d references, %d sequences hold it", b, p.refs[b], held[b])
		}
		if p.refs[b] == 0 {
			free--
		}
	}
	if free != 0 {
		return fmt.Errorf("simulate: %d blocks are held by nobody, and not free", -free)
	}
	return nil
}
