package simulate

import "slices"

// Complete takes in the output of a decision. Decisions are completed in the order in which they were made.
func (s *Scheduler) Complete(d *Decision) {
	left := false
	for i := range d.Members {
		m := &d.Members[i]
		q := m.Sequence
		if q.state == finished {
			continue // it ended while this was in flight
		}
		stale := q.Stale > 0
		q.InFlight -= m.Tokens
		if stale {
			q.Stale -= m.Tokens
			if q.Drop {
				continue
			}
		}
		if m.Samples && s.output(q, m, stale) {
			if q.state == waiting {
				s.leave(q)
			}
			s.finish(q)
			left = true
		}
	}
	if left {
		s.running = slices.DeleteFunc(s.running, func(q *Sequence) bool { return q.state == finished })
	}
	for _, q := range s.failed {
		if q.state != finished {
			s.Abort(q)
			d.Failed = append(d.Failed, q)
		}
	}
	s.failed = s.failed[:0]
}

// output appends a member's tokens, and says whether they were its last.
func (s *Scheduler) output(q *Sequence, m *Member, stale bool) (over bool) {
	accepted := min(m.Accepted, m.Drafts)
	if rejected := m.Drafts - accepted; !stale {
		if q.Computed > 0 {
			q.Computed -= rejected
		}
		if q.Placeholders > 0 {
			q.Placeholders -= rejected
		}
	}
	if q.Discard > 0 {
		q.Discard--
		return false
	}
	tokens := 0
	for range 1 + accepted {
		q.Tokens++
		tokens++
		if over = s.over(q); over {
			break
		}
	}
	m.Emitted = tokens
	if s.settings.Asynchronous {
		if !stale {
			q.Placeholders -= tokens
		}
		if q.state == running {
			s.cache(q, q.Computed-q.Placeholders)
		}
	}
	return over
}

func (s *Scheduler) over(q *Sequence) bool {
	output := q.Output()
	return output >= q.Max || q.Length > 0 && output >= q.Length || q.Tokens >= s.settings.MaxLength
}
