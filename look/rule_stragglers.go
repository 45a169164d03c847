package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
)

// slower is by how many times a clock must be below its peers' to be called slow: boost moves them by less.
const slower = 1.1

// clocks find GPUs that something holds down: first those that hold back their peers, then the others.
func clocks(s *Scene) (facts []Fact) {
	slow := map[*device]bool{}
	for _, g := range groups(s.devices()) {
		for _, f := range g.stragglers(s) {
			facts = append(facts, f.Fact)
			slow[f.who] = true
		}
	}
	for _, d := range s.devices() {
		if f, ok := heldDown(s, d); ok && !slow[d] {
			facts = append(facts, f)
		}
	}
	return facts
}

// group are the GPUs of one workload, or those of a host of which no workload is known.
type group struct {
	owner   string
	devices []*device
}

func groups(ds []*device) (gs []*group) {
	byKey := map[string]*group{}
	for _, d := range ds {
		if len(d.instances) > 0 {
			continue
		}
		key := d.owner() + "\xff" + cmp.Or(d.who.Node, d.who.Target) // what speaks of GPUs speaks of one host's
		if byKey[key] == nil {
			byKey[key] = &group{owner: d.owner()}
			gs = append(gs, byKey[key])
		}
		byKey[key].devices = append(byKey[key].devices, d)
	}
	return gs
}

func (g *group) String() string {
	if g.owner == "" {
		return fmt.Sprintf("the %d GPUs at work on its host", len(g.devices))
	}
	return fmt.Sprintf("the %d GPUs of %s", len(g.devices), g.owner)
}

type straggler struct {
	Fact
	who *device
}

func (g *group) stragglers(s *Scene) (found []straggler) {
	g.devices = slices.DeleteFunc(g.devices, func(d *device) bool { return !d.working(s) })
	var fastest float64
	for _, d := range g.devices {
		v, _ := d.last(s, "gpu.clock.sm", "")
		fastest = max(fastest, v)
	}
	var slow, others []*device
	for _, d := range g.devices {
		if v, ok := d.last(s, "gpu.clock.sm", ""); ok && v > 0 && v*slower <= fastest {
			slow = append(slow, d)
		} else if ok {
			others = append(others, d)
		}
	}
	if len(slow) == 0 || len(others) < len(slow) { // most of a group are no stragglers
		return nil
	}
	for _, d := range slow {
		found = append(found, straggler{g.straggler(s, d, others), d})
	}
	return found
}

// working reports whether a device has something to do: an idle one may be as slow as it likes.
func (d *device) working(s *Scene) bool {
	if util, ok := d.last(s, "hw.gpu.utilization", ""); ok {
		return util >= busyUtil
	}
	if sm, ok := d.last(s, "gpu.sm_active", ""); ok {
		return sm >= busyUtil
	}
	power, ok := d.last(s, "gpu.power", "")
	return ok && power >= busyDraw
}

func (g *group) straggler(s *Scene, d *device, others []*device) Fact {
	clock, _ := d.last(s, "gpu.clock.sm", "")
	fastest := 0.0
	for _, o := range others {
		v, _ := o.last(s, "gpu.clock.sm", "")
		fastest = max(fastest, v)
	}
	own := []string{fmt.Sprintf("SM clock %s, the others %s: %.2f times slower", inUnit("gpu.clock.sm", clock), spreadOf(s, others, "gpu.clock.sm"), fastest/clock)}
	if held, ok := d.holds(s); ok {
		own = append(own, "clock event reasons "+dcgm.HoldsText(held))
	} else {
		own = append(own, "its clock event reasons are unknown")
	}
	if v, ok := d.last(s, "gpu.power", ""); ok {
		own = append(own, fmt.Sprintf("%s, the others %s", inUnit("gpu.power", v), spreadOf(s, others, "gpu.power")))
	}
	if v, ok := d.last(s, "gpu.power_limit", ""); ok && inUnit("gpu.power_limit", v) != spreadOf(s, others, "gpu.power_limit") {
		own = append(own, fmt.Sprintf("power limit %s, the others' %s", inUnit("gpu.power_limit", v), spreadOf(s, others, "gpu.power_limit")))
	}
	if v, ok := d.last(s, "gpu.temperature", ""); ok {
		own = append(own, inUnit("gpu.temperature", v))
	}
	waits, proven := g.waits(s, fastest/clock)
	f := Fact{Weight: Notice, Path: "gpu", About: d.id,
		Text: sentence(fmt.Sprintf("%s is the straggler of %s: %s (%s).", d, g, strings.Join(own, "; "), d.sampled()), waits, spinning(s, d, others), othersHeld(s, others)),
		Do:   sentence(ask(s, d), "Do not lower the load of the model first."),
	}
	if held, _ := d.holds(s); proven || len(faults(held)) > 0 {
		f.Weight = Broken
	}
	return f
}

// waits is what a slow GPU costs its group, and whether the engine's own times show it.
func (g *group) waits(s *Scene, ratio float64) (text string, proven bool) {
	text = "In a tensor-parallel group each step waits for the slowest."
	if g.owner == "" {
		text = "If they work on one model as a tensor-parallel group, each step waits for the slowest."
	}
	w, how, ok := s.engineOf(g.owner)
	if !ok {
		return text, false
	}
	before, after, ok := s.pace(w)
	switch {
	case !ok:
		return text, false
	case after < before*slower:
		return text + fmt.Sprintf(" The time between outputs did not rise with it: %s before, %s now.", seconds(before), seconds(after)), false
	}
	fit := "but does not fit alone"
	if proven = within(ratio, after/before, 0.25); proven {
		fit = "which fits"
	}
	return text + fmt.Sprintf(" The time between outputs rose %.2f times, from %s (mean up to the first scrape) to %s (since), %s (%s; joined %s).", after/before, seconds(before), seconds(after), fit, w, how), proven
}

