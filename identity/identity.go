// Package identity finds which things of several sources are one and the same: the engine that a probe calls by its incarnation, a scraper by
// an address, a trace by its pod. What is shared by more than one thing of a source joins nothing; what only suggests itself is said to be likely.
package identity

import (
	"cmp"
	"slices"
)

// Kind is what a thing is.
type Kind string

// Kinds.
const (
	Engine  Kind = "engine" // all ranks of one replica
	Gateway Kind = "gateway"
	Device  Kind = "device"
)

// Attr is what a thing says of itself.
type Attr string

// Attributes. The first few name one thing wherever they come from; the others do so only where nothing else on either side has the same.
const (
	Incarnation Attr = "incarnation" // one start of an engine
	UUID        Attr = "uuid"        // of a GPU
	Instance    Attr = "instance"    // service.instance.id
	Process     Attr = "process"     // host and process id
	Address     Attr = "address"     // host:port, not of the loopback
	Pod         Attr = "pod"         // namespace/pod

	Told    Attr = "told"     // somebody who knows said so
	PodName Attr = "pod name" // without its namespace, or a host that is called like a pod
	Host    Attr = "host"     // without its domain
	Model   Attr = "model"    // as served
)

// certain are the attributes that name one thing, the most telling first.
var certain = []Attr{Incarnation, UUID, Instance, Process, Address, Pod}

// likely are those that suggest one.
var likely = []Attr{PodName, Host, Model}

// Said is one value that a source gives, and the label, attribute or field that it stood in.
type Said struct {
	Attr  Attr   `json:"attribute"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// Thing is what one source calls something.
type Thing struct {
	Kind   Kind   `json:"kind"`
	Source string `json:"source"` // who speaks: probe, scrape, otlp, gpu, …
	Name   string `json:"name"`   // unique in the source
	Says   []Said `json:"says"`
	Target string `json:"target,omitempty"` // of a source of metrics: where it was read
}

// Value is what a thing says of itself, "" where it does not.
func (t *Thing) Value(a Attr) (said Said) {
	for _, s := range t.Says {
		if s.Attr == a {
			return s
		}
	}
	return Said{}
}

// Link is why two things are one, or why a device is an engine's.
type Link struct {
	A        int    `json:"a"` // index of a thing
	B        int    `json:"b"`
	Attr     Attr   `json:"attribute"`
	Value    string `json:"value"`
	Certain  bool   `json:"certain"`
	FromA    string `json:"from_a"`
	FromB    string `json:"from_b"`
	WorksOn  bool   `json:"works_on,omitempty"` // A is an engine, B a device that its pod or process was given
	Disagree Attr   `json:"disagree,omitempty"` // what they say differently all the same
}

// Loose is a thing that is joined with nothing of another source, and why.
type Loose struct {
	Thing int    `json:"thing"`
	Why   string `json:"why"`
}

// Joined is what became of all things.
type Joined struct {
	Things []Thing  `json:"things"`
	Groups [][]int  `json:"groups"` // things that are one, each with two or more
	Links  []Link   `json:"links"`
	Loose  []Loose  `json:"loose"`
	Notes  []string `json:"notes,omitempty"` // aliases that name nothing, or nothing certain
}

// Join joins things: first those that somebody has told to be one, then by what they say. The result does not depend on their order; indices are
// those of Joined.Things.
func Join(things []Thing, told ...Alias) *Joined {
	j := &joiner{Joined: Joined{Things: slices.Clone(things)}}
	slices.SortStableFunc(j.Things, func(a, b Thing) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name))
	})
	j.group = make([]int, len(j.Things))
	for i := range j.group {
		j.group[i] = i
	}
	for _, a := range told {
		j.told(a)
	}
	for _, a := range certain {
		j.by(a, true)
	}
	for _, a := range likely {
		j.by(a, false)
	}
	j.owners()
	j.finish()
	return &j.Joined
}
