// Package signals is the registry of measurements: what each is called, in which unit, who sends it under which native name, who acts on it,
// and which question of a diagnosis it answers. signals.yaml is the only source; registry.go is generated from it.
package signals

import (
	"slices"
	"strings"
)

//go:generate go run ../internal/signalsgen

// Kind is how a signal behaves, whatever its producer declares.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
	Info      Kind = "info"
)

// Scope is what a signal is measured on.
type Scope string

// The scopes.
const (
	OfGateway Scope = "gateway"
	OfEngine  Scope = "engine"
	OfDevice  Scope = "device"
)

// Path is which of the four paths of a healthy request a signal belongs to.
type Path string

// The paths.
const (
	Request Path = "request"
	Token   Path = "token"
	GPU     Path = "gpu"
	Quality Path = "quality"
)

// Paths are the four, in the order in which they are shown.
var Paths = []Path{Request, Token, GPU, Quality}

// Add is what may be done with a signal's values across ranks and replicas.
type Add string

// What may be done.
const (
	Sum  Add = "sum"
	Mean Add = "mean"
	None Add = "none"
)

// Signal is a registered measurement.
type Signal struct {
	Name     string
	Kind     Kind
	Unit     string // UCUM
	Scope    Scope
	Path     Path
	Part     string // of a request's time that it tells of; "" = of no single one
	Owner    string
	Question string // of a diagnosis, that it answers
	Keep     string // detail or rollup
	Series   int    // how many one deployment may have
	Add      Add
	Range    *Range  // what lies outside is no value; nil = nothing is known
	Fastest  float64 // of a counter: by how much it can grow in a second at most; 0 = not known
	From     []Native
}

// Useless reports that a signal answers nothing: it is registered so that it is known, and not taken for what it looks like.
func (s *Signal) Useless() bool { return strings.HasPrefix(s.Question, "(none") }

// Range is from the least value that can be to the greatest.
type Range struct{ Least, Most float64 }

// Native is how one producer sends a signal.
type Native struct {
	Producer     string
	Name         string // of the family, without _bucket, _sum and _count
	Kind         Kind   // as it behaves at this producer; "" = as the signal
	Times        float64
	Where        map[string]string // labels it must have
	Until        string            // the first version that no longer has it; "" = it is current
	Late         bool              // it moves only when a request ends
	Note         string            // what to know when reading it
	Begins, Ends string            // of a duration: from and to which moment
}

// Match is a signal under one of its native names.
type Match struct {
	*Signal
	Native *Native
}

// All are the registered signals, in the registry's order.
func All() []Signal { return registry }

// Lookup is the signal of a name, nil where there is none.
func Lookup(name string) *Signal {
	for i := range registry {
		if registry[i].Name == name {
			return &registry[i]
		}
	}
	return nil
}

// Named are the signals that a producer sends under a native family name. Ray's dialect (ray_vllm_… for vllm:…) is understood.
func Named(producer, family string) []Match {
	return byNative[producer+"\xff"+canonical(family)]
}

// Sent is the signal that some producer sends under a native family name, nil where none does. Where it is several, their series are the most.
func Sent(family string) (most *Signal) {
	family = canonical(family)
	for i := range registry {
		for k := range registry[i].From {
			if registry[i].From[k].Name == family && (most == nil || registry[i].Series > most.Series) {
				most = &registry[i]
			}
		}
	}
	return most
}

func canonical(family string) string {
	if rest, ok := strings.CutPrefix(family, "ray_"); ok {
		for _, p := range []string{"vllm", "sglang"} {
			if name, ok := strings.CutPrefix(rest, p+"_"); ok {
				return p + ":" + name
			}
		}
	}
	return family
}

// Successor is the name that a producer's outdated family name has today, "" where there is none.
func Successor(producer, family string) string {
	for _, m := range Named(producer, family) {
		if m.Native.Until == "" {
			continue
		}
		for i := range slices.Backward(m.From) {
			if n := &m.From[i]; n.Producer == producer && n.Until == "" {
				return n.Name
			}
		}
	}
	return ""
}

var byNative = index()

func index() map[string][]Match {
	m := map[string][]Match{}
	for i := range registry {
		s := &registry[i]
		for k := range s.From {
			n := &s.From[k]
			key := n.Producer + "\xff" + n.Name
			m[key] = append(m[key], Match{s, n})
		}
	}
	return m
}
