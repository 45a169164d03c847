package look

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

// stale is why a gauge is no evidence that had stopped when others went on: what it said last is not how things are.
const stale = "it is not told any more"

// gone takes the gauges out of the evidence that stopped while others went on, and tells whose they were: of a target that is not seen any more
// as a whole, and of one that is, but not with all that it said.
func gone(s *Scene) (facts []Fact) {
	newest, every := newestOf(s.Readings)
	if newest == 0 {
		return nil
	}
	than := "the newest sample"
	if late := s.asked - patience*int64(every) - int64(prometheusShows); late > newest { // nobody has spoken for long
		newest, than = s.asked, "it was asked"
	}
	kept, left := map[voice]bool{}, map[voice][]*adapter.Reading{}
	speaks, order := map[string]bool{}, []voice{}
	for _, r := range s.Readings {
		if r.Signal.Kind != signals.Gauge || len(r.Points) == 0 {
			continue
		}
		v := voiceOf(r)
		last := r.Points[len(r.Points)-1].At
		if len(r.Points) <= patience || !dated(last) || newest-last <= patience*int64(max(r.Every, every)) {
			kept[v], speaks[v.of] = true, true
			continue
		}
		if left[v] == nil {
			order = append(order, v)
		}
		left[v] = append(left[v], r)
	}
	lost, whose := map[string][]*adapter.Reading{}, []string{}
	for _, v := range order {
		if kept[v] && v.device { // its history goes on under another name, or at another exporter
			continue
		}
		for _, r := range left[v] {
			s.doubt(r, stale)
		}
		if kept[v] { // the same is told under other labels by now
			continue
		}
		if lost[v.of] == nil {
			whose = append(whose, v.of)
		}
		lost[v.of] = append(lost[v.of], left[v]...)
	}
	for _, d := range s.devices() {
		d.merged = nil
	}
	for _, of := range whose {
		facts = append(facts, wentSilent(lost[of], newest, than, speaks[of]))
		if !speaks[of] && !isDevice(lost[of][0]) {
			s.silent = append(s.silent, lost[of][0].Target)
		}
	}
	return facts
}

// prometheusShows is how long a Prometheus shows a series after its last sample.
const prometheusShows = 5 * time.Minute

// voice is what is told of somebody: a gauge of an engine at its target, or of a device wherever it is told.
type voice struct {
	of, signal, slice string
	device            bool
}

func voiceOf(r *adapter.Reading) voice {
	if isDevice(r) {
		return voice{r.Who.Device, r.Signal.Name, r.Who.Slice, true}
	}
	return voice{r.Target, r.Signal.Name, r.Who.Rank + "\xff" + r.Who.Model, false}
}

// dated reports whether a moment is a time of day, and not one that is counted from the first scrape on.
func dated(at int64) bool { return at > int64(365*24*time.Hour) }

// newestOf is the newest moment that is known of readings which were read often, and how often they were.
func newestOf(rs []*adapter.Reading) (at int64, every time.Duration) {
	for _, r := range rs {
		if n := len(r.Points); n > patience && r.Points[n-1].At > at && dated(r.Points[n-1].At) {
			at, every = r.Points[n-1].At, r.Every
		}
	}
	return at, every
}

// wentSilent is the fact about gauges of one target or device.
func wentSilent(rs []*adapter.Reading, newest int64, than string, speaks bool) Fact {
	var last int64
	for _, r := range rs {
		last = max(last, r.Points[len(r.Points)-1].At)
	}
	var said []string
	for _, r := range rs {
		text := fmt.Sprintf("%s %s", r.Native.Name, significant(r.Points[len(r.Points)-1].Value/r.Native.Times))
		if !slices.Contains(said, text) && len(said) < mostAlike {
			said = append(said, text)
		}
	}
	who := rs[0].Who.String()
	if !isDevice(rs[0]) && !speaks {
		who = rs[0].Who.Engine().String()
	}
	f := Fact{Weight: Notice, Path: rs[0].Signal.Path, About: who}
	silence := fmt.Sprintf("since %s, %s before %s", timeOf(last), seconds(float64(newest-last)/1e9), than)
	if speaks {
		f.Weight = Wrong
		f.Text = fmt.Sprintf("Of %s a part is not told any more %s, though the rest is: %s at last. From then on it is unknown, neither that nor 0.", who, silence, strings.Join(said, ", "))
		f.Do = "See whether the exporter was configured anew, or a module of it failed."
		return f
	}
	f.Text = fmt.Sprintf("%s is not seen any more %s: %s at last. It is not counted among what is there now.", who, silence, strings.Join(said, ", "))
	f.Do = "Either it was taken away, or its scrape fails: see up{} of its target."
	return f
}

// isSilent reports whether somebody is not seen any more.
func (s *Scene) isSilent(w adapter.Who) bool { return slices.Contains(s.silent, w.Target) }
