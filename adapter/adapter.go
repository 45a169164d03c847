// Package adapter is the contract of what turns one producer's dialect into registered signals: who speaks, about what, in which unit, and
// which of its values are none.
package adapter

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// Track is one native series over time, as it was read.
type Track struct {
	Target string // where it was read: an address, an instance, a file
	Family string // native, without _bucket, _sum and _count
	Type   exposition.Type
	Labels exposition.Labels
	Rate   bool        // its points are a counter's growth a second already
	Points []Point     // of everything but histograms, in order
	Hists  []HistPoint // of a histogram, in order
	NaN    int         // samples that were no number; they are not among Points
	Order  []int32     // of each of Points, which of its target's scrapes it came in, from 1; nil where times tell
	Series int         // of a store, that it is made of: a histogram is many; 0 = as many as its buckets tell
}

// Point is a value at a time.
type Point struct {
	At    int64   // Unix ns; 0 where the source does not say
	Value float64 // NaN where what stood there is no number
	Text  string  // as it stood, where the value does not say it: from 2⁵³ on, or NaN; else ""
}

// HistPoint is a histogram's state at a time.
type HistPoint struct {
	At int64 // Unix ns; 0 where the source does not say
	exposition.Hist
}

// Who is what a measurement is about. What the producer does not say is "".
type Who struct {
	Producer string // vllm, sglang, dcgm, …
	Target   string
	Model    string // as served, byte for byte
	Rank     string // data-parallel
	Role     string // prefill or decode where they are apart
	Node     string
	Workload string // namespace/pod that owns it
	Device   string // UUID of a GPU; else its node and address; else where it was read, and index
	Index    string // of a GPU on its node: a name, no identity, for every node has a 0
	Slice    string // instance of a partitioned GPU
}

// Engine is who without what distinguishes devices.
func (w Who) Engine() Who {
	w.Device, w.Index, w.Slice = "", "", ""
	return w
}

// Compare puts who in order: producers apart, then targets, models and ranks.
func (w Who) Compare(o Who) int {
	return cmp.Or(cmp.Compare(w.Producer, o.Producer), cmp.Compare(w.Target, o.Target), cmp.Compare(w.Model, o.Model), cmp.Compare(w.Rank, o.Rank), cmp.Compare(w.Role, o.Role),
		cmp.Compare(w.Node, o.Node), cmp.Compare(w.Workload, o.Workload), cmp.Compare(w.Device, o.Device), cmp.Compare(w.Index, o.Index), cmp.Compare(w.Slice, o.Slice))
}

// String is a short name for tables and sentences.
func (w Who) String() string {
	if w.Device != "" {
		return w.device()
	}
	name := cmp.Or(exposition.Printable(w.Model, 60), Title(w.Producer))
	if w.Target != "" {
		name += " on " + exposition.Printable(w.Target, 60)
	}
	if w.Role != "" {
		name += " " + w.Role
	}
	if w.Rank != "" {
		name += " rank " + w.Rank
	}
	return name
}

