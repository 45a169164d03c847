package look

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// device is a GPU, whoever speaks of it, from wherever, under whichever names.
type device struct {
	id        string // its UUID, or what stands for it
	who       adapter.Who
	owners    []string // namespace/pod
	instances []instance
	readings  []*adapter.Reading
	merged    map[[2]string][]adapter.Point // series, by signal and instance
}

// instance is a part of a partitioned GPU.
type instance struct {
	name   string // its profile and id
	owner  string
	slices float64 // of compute; 0 where its profile is not known
}

// devices are the GPUs that readings are about, in the order of their hosts and indices.
func (s *Scene) devices() []*device {
	if s.gpus == nil {
		s.gpus = s.gather()
	}
	return s.gpus
}

func (s *Scene) gather() []*device {
	ds := []*device{}
	byID := map[string]*device{}
	exporters := s.exporterPods()
	for _, r := range s.Readings {
		w := r.Who
		if w.Device == "" {
			continue
		}
		d := byID[w.Device]
		if d == nil {
			d = &device{id: w.Device, who: adapter.Who{Producer: w.Producer, Target: w.Target, Device: w.Device}}
			byID[w.Device] = d
			ds = append(ds, d)
		}
		d.readings = append(d.readings, r)
		d.who.Index, d.who.Node = cmp.Or(d.who.Index, w.Index), cmp.Or(d.who.Node, w.Node)
		if exporters[r.Target+" "+w.Workload] {
			w.Workload = ""
		}
		d.owners = with(d.owners, w.Workload)
		d.instance(w)
	}
	slices.SortStableFunc(ds, func(a, b *device) int {
		i, _ := strconv.Atoi(a.who.Index)
		j, _ := strconv.Atoi(b.who.Index)
		return cmp.Or(behind(identified(a), identified(b)), cmp.Compare(a.who.Node, b.who.Node), cmp.Compare(i, j), cmp.Compare(a.id, b.id))
	})
	for _, d := range ds {
		slices.SortStableFunc(d.instances, func(a, b instance) int {
			return cmp.Or(cmp.Compare(b.slices, a.slices), cmp.Compare(a.name, b.name))
		})
	}
	return ds
}

// behind puts what is not so behind what is.
func behind(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// exporterPods are the pods that some series of a target name beside the true owner: elsewhere on that target they are no owner either.
func (s *Scene) exporterPods() map[string]bool {
	pods := map[string]bool{}
	for _, r := range s.Readings {
		if r.Who.Device != "" && r.Labels.Get("exported_pod") != "" {
			pods[r.Target+" "+adapter.Workload(r.Labels.Without("exported_pod"))] = true
		}
	}
	return pods
}

func (d *device) instance(w adapter.Who) {
	if w.Slice == "" {
		return
	}
	i := slices.IndexFunc(d.instances, func(i instance) bool { return i.name == w.Slice })
	if i < 0 {
		i = len(d.instances)
		d.instances = append(d.instances, instance{name: w.Slice, slices: computeSlices(w.Slice)})
	}
	d.instances[i].owner = cmp.Or(d.instances[i].owner, w.Workload)
}

// computeSlices are those of a profile: 3 of 3g.40gb, 1 of 1c.3g.40gb.
func computeSlices(profile string) float64 {
	for _, part := range strings.Split(profile, ".") {
		if n, ok := strings.CutSuffix(part, "c"); ok {
			if v, err := strconv.Atoi(n); err == nil {
				return float64(v)
			}
		}
		if n, ok := strings.CutSuffix(part, "g"); ok {
			v, _ := strconv.Atoi(n)
			return float64(v)
		}
	}
	return 0
}

func (d *device) String() string { return d.who.String() }

// withID is a device's name and its identity, where it has one that the name does not give.
func (d *device) withID() string {
	if name := d.String(); !identified(d) || strings.Contains(name, d.id) {
		return name
	}
	return d.String() + " (" + exposition.Printable(d.id, 60) + ")"
}

// from reports whether a producer speaks of a device.
func (d *device) from(producer string) bool {
	return slices.ContainsFunc(d.readings, func(r *adapter.Reading) bool { return r.Who.Producer == producer })
}

// owner is whom a device works for, "" where nobody or more than one is named.
func (d *device) owner() string {
	if len(d.owners) == 1 {
		return d.owners[0]
	}
	return ""
}

// of are a device's readings of a signal that are evidence; of an instance, or "" for the whole device.
func (d *device) of(s *Scene, signal, instance string) (rs []*adapter.Reading) {
	for _, r := range d.readings {
		if r.Signal.Name == signal && r.Who.Slice == instance && s.invalid[r] == "" {
			rs = append(rs, r)
		}
	}
	return rs
}

// series are the values of a signal of a device in order, as one, whoever sends it under whichever name: a name that is outdated comes before
// its successor where no time tells. Of several values at one time from one place the greatest counts: lines repeat a board's value for each of
// its users, or give each user a part of it.
func (d *device) series(s *Scene, signal, instance string) []adapter.Point {
	key := [2]string{signal, instance}
	points, ok := d.merged[key]
	if !ok {
		points = merge(d.of(s, signal, instance))
		if d.merged == nil {
			d.merged = map[[2]string][]adapter.Point{}
		}
		d.merged[key] = points
	}
	return points
}

func merge(rs []*adapter.Reading) (points []adapter.Point) {
	inTime := func(a, b adapter.Point) int { return cmp.Compare(a.At, b.At) }
	if len(rs) == 1 && slices.IsSortedFunc(rs[0].Points, inTime) {
		return rs[0].Points
	}
	slices.SortStableFunc(rs, func(a, b *adapter.Reading) int {
		return cmp.Or(cmp.Compare(outdated(b), outdated(a)), cmp.Compare(a.Target, b.Target))
	})
	timed := slices.ContainsFunc(rs, func(r *adapter.Reading) bool { return len(r.Points) > 0 && r.Points[0].At != 0 })
	type place struct {
		target string
		at     int64
		k      int // among samples without a time
	}
	seen := map[place]int{}
	for _, r := range rs {
		for k, p := range r.Points {
			if timed && p.At == 0 { // where it belongs is not known
				continue
			}
			at := place{r.Target, p.At, 0}
			if p.At == 0 {
				at.k = k
			}
			if i, ok := seen[at]; ok {
				points[i].Value = max(points[i].Value, p.Value)
				continue
			}
			seen[at] = len(points)
			points = append(points, p)
		}
	}
	slices.SortStableFunc(points, inTime)
	return points
}

func outdated(r *adapter.Reading) int {
	if r.Native.Until != "" {
		return 1
	}
	return 0
}

// last is the newest value of a signal of a device.
func (d *device) last(s *Scene, signal, instance string) (float64, bool) {
	ps := d.series(s, signal, instance)
	if len(ps) == 0 {
		return 0, false
	}
	return ps[len(ps)-1].Value, true
}

// interval is the time between two samples of a device, the longest where its signals differ; 0 where it is not known.
func (d *device) interval() (every time.Duration) {
	for _, r := range d.readings {
		every = max(every, r.Every)
	}
	return every
}

// sampled says how often a device was read: no claim about it is finer than that.
func (d *device) sampled() string {
	if every := d.interval(); every > 0 {
		return "a sample every " + seconds(every.Seconds()) + d.refreshed(every)
	}
	for _, r := range d.readings {
		if len(r.Points) > 1 {
			return "samples at unknown times"
		}
	}
	return "one sample, of unknown age"
}

// refreshed says that an exporter is read more often than it reads. Power tells: no two true readings of it are equal for long.
func (d *device) refreshed(every time.Duration) string {
	for _, r := range d.readings {
		if r.Signal.Name != "gpu.power" || len(r.Points) < 4 {
			continue
		}
		changes := 0
		for i := 1; i < len(r.Points); i++ {
			if r.Points[i].Value != r.Points[i-1].Value {
				changes++
			}
		}
		over := time.Duration(r.Points[len(r.Points)-1].At - r.Points[0].At)
		switch {
		case changes == 0:
			return ", in which nothing was new: the exporter reads less often"
		case over/time.Duration(changes) > every*3/2:
			return ", something new about every " + seconds((over / time.Duration(changes)).Seconds())
		}
	}
	return ""
}

// extent is the least and the greatest of points.
func extent(ps []adapter.Point) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range ps {
		low, high = min(low, p.Value), max(high, p.Value)
	}
	return low, high
}

