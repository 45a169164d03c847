package look

import (
	"fmt"
	"math"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/llamacpp"
	"github.com/whylate/whylate/exposition"
)

// hitRateGauge sets a gauge aside that knows the last prefill batch only, and that decode batches set to 0.
func hitRateGauge(s *Scene) (facts []Fact) {
	for _, r := range s.All("kv.hit_rate_gauge") {
		if len(r.Points) == 0 {
			continue
		}
		zeros := 0
		for _, p := range r.Points {
			if p.Value == 0 {
				zeros++
			}
		}
		s.doubt(r, "of the last prefill batch only")
		if !s.first(r) {
			continue
		}
		f := Fact{Weight: Notice, Path: "token", About: r.Who.String(),
			Text: fmt.Sprintf("%s of %s keeps the last prefill batch only, and decode sets it to 0 (%d of %d samples are 0): neither its mean nor its maximum is a hit rate, and it must not be added up over pods.", r.Native.Name, r.Who, zeros, len(r.Points)),
			Do:   "Take the counters of tokens instead."}
		cached, computed := s.model("tokens.prompt_cached", r.Who), s.model("tokens.prompt_computed", r.Who)
		all := cached + computed
		if computed == 0 { // an older server counts all of them instead
			all = s.model("tokens.prompt", r.Who)
		}
		if all > 0 && cached <= all {
			f.Instead = fmt.Sprintf("From the counters: %s of %s prompt tokens came from the cache, %s.", count(cached), count(all), share(cached/all))
			f.Do = ""
		} else {
			f.Instead = "The hit rate is unknown."
		}
		facts = append(facts, f)
	}
	return facts
}

// first reports whether a reading is the one with most samples of its signal and model: the others would say the same again.
func (s *Scene) first(r *adapter.Reading) bool {
	for _, other := range s.All(r.Signal.Name) {
		if other.Who.Model == r.Who.Model && (len(other.Points) > len(r.Points) || len(other.Points) == len(r.Points) && other != r && other.Target < r.Target) {
			return false
		}
	}
	return true
}

// model is by how much a counter of a model's engines grew, whatever address they were read at.
func (s *Scene) model(signal string, w adapter.Who) (sum float64) {
	for _, r := range s.Of(signal) {
		if r.Who.Producer != w.Producer || r.Who.Model != w.Model {
			continue
		}
		if by, _, ok := r.Grown(); ok {
			sum += by
		} else if v, ok := r.Last(); ok {
			sum += v
		}
	}
	return sum
}

// throughputGauge sets llama.cpp's throughput gauges aside where its counters say otherwise, and tells the counters' own error.
func throughputGauge(s *Scene) (facts []Fact) {
	for _, r := range s.All("tokens.generated_rate_gauge") {
		if r.Who.Producer != "llamacpp" {
			continue
		}
		s.doubt(r, "a mean since somebody's last read")
		w := r.Who.Engine()
		tokens, sec := s.about("tokens.generated", w), s.about("request.decode_seconds", w)
		running, _ := s.last("request.running", w)
		value, _ := r.Last()
		if len(tokens) != 1 || len(sec) != 1 {
			continue
		}
		n, _, ok := tokens[0].Grown()
		t, _, ok2 := sec[0].Grown()
		if !ok || !ok2 || n == 0 || t == 0 {
			continue
		}
		last, lastSec := tokens[0].Points[len(tokens[0].Points)-1].Value, sec[0].Points[len(sec[0].Points)-1].Value
		dn, dt := llamacpp.Step(last), llamacpp.Step(lastSec) // two values, each off by half a step
		f := Fact{Weight: Notice, Path: "token", About: w.String(),
			Text: fmt.Sprintf("%s: by its counters a sequence gets %s tok/s (%s tokens in %s of generating%s).", w, significant(n/t), count(n), seconds(t), sixDigits((n-dn)/(t+dt), (n+dn)/math.Max(t-dt, 1e-9)))}
		if value == 0 && running > 0 {
			f.Weight = Wrong
			f.Text = fmt.Sprintf("%s says %s = 0 while %s requests run and its counters moved: whoever reads it resets it. ", w, r.Native.Name, count(running)) + f.Text
		}
		for _, p := range s.about("tokens.prompt", w) {
			if by, _, ok := p.Grown(); ok && by == 0 {
				v, _ := p.Last()
				f.Instead = fmt.Sprintf("The counter of prompt tokens did not move, but it is printed in steps of %s: fewer than about %s new prompt tokens, not none.", count(llamacpp.Step(v)), count(llamacpp.Step(v)))
			}
		}
		facts = append(facts, f)
	}
	for _, r := range s.All("request.longest_context") {
		declared := ""
		if r.Type == exposition.Counter {
			declared = "is declared a counter and "
		}
		if v, ok := r.Last(); ok && r.Type != exposition.Gauge {
			facts = append(facts, Fact{Weight: Notice, Path: "request", About: r.Who.String(), Text: fmt.Sprintf("%s of %s %sis a running maximum (%s tokens): it has no rate.", r.Native.Name, r.Who, declared, count(v))})
		}
	}
	return facts
}

// sixDigits is what the rounding of counters leaves open, "" where that is nothing.
func sixDigits(low, high float64) string {
	if significant(low) == significant(high) {
		return ""
	}
	return fmt.Sprintf("; the counters are printed with six digits, so it is between %s and %s", significant(low), significant(high))
}

// goneWithAVersion tells of a signal that one build of an engine sends and another does not: absent is neither 0 nor empty.
func goneWithAVersion(s *Scene) (facts []Fact) {
	for _, r := range s.Of("kv.usage") {
		v, ok := r.Last()
		if !ok || r.Who.Producer != "llamacpp" {
			continue
		}
		for _, w := range s.Engines() {
			if w.Producer == r.Who.Producer && w.Target != r.Who.Target && len(s.All("kv.usage")) > 0 && len(s.about("kv.usage", w)) == 0 {
				facts = append(facts, Fact{Weight: Notice, Path: "gpu", About: w.String(), Text: fmt.Sprintf("%s does not export %s in this version: its KV usage is not seen, neither 0 nor empty. %s says %s.", w, r.Native.Name, r.Who, share(v))})
			}
		}
	}
	return facts
}