// pace is the mean time between outputs of an engine up to the first sight, and since.
func (s *Scene) pace(w adapter.Who) (before, after float64, ok bool) {
	for _, signal := range []string{"itl", "gen_ai.server.time_per_output_token"} {
		for _, r := range s.Of(signal) {
			e := r.Who.Engine()
			e.Rank = ""
			if e != w || len(r.Hists) < 2 {
				continue
			}
			now, _ := r.Observed()
			before, after = r.Hists[0].Mean(), now.Mean()
			if before > 0 && after > 0 { // neither is NaN
				return before, after, true
			}
		}
	}
	return 0, 0, false
}

// spinning tells that the others of a group look busy because they wait: full of warps, and the tensor cores rest.
func spinning(s *Scene, slow *device, others []*device) string {
	tensor, ok := slow.last(s, "gpu.tensor_active", "")
	if !ok {
		return ""
	}
	for _, d := range others {
		sm, has := d.last(s, "gpu.sm_active", "")
		t, has2 := d.last(s, "gpu.tensor_active", "")
		if !has || !has2 || sm < 0.8 || t > tensor*0.8 {
			return ""
		}
	}
	return fmt.Sprintf("The others spin in collectives: utilisation %s and SM active %s with tensor active %s is waiting, not work (the straggler's own: %s).",
		spreadOf(s, others, "hw.gpu.utilization"), spreadOf(s, others, "gpu.sm_active"), spreadOf(s, others, "gpu.tensor_active"), share(tensor))
}

// othersHeld are the reasons of the others, which are not the fault.
func othersHeld(s *Scene, others []*device) string {
	names := map[string][]string{}
	for _, d := range others {
		if held, ok := d.holds(s); ok && held != 0 && len(faults(held)) == 0 {
			text := dcgm.HoldsText(held)
			names[text] = append(names[text], ofMany(others, d))
		}
	}
	var said []string
	for _, text := range sortedKeys(names) {
		said = append(said, list(names[text], 4, 60)+": "+text)
	}
	if len(said) == 0 {
		return ""
	}
	return "Not the fault: " + strings.Join(said, "; ") + "."
}

// holds is a device's mask of clock event reasons; false where it is unknown, which is not none.
func (d *device) holds(s *Scene) (uint64, bool) {
	v, ok := d.last(s, "gpu.clock_events", "")
	return uint64(max(v, 0)), ok
}

func faults(mask uint64) []dcgm.Hold {
	return slices.DeleteFunc(dcgm.Holds(mask), func(h dcgm.Hold) bool { return h.Ask == "" })
}

// covers are reasons that say nothing more beside another: a hardware slowdown only says that something acts.
var covers = map[uint64]uint64{0x8: 0x40 | 0x80, 0x20: 0x40}

// ask is what to look at.
func ask(s *Scene, d *device) string {
	held, ok := d.holds(s)
	if !ok {
		return fmt.Sprintf("Read the clock event reasons of %s (DCGM_FI_DEV_CLOCKS_EVENT_REASONS).", d)
	}
	of := slices.DeleteFunc(faults(held), func(h dcgm.Hold) bool { return held&covers[h.Bit] != 0 })
	if len(of) == 0 {
		return fmt.Sprintf("No fault is among its reasons: compare power limit and clock settings of %s with its peers'.", d)
	}
	var at []string
	for _, h := range of {
		at = append(at, h.Ask)
	}
	return fmt.Sprintf("Check on %s: %s.", d, strings.Join(at, "; "))
}

// spreadOf is a signal of several devices, from the least to the greatest.
func spreadOf(s *Scene, ds []*device, signal string) string {
	var ps []adapter.Point
	for _, d := range ds {
		if v, ok := d.last(s, signal, ""); ok {
			ps = append(ps, adapter.Point{Value: v})
		}
	}
	if len(ps) == 0 {
		return "unknown"
	}
	low, high := extent(ps)
	return fromTo(signal, low, high)
}

// throttled are the counters of the time for which something held a device down that is a fault.
var throttled = []struct{ signal, by string }{
	{"gpu.throttled.thermal", "heat"}, {"gpu.throttled.thermal_hardware", "heat, by the hardware"}, {"gpu.throttled.power_brake", "the power brake"},
}

// heldDown tells of a device that a fault holds down now, or held down while it was watched.
func heldDown(s *Scene, d *device) (f Fact, ok bool) {
	var said []string
	f = Fact{Weight: Notice, Path: "gpu", About: d.id}
	if held, known := d.holds(s); known && len(faults(held)) > 0 {
		said = append(said, "its clocks are held down now, reasons "+dcgm.HoldsText(held))
		if v, ok := d.last(s, "gpu.clock.sm", ""); ok {
			said = append(said, "SM clock "+inUnit("gpu.clock.sm", v))
		}
		if d.working(s) {
			f.Weight = Broken
		}
	}
	for _, t := range throttled {
		if c := d.counter(s, t.signal); c != nil {
			if by, over, ok := c.Grown(); ok && by > 0.01*float64(over)/1e9 && over > 0 {
				said = append(said, fmt.Sprintf("held down by %s for %s of %s", t.by, seconds(by), seconds(float64(over)/1e9)))
			}
		}
	}
	if len(said) == 0 {
		return f, false
	}
	f.Text = fmt.Sprintf("%s: %s (%s).", d, strings.Join(said, "; "), d.sampled())
	f.Do = ask(s, d)
	return f, true
}
