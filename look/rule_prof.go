package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
)

// activity are the signals of the profiling module; they fail together.
var activity = []string{"gpu.sm_active", "gpu.tensor_active", "gpu.dram_active", "gpu.engine_active", "gpu.sm_occupancy"}

const (
	surely   = 3   // samples in a row that are no chance
	busyUtil = 0.5 // share of the time with a kernel from which a GPU is at work
	busyDraw = 200 // W that no board draws while it idles
)

// profInvalid finds profiling values that stand at exactly 0 while everything else says that the GPU works: the module has failed, the GPU
// does not idle.
func profInvalid(s *Scene) (facts []Fact) {
	for _, d := range s.devices() {
		if z, ok := d.zeros(s); ok {
			facts = append(facts, z.fact(s, d))
		}
	}
	return facts
}

// zeros are samples in a row in which all activity is exactly 0.
type zeros struct {
	signals []string
	n       int
	from    int64 // ns; 0 where no time is known
	to      int64
	work    []string // what says that the GPU worked
}

func (d *device) zeros(s *Scene) (z zeros, ok bool) {
	var of [][]adapter.Point
	for _, signal := range activity {
		if ps := d.series(s, signal, ""); len(ps) > 0 {
			of, z.signals = append(of, ps), append(z.signals, signal)
		}
	}
	if !slices.Contains(z.signals, "gpu.sm_active") && !slices.Contains(z.signals, "gpu.engine_active") {
		return z, false // the tensor cores, or the memory, may rest while a kernel runs
	}
	first, last, best := 0, -1, 0
	for i := 0; i < len(of[0]); i++ {
		from := i
		for i < len(of[0]) && allZero(of, i) {
			i++
		}
		if i-from > best {
			first, last, best = from, i-1, i-from
		}
	}
	if best == 0 || best < surely && len(of[0]) > best {
		return z, false
	}
	z.n, z.from, z.to = best, of[0][first].At, of[0][last].At
	z.work = d.work(s, z.from, z.to)
	return z, len(z.work) > 0
}

func allZero(of [][]adapter.Point, i int) bool {
	at := of[0][i].At
	for _, ps := range of {
		k := i
		if at != 0 {
			k, _ = slices.BinarySearchFunc(ps, at, func(p adapter.Point, at int64) int { return cmp.Compare(p.At, at) })
		}
		if k < len(ps) && ps[k].At == at && ps[k].Value != 0 {
			return false
		}
	}
	return true
}

// during are the points of a stretch of time; all where it is not known.
func during(ps []adapter.Point, from, to int64) (in []adapter.Point) {
	for _, p := range ps {
		if from == 0 || p.At >= from && p.At <= to {
			in = append(in, p)
		}
	}
	return in
}

// work is what says that a device worked throughout a stretch of time. Tokens alone say it only of an engine that is known to be on it.
func (d *device) work(s *Scene, from, to int64) (said []string) {
	util, power := during(d.series(s, "hw.gpu.utilization", ""), from, to), during(d.series(s, "gpu.power", ""), from, to)
	if low, high := extent(util); len(util) > 0 {
		if low < busyUtil {
			return nil
		}
		said = append(said, "GPU_UTIL is "+fromTo("hw.gpu.utilization", low, high))
	}
	if low, high := extent(power); len(power) > 0 && low >= busyDraw {
		said = append(said, "power is "+fromTo("gpu.power", low, high))
	}
	w, how, ok := s.engineOf(d.owner())
	if !ok || len(said) == 0 && (how != byPod || len(power) > 0) {
		return said
	}
	if tokens := s.tokenRate(w, from, to); tokens > 0 {
		said = append(said, fmt.Sprintf("the engine generates %s tok/s (%s)", count(tokens), w))
	}
	return said
}

func fromTo(signal string, low, high float64) string {
	a, b := inUnit(signal, low), inUnit(signal, high)
	if a == b {
		return a
	}
	return a + " to " + b
}

// tokenRate is how many tokens came out of an engine a second in a stretch of time; 0 where that is not known.
func (s *Scene) tokenRate(w adapter.Who, from, to int64) (rate float64) {
	by, over := s.tokens(w, from, to)
	if over <= 0 {
		return 0
	}
	return by / (float64(over) / 1e9)
}

// tokens are those that came out of an engine, all its ranks together, in a stretch of time, and how long that is (ns).
func (s *Scene) tokens(w adapter.Who, from, to int64) (by float64, over int64) {
	for _, r := range s.Of("tokens.generated") {
		e := r.Who.Engine()
		if e.Rank = w.Rank; e != w {
			continue
		}
		in := *r
		in.Points = during(r.Points, from, to)
		if n, o, ok := in.Grown(); ok {
			by, over = by+n, max(over, o)
		}
	}
	return by, over
}

func (z *zeros) fact(s *Scene, d *device) Fact {
	var names, before []string
	for _, signal := range z.signals {
		names = append(names, call(signal))
		if good := z.outside(d.series(s, signal, "")); len(good) > 0 {
			before = append(before, fmt.Sprintf("%s %s (mean of %d samples)", call(signal), share(mean(good)), len(good)))
		}
	}
	f := Fact{Weight: Wrong, Path: "gpu", About: d.id}
	what := fmt.Sprintf("%s are exactly 0", strings.Join(names, ", "))
	switch {
	case z.n < surely:
		f.Weight = Notice
		f.Text = fmt.Sprintf("%s: %s in %s (%s) while %s. Either the work had only begun, or the profiling module has failed: it does not show that the GPU idles.",
			d, what, plural(z.n, "sample", "samples"), d.sampled(), and(z.work))
	case z.from == 0:
		f.Text = fmt.Sprintf("PROF data of %s are invalid, not idle: %s in %d samples in a row while %s.", d, what, z.n, and(z.work))
	default:
		f.Text = fmt.Sprintf("PROF data of %s are invalid, not idle: from %s %s in %d consecutive samples (%s) while %s.", d, timeOf(z.from), what, z.n, d.sampled(), and(z.work))
	}
	for _, x := range d.xids(s) {
		if z.from != 0 && x.at != 0 && x.at <= z.to {
			f.Text += fmt.Sprintf(" It coincides with XID %d (%s), first seen at %s; the workload kept running.", x.number, dcgm.XID(x.number), timeOf(x.at))
			if x.at < z.from {
				f.Text = strings.Replace(f.Text, "It coincides with", "Before it came", 1)
			}
			break
		}
	}
	if len(before) > 0 {
		f.Text += " Outside of that time: " + strings.Join(before, ", ") + "."
	}
	f.Instead = "Use power and tokens in their place: no SM activity and no MFU is computed for this time."
	f.Do = "Restart the DCGM host engine and its exporter ('dcgmi dmon -e 1001' may be enough to wake the module)."
	for _, signal := range z.signals {
		for _, r := range d.of(s, signal, "") {
			s.doubt(r, "exactly 0 while the GPU works")
		}
	}
	d.merged = nil
	return f
}

// outside are the points of a series that are not of the zeros' time.
func (z *zeros) outside(ps []adapter.Point) (good []adapter.Point) {
	for _, p := range ps {
		if z.from != 0 && (p.At < z.from || p.At > z.to) {
			good = append(good, p)
		}
	}
	return good
}

func and(said []string) string {
	if len(said) < 2 {
		return strings.Join(said, "")
	}
	return strings.Join(said[:len(said)-1], ", ") + " and " + said[len(said)-1]
}
