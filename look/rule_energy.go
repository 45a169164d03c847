package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter"
)

// energyFalls tells bad reads of an energy counter from its resets, and what was consumed in truth.
func energyFalls(s *Scene) (facts []Fact) {
	for _, d := range s.devices() {
		c := d.counter(s, "gpu.energy")
		if c == nil {
			continue
		}
		spans, bad := c.Spans()
		if len(bad) == 0 && len(spans) < 2 {
			continue
		}
		var said, used []string
		for _, i := range bad {
			said = append(said, badRead(s, d, c, i, spans))
		}
		for i, span := range spans {
			if i > 0 {
				said = append(said, reset(c, spans[i-1], span))
			}
			if span.To > span.From {
				used = append(used, consumed(s, d, c, span))
			}
		}
		instead := ""
		if len(used) > 0 {
			instead = "Consumed, without bad reads: " + few(used, 4)
		}
		facts = append(facts, Fact{Weight: Wrong, Path: "gpu", About: d.id,
			Text:    fmt.Sprintf("The energy counter of %s falls (%s). %s", d, d.sampled(), few(said, 4)),
			Instead: instead,
			Do:      "Do not take rate() or increase() of it as it stands: both call every fall a reset."})
	}
	return facts
}

// sample is where a point stands: its time where it has one, and its number.
func sample(p adapter.Point, i int) string {
	if !dated(p.At) {
		return fmt.Sprintf("sample %d", i)
	}
	return fmt.Sprintf("%s (sample %d)", timeOf(p.At), i)
}

func badRead(s *Scene, d *device, c *adapter.Reading, i int, spans []adapter.Span) string {
	p := c.Points[i]
	text := fmt.Sprintf("At %s it reads %s: a bad read, not a reset", sample(p, i), inUnit("gpu.energy", p.Value))
	for _, span := range spans {
		if i < span.From || i > span.To {
			continue
		}
		next := i + 1
		for next < span.To && c.Points[next].Value < span.First.Value {
			next++
		}
		back := c.Points[next]
		text += fmt.Sprintf(", for sample %d is back at %s", next, inUnit("gpu.energy", back.Value))
		if over := float64(back.At-p.At) / 1e9; over > 0 && back.Value > p.Value {
			text += fmt.Sprintf("; %.3g J in %s would be %s, %s make %s", back.Value-p.Value, seconds(over), watts((back.Value-p.Value)/over), board(s, d), inUnit("gpu.energy", drawn(s, d)*over))
		}
	}
	return text + "."
}

// drawn is the most that a board was seen to draw; 1,000 W where that is not known.
func drawn(s *Scene, d *device) float64 {
	if ps := d.series(s, "gpu.power", ""); len(ps) > 0 {
		_, high := extent(ps)
		return high
	}
	return 1000
}

func board(s *Scene, d *device) string {
	if len(d.series(s, "gpu.power", "")) > 0 {
		return fmt.Sprintf("the board's %s W at most", count(drawn(s, d)))
	}
	return "a board's 1,000 W"
}

func watts(w float64) string {
	switch {
	case w >= 1e6:
		return significant(w/1e6) + " MW"
	case w >= 1e4:
		return significant(w/1e3) + " kW"
	}
	return count(w) + " W"
}

func reset(c *adapter.Reading, before, after adapter.Span) string {
	if after.First.Value >= before.Last.Value {
		return fmt.Sprintf("At %s it jumps by more than any board draws, and stays there: what was consumed between is not known.", sample(after.First, after.From))
	}
	if after.To == after.From && after.To+1 == len(c.Points) {
		return fmt.Sprintf("At %s, the last one, it reads %s: a reset or a bad read, which only the next one tells.", sample(after.First, after.From), inUnit("gpu.energy", after.First.Value))
	}
	return fmt.Sprintf("At %s it starts again at %s and goes on from there: a true reset, as when the driver is loaded again; counted on from there.", sample(after.First, after.From), inUnit("gpu.energy", after.First.Value))
}

func consumed(s *Scene, d *device, c *adapter.Reading, span adapter.Span) string {
	text := fmt.Sprintf("%s over samples %d to %d", inUnit("gpu.energy", span.By), span.From, span.To)
	if span.Before > 0 {
		text += fmt.Sprintf(" (and %s from the reset to sample %d)", inUnit("gpu.energy", span.Before), span.From)
	}
	if over := float64(span.Last.At-span.First.At) / 1e9; span.First.At != 0 && over > 0 {
		text += fmt.Sprintf(", %s W on average", count(span.By/over))
	}
	if energy, tokens, who, ok := s.spanPerToken(d, span); ok {
		text += fmt.Sprintf("; %s J / %s tokens = %.2f J per token (%s)", count(energy), count(tokens), energy/tokens, who)
	}
	return text + "."
}

// spanPerToken is the energy that a token took while a counter ran through, of all the GPUs of its engine together.
func (s *Scene) spanPerToken(d *device, span adapter.Span) (energy, tokens float64, who adapter.Who, ok bool) {
	mates, ok := s.mates(d)
	who, _, ok2 := s.engineOf(d.owner())
	if !ok || !ok2 || span.First.At == 0 || span.By <= 0 {
		return 0, 0, who, false
	}
	energy = span.By
	for _, m := range mates {
		c := m.counter(s, "gpu.energy")
		if c == nil {
			return 0, 0, who, false
		}
		c.Points = during(c.Points, span.First.At, span.Last.At)
		by, over, ok := c.Grown()
		if !ok || over < (span.Last.At-span.First.At)*9/10 {
			return 0, 0, who, false
		}
		energy += by
	}
	tokens, over := s.tokens(who, span.First.At, span.Last.At)
	return energy, tokens, who, tokens > 0 && over >= (span.Last.At-span.First.At)*9/10
}

// mates are the other devices of a device's engine; false where that is not known.
func (s *Scene) mates(d *device) (of []*device, ok bool) {
	for _, o := range s.devices() {
		if o == d || o.owner() != d.owner() {
			continue
		}
		if d.owner() == "" {
			return nil, false
		}
		of = append(of, o)
	}
	return of, true
}

// perToken is the energy (J) that a token took in the longest stretch without a reset.
func (s *Scene) perToken(d *device) (j float64, who adapter.Who, ok bool) {
	c := d.counter(s, "gpu.energy")
	if c == nil {
		return 0, who, false
	}
	spans, _ := c.Spans()
	var longest adapter.Span
	for _, span := range spans {
		if span.To-span.From > longest.To-longest.From {
			longest = span
		}
	}
	energy, tokens, who, ok := s.spanPerToken(d, longest)
	if !ok {
		return 0, who, false
	}
	return energy / tokens, who, true
}
