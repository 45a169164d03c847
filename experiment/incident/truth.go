package incident

import (
	"encoding/json"
	"time"
)

// Truth is the content of truth.json (DESIGN §6a): what really happened.
type Truth struct {
	Incident    string        `json:"incident"`
	Mechanism   string        `json:"mechanism"` // M01 … M33; none of a twin, a sham or a fault of telemetry
	Culprits    []Culprit     `json:"culprits"`
	Onset       int64         `json:"onset_ns"` // Unix ns
	End         int64         `json:"end_ns"`
	Severity    float64       `json:"severity"`
	Moved       []Movement    `json:"moved"`
	MustNotMove []string      `json:"must_not_move"`
	Cure        *Intervention `json:"cure,omitempty"`
	TwinOf      string        `json:"twin_of,omitempty"`
	Telemetry   bool          `json:"telemetry,omitempty"` // the service is healthy, the evidence is not
	Sham        bool          `json:"sham,omitempty"`      // played without the fault
	Seed        uint64        `json:"seed"`
	Engine      string        `json:"engine"` // where its times come from
}

// None is the mechanism where there is nothing to find.
const None = "none"

// Culprit is who or what it was. Kinds: class (of requests), replica, engine (replica/rank), device (UUID), source (of records).
type Culprit struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// Movement is a signal and the way that it moves.
type Movement struct {
	Signal string `json:"signal"`
	Way    Way    `json:"way"`
}

// Way is up or down.
type Way string

// The ways.
const (
	Up   Way = "up"
	Down Way = "down"
)

func up(signals ...string) []Movement   { return moves(Up, signals) }
func down(signals ...string) []Movement { return moves(Down, signals) }

func moves(w Way, signals []string) (m []Movement) {
	for _, s := range signals {
		m = append(m, Movement{s, w})
	}
	return m
}

// Intervention is one change of a service that an experiment can make.
type Intervention struct {
	Kind    string `json:"kind"`    // setting, load, route, device, host, client, telemetry
	Subject string `json:"subject"` // what is changed
	To      string `json:"to"`
	Text    string `json:"text"` // one sentence
}

// JSON is the content of truth.json.
func (t *Truth) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(t, "", "  ")
	return append(text, '\n'), err
}

// truth is what is known of a play before it begins.
func (s *stage) truth(i *Incident) Truth {
	begin := s.Begin.UnixNano()
	t := Truth{Incident: i.Name, Mechanism: i.Mechanism, Culprits: s.culprits, Onset: begin + int64(s.Onset), End: begin + int64(s.end()), Severity: s.Severity,
		Moved: i.Moves, MustNotMove: i.Keeps, Cure: i.Cure, TwinOf: i.TwinOf, Telemetry: i.Telemetry(), Sham: s.Sham, Seed: s.Seed, Engine: s.engine.Name}
	if t.Mechanism == "" || s.Sham {
		t.Mechanism = None
	}
	if s.Sham {
		t.Culprits, t.Moved, t.Cure = nil, nil, nil
	}
	if t.Culprits == nil {
		t.Culprits = []Culprit{}
	}
	if t.Moved == nil {
		t.Moved = []Movement{}
	}
	if t.MustNotMove == nil {
		t.MustNotMove = []string{}
	}
	return t
}

// begins is when a run begins unless it is said otherwise.
var begins = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
