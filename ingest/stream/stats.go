package stream

import (
	"maps"
	"sync"
	"time"
)

// Stats is what a server has seen since it began, and who is connected.
type Stats struct {
	Connections uint64            // accepted by the operating system
	Open        int               // now, strangers included
	Refused     map[Code]uint64   // connections and sources, by reason
	LastRefused map[Code]Incident // the latest of each reason
	Frames      uint64            // handed on and durable
	Duplicates  uint64            // frames and gaps that were durable already
	Gaps        uint64            // handed on and durable
	Bytes       uint64            // of messages, as they came over the network
	RawBytes    uint64            // of frames, unpacked
	Busy        uint64            // answers *busy, try again*
	Unknown     uint64            // messages of a kind that this version does not know; they are skipped
	Queued      int64             // bytes waiting now to be made durable
	Agents      []AgentStats      // connected now, by host
}

// Incident is one refusal.
type Incident struct {
	At     time.Time
	Remote string   // address
	Agent  Identity // if it had said who it is
	What   string
	Remedy string
}

// AgentStats is one connection.
type AgentStats struct {
	Identity
	Remote  string
	Since   time.Time
	Last    time.Time // its last message
	Sources int       // open now
	Frames  uint64
	Ahead   time.Duration // of its clock over the server's when it connected, the way of the message included
}

// tally counts, for all connections.
type tally struct {
	sync.Mutex
	Stats
}

func (t *tally) refuse(i Incident, r *Refusal) {
	t.Lock()
	defer t.Unlock()
	if t.Refused == nil {
		t.Refused, t.LastRefused = map[Code]uint64{}, map[Code]Incident{}
	}
	i.What, i.Remedy = r.What, r.Remedy
	t.Refused[r.Code]++
	t.LastRefused[r.Code] = i
}

func (t *tally) add(f func(*Stats)) {
	t.Lock()
	f(&t.Stats)
	t.Unlock()
}

func (t *tally) copy() Stats {
	t.Lock()
	defer t.Unlock()
	s := t.Stats
	s.Refused, s.LastRefused = maps.Clone(t.Refused), maps.Clone(t.LastRefused)
	return s
}
