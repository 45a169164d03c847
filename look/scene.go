package look

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/signals"
)

// Scene is everything that was read.
type Scene struct {
	Sources  []Source
	Tracks   []*adapter.Track   // native, all of them
	Readings []*adapter.Reading // those that are understood
	Queries  []Query            // of dashboards, to be checked against what is there

	Iterations []Iterations     // statistics of TensorRT-LLM
	Passes     []*dynamo.Stream // forward-pass metrics, by target and rank
	Traces     *genai.View      // nil where there are none
	Logs       []*Log           // of vLLM and SGLang
	Bundles    []Bundle         // that inputs lay in, as far as they have a manifest
	Recorded   *Recorded        // what a whylate server has of requests; nil where none was asked

	Ledger   *query.Ledger   // of captures; nil where there are none
	captures []string        // the paths that captures were given by, as the other commands want them
	told     []ledger.Change // by changes.jsonl

	objectives Objectives

	Host string                        // whose loopback what was scraped may have been read over; "" = not known
	Came func(*adapter.Track) []string // by which ways a series came; nil = by the file or address that was read
	now  time.Time                     // when it is looked at; zero where that is not known

	outdone []*adapter.Reading // that say again under another name what better ones say

	invalid map[*adapter.Reading]string // readings that are no evidence, and why
	asked   int64                       // up to when a Prometheus was asked for its history (Unix ns); 0 = none was
	silent  []string                    // targets of engines that are not seen any more
	gpus    []*device                   // whom readings of GPUs are about, once they have been gathered
	engines []adapter.Who               // without ranks, likewise
	indexed *index                      // of Readings, likewise
}

// Source is one input and what was made of it.
type Source struct {
	Name     string   `json:"name"`               // the file's, or the address
	Target   string   `json:"target,omitempty"`   // whom it speaks of, where it is one
	Kind     string   `json:"kind"`               // what it was recognised as
	Problems []string `json:"problems,omitempty"` // what of it could not be taken

	from string // the path that was given, in which it lies
}

// Bundle is a run bundle with a manifest.
type Bundle struct {
	Name     string
	path     string // that was given
	Manifest *bundle.Manifest
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
func (s *Scene) Of(signal string) []*adapter.Reading { return s.evidence(s.index().of[signal]) }

// All are the readings of a signal, those that are no evidence among them.
func (s *Scene) All(signal string) []*adapter.Reading { return s.index().of[signal] }

// Engines are those that readings are about, devices aside.
func (s *Scene) Engines() []adapter.Who { return s.index().engines }

// about are the readings of a signal about one engine that are evidence.
func (s *Scene) about(signal string, w adapter.Who) []*adapter.Reading {
	return s.evidence(s.index().about[subject{signal, w}])
}

// index finds readings by what is asked for: a hundred engines are a hundred thousand questions.
type index struct {
	engines []adapter.Who
	of      map[string][]*adapter.Reading
	about   map[subject][]*adapter.Reading
	tracks  map[[2]string][]*adapter.Track // by target and family
}

// subject is a signal of an engine.
type subject struct {
	signal string
	engine adapter.Who
}

// index is that of the readings, which are all there when the first one is asked for.
func (s *Scene) index() *index {
	if s.indexed != nil {
		return s.indexed
	}
	x := &index{of: map[string][]*adapter.Reading{}, about: map[subject][]*adapter.Reading{}, tracks: map[[2]string][]*adapter.Track{}}
	engines := map[adapter.Who]bool{}
	for _, r := range s.Readings {
		k := subject{r.Signal.Name, r.Who.Engine()}
		x.of[k.signal], x.about[k] = append(x.of[k.signal], r), append(x.about[k], r)
		if !isDevice(r) {
			engines[k.engine] = true
		}
	}
	for _, t := range s.Tracks {
		k := [2]string{t.Target, t.Family}
		x.tracks[k] = append(x.tracks[k], t)
	}
	x.engines = slices.SortedFunc(maps.Keys(engines), adapter.Who.Compare)
	s.indexed = x
	return x
}

// family are the series of a family of a target.
func (s *Scene) family(target, family string) []*adapter.Track {
	return s.index().tracks[[2]string{target, family}]
}

// evidence leaves out what is none. What it gives is for reading only.
func (s *Scene) evidence(rs []*adapter.Reading) []*adapter.Reading {
	if len(s.invalid) == 0 || !slices.ContainsFunc(rs, s.doubted) {
		return rs
	}
	return slices.DeleteFunc(slices.Clone(rs), s.doubted)
}

func (s *Scene) doubted(r *adapter.Reading) bool { return s.invalid[r] != "" }

// doubt takes a reading out of the evidence.
func (s *Scene) doubt(r *adapter.Reading, why string) {
	if s.invalid == nil {
		s.invalid = map[*adapter.Reading]string{}
	}
	s.invalid[r] = why
}

// last is the newest value of a gauge of one engine: of several series their sum, or the greatest where adding them up means nothing.
func (s *Scene) last(signal string, w adapter.Who) (of float64, ok bool) {
	for _, r := range s.about(signal, w) {
		v, has := r.Last()
		switch {
		case !has:
		case !ok || r.Signal.Add == signals.Sum:
			of, ok = of+v, true
		default:
			of = max(of, v)
		}
	}
	return of, ok
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

// late reports whether a signal of an engine moves only when a request ends: that it stands still says nothing.
func (s *Scene) late(signal string, w adapter.Who) bool {
	return slices.ContainsFunc(s.about(signal, w), func(r *adapter.Reading) bool { return r.Native.Late })
}

// recent is by how much counters of one engine grew while it was watched; seen once, everything since it started.
func (s *Scene) recent(signal string, w adapter.Who) (sum float64) {
	for _, r := range s.about(signal, w) {
		sum += since(r)
	}
	return sum
}
