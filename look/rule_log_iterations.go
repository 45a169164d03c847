package look

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/adapter/vllm"
)

// logIterations: steps that decode alone, and steps that share with prompts. There is no mean of both.
type logIterations struct {
	alone  thinned // ms
	mixed  average // ms
	tokens int     // of prompts, in mixed steps
	lines  span    // mixed ones
	most   float64 // ms
}

func (i *logIterations) take(e *entry) {
	r, ok := e.Record.(vllm.Iteration)
	if !ok || r.Dummy || !r.ElapsedMs.Known || r.GenerationRequests.Or(0) == 0 {
		return
	}
	if r.ContextTokens.Or(0) == 0 {
		i.alone.add(r.ElapsedMs.Value)
		return
	}
	i.mixed.add(r.ElapsedMs)
	i.tokens += r.ContextTokens.Value
	i.most = max(i.most, r.ElapsedMs.Value)
	i.lines.add(e.Mark)
}

func (i *logIterations) facts(l *Log) []Fact {
	alone, ok := i.alone.median()
	if !ok || i.mixed.n == 0 {
		return nil
	}
	mixed := i.mixed.value()
	text := fmt.Sprintf("%sa step that decodes alone takes %s (the middle one of %s), one that shares with prompts %s on average, %.3g times as long",
		l.called, seconds(alone/1e3), count(float64(i.alone.n)), seconds(mixed/1e3), mixed/alone)
	if alone <= 0 {
		return nil
	}
	text += fmt.Sprintf(": %s such steps, %s, %s and %s prompt tokens in all. Whoever decodes gets one token a step then.", count(float64(i.mixed.n)), i.lines, seconds(i.mixed.sum/1e3), count(float64(i.tokens)))
	f := Fact{Weight: Notice, Path: "token", Text: text}
	if mixed > 3*alone {
		f.Instead = "A mean over both kinds of step describes neither."
		f.Do = "Where that hurts: fewer prompt tokens a step (max_num_batched_tokens), which makes the long prompt itself later, or prefill apart from decode."
	}
	return []Fact{f}
}

// thinned keeps values for a median: all of them, and of very many every second, fourth …
type thinned struct {
	n     int // values that came
	every int
	kept  []float64
}

const mostValues = 1 << 16

func (s *thinned) add(v float64) {
	s.every = max(s.every, 1)
	if s.n++; (s.n-1)%s.every != 0 {
		return
	}
	s.kept = append(s.kept, v)
	if len(s.kept) == mostValues {
		for i := range mostValues / 2 {
			s.kept[i] = s.kept[2*i]
		}
		s.kept, s.every = s.kept[:mostValues/2], 2*s.every
	}
}

func (s *thinned) median() (float64, bool) {
	if len(s.kept) == 0 {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(s.kept))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, true
}
