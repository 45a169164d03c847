package look

import (
	"fmt"
	"slices"
	"strings"
)

// partitioned tells of GPUs that are shared as instances: what is each one's, what is the board's, and what is not known.
func partitioned(s *Scene) (facts []Fact) {
	totalled := map[string]bool{} // nodes
	for _, d := range s.devices() {
		if len(d.instances) == 0 {
			continue
		}
		var said []string
		for _, i := range d.instances {
			said = append(said, d.instanceText(s, i)+".")
		}
		f := Fact{Weight: Notice, Path: "gpu", About: d.id,
			Text: sentence(fmt.Sprintf("%s is partitioned into %s.", d.withID(), plural(len(d.instances), "instance", "instances")), strings.Join(said, " "), d.weighted(s), d.boardPower(s, totalled))}
		if len(facts) == 0 {
			f.Do = "GPU_UTIL is not measured for instances: unknown, not 0. Take engine active and SM active of each, relative to it. An instance is its GPU's UUID and GPU_I_ID; the index of the GPU is not enough."
		}
		facts = append(facts, f)
	}
	return facts
}

func (d *device) instanceText(s *Scene, i instance) string {
	text := i.name
	switch w, how, ok := s.engineOf(i.owner); {
	case i.owner == "":
		text += " (no owner named)"
	case ok && how == byPod:
		text += fmt.Sprintf(" (%s: %s)", i.owner, w)
	default:
		text += " (" + i.owner + ")"
	}
	var of []string
	for _, signal := range []string{"gpu.engine_active", "gpu.sm_active", "hw.gpu.memory.usage"} {
		if v, ok := d.last(s, signal, i.name); ok {
			of = append(of, call(signal)+" "+inUnit(signal, v))
		} else if d.anyInstance(s, signal) {
			of = append(of, call(signal)+" unknown")
		}
	}
	if len(of) == 0 {
		return text
	}
	return text + ": " + strings.Join(of, ", ")
}

func (d *device) anyInstance(s *Scene, signal string) bool {
	return slices.ContainsFunc(d.instances, func(i instance) bool { return len(d.of(s, signal, i.name)) > 0 })
}

// weighted is the activity of the instances together, each by its size.
func (d *device) weighted(s *Scene) string {
	var said, sizes []string
	all := 0.0
	for _, i := range d.instances {
		if i.slices == 0 {
			return ""
		}
		sizes, all = append(sizes, count(i.slices)), all+i.slices
	}
	for _, signal := range []string{"gpu.engine_active", "gpu.sm_active"} {
		sum, known := 0.0, 0
		for _, i := range d.instances {
			if v, ok := d.last(s, signal, i.name); ok {
				sum, known = sum+i.slices*v, known+1
			}
		}
		if known == len(d.instances) {
			said = append(said, call(signal)+" "+share(sum/all))
		}
	}
	if len(said) == 0 || len(sizes) < 2 {
		return ""
	}
	return fmt.Sprintf("Together, weighted by their slices (%s): %s.", strings.Join(sizes, ":"), strings.Join(said, ", "))
}

// boardPower is the board's draw, once, and what its host draws with it.
func (d *device) boardPower(s *Scene, totalled map[string]bool) string {
	own, ok := d.last(s, "gpu.power", "")
	if !ok {
		return ""
	}
	lines := 0
	for _, r := range d.of(s, "gpu.power", "") {
		if r.Labels.Get("GPU_I_ID") != "" {
			lines++
		}
	}
	text := fmt.Sprintf("The board draws %s", inUnit("gpu.power", own))
	if lines > 1 {
		text += fmt.Sprintf(", once, though %d lines repeat it", lines)
	}
	if totalled[d.who.Node] || d.who.Node == "" {
		return text + "."
	}
	totalled[d.who.Node] = true
	var parts []string
	total := 0.0
	for _, o := range s.devices() {
		v, has := o.last(s, "gpu.power", "")
		if o.who.Node != d.who.Node || !identified(o) {
			continue
		}
		if !has {
			return text + "."
		}
		parts, total = append(parts, tenths(v)), total+v
	}
	if len(parts) > 1 {
		text += fmt.Sprintf("; the GPUs of %s together %s = %s W", d.who.Node, strings.Join(parts, " + "), tenths(total))
	}
	return text + "."
}
