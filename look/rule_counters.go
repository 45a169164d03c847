package look

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// counter is a signal of a device as one counter, nil where it is not there. Of several producers the one speaks that was heard most often: each
// tells the same counter with a delay of its own, so that together they would go up and down.
func (d *device) counter(s *Scene, signal string) *adapter.Reading {
	rs := d.of(s, signal, "")
	if len(rs) == 0 {
		return nil
	}
	heard := map[string]int{}
	speaks := rs[0].Who.Producer
	for _, r := range rs {
		heard[r.Who.Producer] += len(r.Points)
		if heard[r.Who.Producer] > heard[speaks] {
			speaks = r.Who.Producer
		}
	}
	if len(heard) == 1 {
		return &adapter.Reading{Track: adapter.Track{Points: d.series(s, signal, "")}, Signal: rs[0].Signal, Native: rs[0].Native, Who: d.who}
	}
	rs = slices.DeleteFunc(rs, func(r *adapter.Reading) bool { return r.Who.Producer != speaks })
	return &adapter.Reading{Track: adapter.Track{Points: merge(rs)}, Signal: rs[0].Signal, Native: rs[0].Native, Who: d.who}
}

// inBytes is the unit of a native rate.
func inBytes(times float64) string {
	if times == 1 {
		return "bytes/s"
	}
	return "units of " + count(times) + " bytes/s"
}

// disguised finds gauges that are declared, or called, as if they were counters: their values are rates already.
func disguised(s *Scene) (facts []Fact) {
	said := map[string]bool{}
	for _, d := range s.devices() {
		for _, r := range d.readings {
			name := r.Native.Name
			if r.Signal.Kind != "gauge" || said[name] || r.Who.Slice != "" {
				continue
			}
			ps := d.series(s, r.Signal.Name, "")
			falls := fallsOf(ps)
			declared := slices.ContainsFunc(d.readings, func(o *adapter.Reading) bool { return o.Native.Name == name && o.Type == exposition.Counter })
			isRate := strings.HasSuffix(r.Signal.Unit, "/s")
			if falls == 0 && !declared || !isRate && (falls == 0 || !declared) {
				continue
			}
			said[name] = true
			f := Fact{Weight: Wrong, Path: "gpu", About: d.id, Text: name + " is a gauge"}
			if falls == 0 {
				f.Weight = Notice
			}
			if isRate {
				f.Text = name + " is a rate in " + inBytes(r.Native.Times) + " already, a gauge"
			}
			if declared {
				f.Text += ", and declared counter, which is wrong"
			}
			if falls > 0 {
				low, high := extent(ps)
				f.Text += fmt.Sprintf(": on %s it goes up and down, %d of %d steps fall, between %s and %s", d, falls, len(ps)-1, inUnit(r.Signal.Name, low), inUnit(r.Signal.Name, high))
				if isRate { // the mean of error numbers is none
					f.Text += ", " + inUnit(r.Signal.Name, mean(ps)) + " on average"
				}
				f.Text += " (" + d.sampled() + ")"
			}
			f.Text += "."
			f.Do = "Take its value, or avg_over_time() of it; never rate() or increase()." + misused(s, name)
			facts = append(facts, f)
		}
	}
	return facts
}

func fallsOf(ps []adapter.Point) (n int) {
	for i := 1; i < len(ps); i++ {
		if ps[i].Value < ps[i-1].Value {
			n++
		}
	}
	return n
}

// misused are the queries that take a rate of what is one.
func misused(s *Scene, name string) string {
	wrong := regexp.MustCompile(`\b(?:i?rate|increase)\(\s*` + regexp.QuoteMeta(name) + `\b`)
	var lines []string
	for _, q := range s.Queries {
		if wrong.MatchString(q.Text) {
			lines = append(lines, fmt.Sprintf("%s line %d", exposition.Printable(q.Source, 60), q.Line))
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return " Wrong so far: " + strings.Join(lines, ", ") + "."
}