var titles = map[string]string{"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "tgi": "TGI", "llamacpp": "llama.cpp", "dynamo": "Dynamo", "litellm": "LiteLLM", "envoy": "Envoy", "triton": "Triton", "lmdeploy": "LMDeploy", "amd": "AMD's exporter", "epp": "the endpoint picker", "dcgm": "DCGM", "genai": "GenAI instrumentation"}

// Title is how people call a producer.
func Title(producer string) string { return cmp.Or(titles[producer], producer) }

func (w Who) device() string {
	name := "GPU " + exposition.Printable(cmp.Or(w.Index, w.Device), 60)
	switch {
	case w.Index == "":
	case w.Node != "":
		name += " of " + exposition.Printable(w.Node, 60)
	case strings.HasPrefix(w.Device, w.Target): // it has no identity
		name += " in " + exposition.Printable(w.Target, 60)
	default:
		name += " (" + exposition.Printable(w.Device, 60) + ")"
	}
	if w.Slice != "" {
		name += " instance " + exposition.Printable(w.Slice, 60)
	}
	return name
}

// Reading is a track that is understood: points and histograms in the signal's unit, without the values that are none.
type Reading struct {
	Track
	Signal  *signals.Signal
	Native  *signals.Native
	Who     Who
	Unknown map[string]int // why samples are no values, and how many
	Every   time.Duration  // between two samples as they were read, the middle one; 0 where it is not known
}

// Adapter understands one producer.
type Adapter struct {
	Producer string
	// Gateway says that it stands before engines: the requests that it counts are theirs again.
	Gateway bool
	// Owns reports whether a family is this producer's.
	Owns func(family string) bool
	// Who tells what a track is about; its Producer and Target are filled in already.
	Who func(t *Track, w *Who)
	// Workers are labels of the workers of one engine, each of which may export what the others say too: the first one speaks. May be nil.
	Workers []string
	// Twin reports that a track says nothing of its own: it is a part of what another series of the same engine says as a whole, or it is somebody
	// else's under the same name. May be nil.
	Twin func(t *Track) bool
	// Value is a native value without a producer's ways of saying that there is none; a reason says so. Nil: all are values.
	Value func(t *Track, p Point) (value float64, unknown string)
}

// Read are the readings of a track, none where it is not registered: one native series may serve several signals.
func (a *Adapter) Read(t *Track) []*Reading {
	if a.Twin != nil && a.Twin(t) {
		return nil
	}
	var rs []*Reading
	for _, m := range signals.Named(a.Producer, t.Family) {
		if !has(t.Labels, m.Native.Where) {
			continue
		}
		r := &Reading{Track: *t, Signal: m.Signal, Native: m.Native, Who: Who{Producer: a.Producer, Target: t.Target}}
		if a.Who != nil {
			a.Who(t, &r.Who)
		}
		r.Every = Interval(t.Points)
		a.values(r, t)
		rs = append(rs, r)
	}
	return rs
}

// Repeats are tracks of an adapter's families that repeat what the first worker of the same engine says.
func (a *Adapter) Repeats(ts []*Track) map[*Track]bool {
	first := map[string]*Track{}
	repeats := map[*Track]bool{}
	for _, t := range ts {
		if !slices.ContainsFunc(t.Labels, func(l exposition.Label) bool { return slices.Contains(a.Workers, l.Name) }) || !a.Owns(t.Family) {
			continue
		}
		key := t.Target + "\xff" + t.Family + "\xff" + t.Labels.Without(a.Workers...).Key()
		switch f := first[key]; {
		case f == nil:
			first[key] = t
		case a.before(t, f):
			first[key], repeats[f] = t, true
		default:
			repeats[t] = true
		}
	}
	return repeats
}

// before reports whether a track's worker comes before another's.
func (a *Adapter) before(t, other *Track) bool {
	for _, name := range a.Workers {
		i, _ := strconv.Atoi(t.Labels.Get(name))
		j, _ := strconv.Atoi(other.Labels.Get(name))
		if i != j {
			return i < j
		}
	}
	return false
}

// Interval is the time between two points, the middle one of all; 0 where it is not known.
func Interval(points []Point) time.Duration {
	var gaps []int64
	for i := 1; i < len(points); i++ {
		if gap := points[i].At - points[i-1].At; gap > 0 && points[i-1].At != 0 {
			gaps = append(gaps, gap)
		}
	}
	if len(gaps) == 0 {
		return 0
	}
	slices.Sort(gaps)
	return time.Duration(gaps[len(gaps)/2])
}

func (a *Adapter) values(r *Reading, t *Track) {
	r.Points = nil
	if n := r.NaN; n > 0 {
		r.unknown("not a number", n)
	}
	for _, p := range t.Points {
		value, why := p.Value, ""
		if a.Value != nil {
			value, why = a.Value(t, p)
		}
		if why == "" {
			why = r.impossible(value)
		}
		if why != "" {
			r.unknown(why, 1)
			continue
		}
		r.Points = append(r.Points, Point{p.At, value * r.Native.Times, p.Text})
	}
	if r.Native.Times == 1 {
		return
	}
	r.Hists = slices.Clone(r.Track.Hists)
	for i := range r.Hists {
		h := &r.Hists[i]
		h.Bounds = slices.Clone(h.Bounds)
		for k := range h.Bounds {
			h.Bounds[k] *= r.Native.Times
		}
		h.Sum *= r.Native.Times
	}
}

// impossible says why a native value is none, whoever sends it.
func (r *Reading) impossible(value float64) string {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return "not a number"
	}
	if g := r.Signal.Range; g != nil && (value*r.Native.Times < g.Least || value*r.Native.Times > g.Most) {
		return fmt.Sprintf("corrupt (outside %.4g to %.4g)", g.Least/r.Native.Times, g.Most/r.Native.Times)
	}
	return ""
}

func (r *Reading) unknown(why string, n int) {
	if r.Unknown == nil {
		r.Unknown = map[string]int{}
	}
	r.Unknown[why] += n
}

// Reasons are why samples are no values, in order.
func (r *Reading) Reasons() []string { return slices.Sorted(maps.Keys(r.Unknown)) }

// Last is the newest value; false where there is none.
func (r *Reading) Last() (float64, bool) {
	if len(r.Points) == 0 || r.Rate {
		return 0, false
	}
	return r.Points[len(r.Points)-1].Value, true
}

// Observed is what a histogram observed between the first sight and the last, and whether it is that: of a single sight it is everything since
// its producer started.
func (r *Reading) Observed() (h exposition.Hist, window bool) {
	switch n := len(r.Hists); n {
	case 0:
		return exposition.Hist{}, false
	case 1:
		return r.Hists[0].Hist, false
	}
	h, _ = r.Hists[1].Since(&r.Hists[0].Hist)
	for i := 2; i < len(r.Hists); i++ {
		d, _ := r.Hists[i].Since(&r.Hists[i-1].Hist)
		h = h.Plus(&d)
	}
	return h, true
}

func has(ls exposition.Labels, where map[string]string) bool {
	for name, value := range where {
		if ls.Get(name) != value {
			return false
		}
	}
	return true
}

// Best leaves of readings that say the same signal of the same engine under several names only those under the best one: a current name
// before an outdated one, one that is live before one that moves when requests end, a later one in the registry before an earlier one. Devices'
// stay: their history goes on from one name to the next.
func Best(rs []*Reading) []*Reading {
	type key struct {
		who    Who
		signal string
	}
	best := map[key]*signals.Native{}
	for _, r := range rs {
		k := key{r.Who, r.Signal.Name}
		if b := best[k]; b == nil || better(r.Signal, r.Native, b) {
			best[k] = r.Native
		}
	}
	return slices.DeleteFunc(rs, func(r *Reading) bool {
		return r.Signal.Scope != signals.OfDevice && best[key{r.Who, r.Signal.Name}] != r.Native
	})
}

func better(s *signals.Signal, a, b *signals.Native) bool {
	place := func(n *signals.Native) int {
		return slices.IndexFunc(s.From, func(f signals.Native) bool {
			return f.Producer == n.Producer && f.Name == n.Name && maps.Equal(f.Where, n.Where)
		})
	}
	switch {
	case (a.Until == "") != (b.Until == ""):
		return a.Until == ""
	case a.Late != b.Late:
		return !a.Late
	}
	return place(a) > place(b)
}

// Prefixed owns every family with one of these prefixes.
func Prefixed(prefixes ...string) func(string) bool {
	return func(family string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(family, p) })
	}
}
