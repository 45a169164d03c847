package scenario

import "github.com/whylate/whylate/wire"

// recorder turns whole memberships into the changes that a probe writes.
type recorder struct {
	depth     int
	iteration uint64
	members   []wire.Join // of the last decision
	full      uint64      // every so many decisions are FULL
}

func newRecorder() *recorder { return &recorder{depth: 1, full: 64} }

// decide fills in m what changed from the last membership to now.
func (r *recorder) decide(m *wire.Scheduled, now []wire.Join) error {
	r.iteration++
	m.Iteration, m.Alias = r.iteration, r.iteration
	m.Members = uint32(len(now))
	if m.Running == 0 {
		m.Running = m.Members
	}
	old := map[uint32]wire.Join{}
	for _, j := range r.members {
		old[j.Handle] = j
	}
	m.Full = r.full > 0 && r.iteration%r.full == 0
	for _, j := range now {
		m.Tokens += j.Tokens
		m.Digest ^= wire.Digest(j.Handle)
		was, member := old[j.Handle]
		delete(old, j.Handle)
		switch {
		case m.Full || !member:
			j.Kind = wire.JoinNew
			if m.Full {
				j.Kind = wire.JoinContinued
			}
			m.Joins = append(m.Joins, j)
		case was.Tokens != j.Tokens:
			m.Changes = append(m.Changes, wire.Change{Handle: j.Handle, Tokens: j.Tokens})
		}
	}
	for _, j := range r.members {
		if _, gone := old[j.Handle]; gone && !m.Full {
			m.Leaves = append(m.Leaves, j.Handle)
		}
	}
	r.members = now
	return nil
}
