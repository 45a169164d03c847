package look

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/exposition"
)

// Scene is everything that was read.
type Scene struct {
	Sources  []Source
	Tracks   []*adapter.Track   // native, all of them
	Readings []*adapter.Reading // those that are understood
	Queries  []Query            // of dashboards, to be checked against what is there

	Iterations []Iterations // statistics of TensorRT-LLM
	Traces     *genai.View  // nil where there are none
	Logs       []*Log       // of vLLM and SGLang
	Recorded   *Recorded    // what a whylate server has of requests; nil where none was asked

	Host string                        // whose loopback what was scraped may have been read over; "" = not known
	Came func(*adapter.Track) []string // by which ways a series came; nil = by the file or address that was read
	now  time.Time                     // when it is looked at; zero where that is not known

	outdone []*adapter.Reading // that say again under another name what better ones say

	invalid map[*adapter.Reading]string // readings that are no evidence, and why
	gpus    []*device                   // whom readings of GPUs are about, once they have been gathered
	engines []adapter.Who               // without ranks, likewise
}

// Source is one input and what was made of it.
type Source struct {
	Name     string   // the file's, or the address
	Target   string   // whom it speaks of, where it is one
	Kind     string   // what it was recognised as
	Problems []string // what of it could not be taken
}

// Recorded is what a whylate server tells of requests beside its series.
type Recorded struct {
	Server   string        `json:"server"` // its address
	Over     time.Duration `json:"over_ns"`
	Requests int           `json:"requests"`
	Slowest  string        `json:"slowest,omitempty"` // the request that waited longest for its first token; "" where none has one
	TTFT     int64         `json:"slowest_ttft_ns,omitempty"`
}

func (r *Recorded) String() string {
	text := fmt.Sprintf("%s of the last %s", plural(r.Requests, "request", "requests"), r.over())
	if r.Slowest != "" {
		text += fmt.Sprintf(", the longest wait for a first token %s (%s)", seconds(time.Duration(r.TTFT).Seconds()), exposition.Printable(r.Slowest, 60))
	}
	return text
}

func (r *Recorded) over() string {
	switch d := r.Over; {
	case d == time.Hour:
		return "hour"
	case d%time.Hour == 0:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return seconds(r.Over.Seconds())
}

// Iterations are what one target's statistics say of its iterations.
type Iterations struct {
	Target string
	*trtllm.Iterations
}

// Query is a query of a dashboard.
type Query struct {
	Source string
	Line   int
	Panel  string // "" where it has no name
	Text   string
}

// Of are the readings of a signal that are evidence, in a stable order.
func (s *Scene) Of(signal string) []*adapter.Reading {
	return slices.DeleteFunc(s.All(signal), func(r *adapter.Reading) bool { return s.invalid[r] != "" })
}

// All are the readings of a signal, those that are no evidence among them.
func (s *Scene) All(signal string) []*adapter.Reading {
	var rs []*adapter.Reading
	for _, r := range s.Readings {
		if r.Signal.Name == signal {
			rs = append(rs, r)
		}
	}
	return rs
}

// doubt takes a reading out of the evidence.
func (s *Scene) doubt(r *adapter.Reading, why string) {
	if s.invalid == nil {
		s.invalid = map[*adapter.Reading]string{}
	}
	s.invalid[r] = why
}

// Engines are those that readings are about, devices aside.
func (s *Scene) Engines() []adapter.Who {
	var ws []adapter.Who
	for _, r := range s.Readings {
		if w := r.Who.Engine(); r.Signal.Scope != "device" && !slices.Contains(ws, w) {
			ws = append(ws, w)
		}
	}
	slices.SortStableFunc(ws, func(a, b adapter.Who) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Rank, b.Rank))
	})
	return ws
}

// about are the readings of a signal about one engine that are evidence.
func (s *Scene) about(signal string, w adapter.Who) []*adapter.Reading {
	return slices.DeleteFunc(s.Of(signal), func(r *adapter.Reading) bool { return r.Who.Engine() != w })
}

// last is the sum of the newest values of a gauge of one engine.
func (s *Scene) last(signal string, w adapter.Who) (sum float64, ok bool) {
	for _, r := range s.about(signal, w) {
		if v, has := r.Last(); has {
			sum, ok = sum+v, true
		}
	}
	return sum, ok
}

// grown is by how much a counter of one engine grew while it was watched, and over which time (ns, 0 where it is not known).
func (s *Scene) grown(signal string, w adapter.Who) (sum float64, over int64, ok bool) {
	for _, r := range s.about(signal, w) {
		if by, o, has := r.Grown(); has {
			sum, over, ok = sum+by, max(over, o), true
		}
	}
	return sum, over, ok
}

// recent is by how much counters of one engine grew while it was watched; seen once, everything since it started.
func (s *Scene) recent(signal string, w adapter.Who) (sum float64) {
	for _, r := range s.about(signal, w) {
		if by, _, ok := r.Grown(); ok {
			sum += by
		} else if v, ok := r.Last(); ok {
			sum += v
		}
	}
	return sum
}