func mean(ps []adapter.Point) (m float64) {
	for _, p := range ps {
		m += p.Value / float64(len(ps))
	}
	return m
}

// timeOf is a time of day in UTC.
func timeOf(at int64) string {
	if !dated(at) { // counted from the first scrape on
		return seconds(float64(at)/1e9) + " on the scrapes' own clock"
	}
	return time.Unix(0, at).UTC().Format("15:04:05 UTC")
}

// How an engine and a GPU are joined.
const (
	byPod  = "by namespace and pod"
	byName = "by the pod's name alone, so only likely"
	bySole = "only likely: no other engine and no other owner of a GPU was read"
)

// engineOf is the engine of an owner of GPUs, and how that is known.
func (s *Scene) engineOf(owner string) (w adapter.Who, how string, ok bool) {
	var named []adapter.Who
	engines := s.whole()
	for _, e := range engines {
		switch {
		case owner != "" && e.Workload == owner:
			return e, byPod, true
		case samePod(owner, e.Workload):
			named = append(named, e)
		}
	}
	switch {
	case len(named) == 1:
		return named[0], byName, true
	case len(engines) != 1 || engines[0].Workload != "" && owner != "":
		return w, "", false
	}
	for _, d := range s.devices() {
		if len(d.owners) > 1 || len(d.owners) == 1 && owner != "" && d.owners[0] != owner {
			return w, "", false
		}
	}
	return engines[0], bySole, true
}

// whole are the engines with all their ranks as one; gateways work on no GPU.
func (s *Scene) whole() []adapter.Who {
	if s.engines == nil {
		for _, e := range s.Engines() {
			e.Rank = ""
			if !dialects.IsGateway(e) && !slices.Contains(s.engines, e) {
				s.engines = append(s.engines, e)
			}
		}
	}
	return s.engines
}

// samePod reports whether two names are of one pod as far as they go: one of them lacks the namespace.
func samePod(a, b string) bool {
	return a != "" && b != "" && strings.Contains(a, "/") != strings.Contains(b, "/") && a[strings.Index(a, "/")+1:] == b[strings.Index(b, "/")+1:]
}

func isDevice(r *adapter.Reading) bool { return r.Signal.Scope == signals.OfDevice }

// identified are devices that are known by more than an index in some text.
func identified(d *device) bool {
	return dcgm.Identified(d.who)
}
