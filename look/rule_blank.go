package look

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
)

// blanks count the samples of devices that are no values, and say why; what is left of the same devices stands.
func blanks(s *Scene) (facts []Fact) {
	var said, left []string
	n := 0
	unknownHolds := ""
	for _, d := range s.devices() {
		of, k := d.blanks(s)
		if k > 0 {
			said = append(said, fmt.Sprintf("%s: %s.", d, strings.Join(of, ", ")))
			n += k
		}
		if has := d.standing(s); has != "" {
			left = append(left, fmt.Sprintf("%s: %s.", d, has))
		}
		for _, r := range d.of(s, "gpu.clock_events", "") {
			if len(r.Points) == 0 && len(r.Unknown) > 0 {
				unknownHolds = "Unknown clock event reasons do not mean that nothing is throttled."
			}
		}
	}
	if n == 0 {
		return nil
	}
	f := Fact{Weight: Wrong, Path: "gpu", Text: sentence(plural(n, "sample of GPUs is no value; it is not used, as 0 or otherwise.", "samples of GPUs are no values; none is used, as 0 or otherwise."), few(said, 4), unknownHolds)}
	if len(left) > 0 {
		f.Instead = "What stands: " + few(left, 4)
	}
	return []Fact{f}
}

// blanks are the reasons for which samples of a device are none, signal by signal, and how many they are.
func (d *device) blanks(s *Scene) (said []string, n int) {
	var order []string
	reasons := map[string]map[string]int{}
	for _, r := range d.readings {
		if len(r.Unknown) == 0 || ofBoard(r) || r.Unknown[dcgm.OfWhole] > 0 {
			continue // what is not measured there is told of instances
		}
		name := call(r.Signal.Name)
		if r.Who.Slice != "" {
			name += " of " + r.Who.Slice
		}
		if reasons[name] == nil {
			order = append(order, name)
			reasons[name] = map[string]int{}
		}
		for why, k := range r.Unknown {
			reasons[name][why] += k
			n += k
		}
	}
	for _, name := range order {
		var of []string
		for _, why := range sortedKeys(reasons[name]) {
			of = append(of, why)
			if k := reasons[name][why]; k > 1 {
				of[len(of)-1] += fmt.Sprintf(" (%d times)", k)
			}
		}
		said = append(said, name+" "+strings.Join(of, " and "))
	}
	return said, n
}

// ofBoard reports whether a reading is a board's number that is missing on the line of an instance, which is no loss.
func ofBoard(r *adapter.Reading) bool { return r.Labels.Get("GPU_I_ID") != "" && r.Who.Slice == "" }

// standing are the values of a device that can be used.
func (d *device) standing(s *Scene) string {
	var of []string
	for _, signal := range []string{"hw.gpu.utilization", "gpu.sm_active", "gpu.temperature", "gpu.power", "hw.gpu.memory.usage", "gpu.clock.sm", "gpu.clock_events"} {
		if v, ok := d.last(s, signal, ""); ok {
			of = append(of, call(signal)+" "+inUnit(signal, v))
		}
	}
	return strings.Join(of, ", ")
}

// corrupt tells of engines' values that cannot be: less requests than none, a share above 1.
func corrupt(s *Scene) (facts []Fact) {
	for _, r := range s.Readings {
		n := 0
		var why string
		for reason, k := range r.Unknown {
			if strings.HasPrefix(reason, "corrupt") {
				n, why = n+k, reason
			}
		}
		if n == 0 || isDevice(r) {
			continue
		}
		text := fmt.Sprintf("%s of %s is no value in %s: %s%s. It is not used, as 0 or otherwise.", r.Native.Name, r.Who, plural(n, "sample", "samples"), why, s.asItStood(r))
		f := Fact{Weight: Wrong, Path: r.Signal.Path, About: r.Who.String(), Text: text}
		if r.Signal.Unit == "1" {
			f.Do = "If what makes it counts in per cent, divide it by 100 there."
		}
		facts = append(facts, f)
	}
	return facts
}

// asItStood is the newest native value of a reading that has none.
func (s *Scene) asItStood(r *adapter.Reading) string {
	for _, t := range s.Tracks {
		if n := len(t.Points); n > 0 && t.Family == r.Native.Name && t.Labels.Key() == r.Labels.Key() {
			return ", " + significantly(t.Points[n-1].Value) + " at last"
		}
	}
	return ""
}

// few are the first sentences of many, and how many more there are.
func few(said []string, most int) string {
	if len(said) <= most+1 {
		return strings.Join(said, " ")
	}
	return strings.Join(said[:most], " ") + fmt.Sprintf(" And %d more.", len(said)-most)
}
