package workload

import (
	"cmp"
	"io"
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/experiment"
)

// A Summary says what is in a workload.
type Summary struct {
	Requests  int64   `json:"requests"`
	SpanNs    int64   `json:"span_ns"`             // from the first arrival to the last
	Rate      float64 `json:"requests_per_second"` // over the span; 0 if all arrive at once
	GapCV     float64 `json:"gap_cv"`              // coefficient of variation of the gaps between arrivals: 1 as by chance, more in bursts
	PeakRate  float64 `json:"peak_per_second"`     // arrivals in the busiest 10 s, a second; of windows that begin at whole tens
	Together  int64   `json:"at_the_same_time"`    // requests that arrive at the very time of the one before
	Sequences int64   `json:"sequences"`           // n > 1 counted in full

	Prompt Lengthy `json:"prompt_tokens"`
	Output Lengthy `json:"output_tokens"`

	// Prompt tokens that a prefix cache without limit would know: those of the runs that another prompt has begun with before.
	Shared      int64   `json:"shared_prefix_tokens"`
	SharedPart  float64 `json:"shared_prefix_share"`
	SharedLeast bool    `json:"shared_is_at_least,omitempty"` // there were more prefixes than are remembered
	Structure   bool    `json:"prefixes_known"`               // whether any request tells a prefix at all

	Cancelled int64        `json:"hang_up"`
	Classes   []ClassCount `json:"classes,omitempty"` // the most frequent first, at most 20
}

// Lengthy describes lengths, in tokens of one sequence.
type Lengthy struct {
	Sum  int64   `json:"sum"`
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P90  int64   `json:"p90"`
	P99  int64   `json:"p99"`
	Max  int64   `json:"max"`
}

// A ClassCount says how many requests are of one class; the empty name stands for those without, and for those of rare
// classes beyond the first thousand.
type ClassCount struct {
	Class    string `json:"class"`
	Requests int64  `json:"requests"`
}

// peakWindow is the width of the windows of [Summary.PeakRate].
const peakWindow = 10 * time.Second

// Show reads a stream to its end and says what was in it. Its memory does not grow with the stream.
func Show(s experiment.Stream) (Summary, error) {
	t := tally{classes: make(map[string]int64)}
	for {
		r, err := s.Next()
		if err == io.EOF {
			return t.summary(), nil
		}
		if err != nil {
			return Summary{}, err
		}
		t.add(&r)
	}
}

type tally struct {
	Summary
	first, last          time.Duration
	gaps, squares        float64 // sums of gaps and of their squares, s
	window, inWindow     int64
	peak                 int64
	prompt, output       experiment.Values
	promptSum, outputSum int64
	classes              map[string]int64
	seen                 prefixes
}

func (t *tally) add(r *experiment.Request) {
	if t.Requests++; t.Requests == 1 {
		t.first = r.At
	} else {
		gap := (r.At - t.last).Seconds()
		t.gaps += gap
		t.squares += gap * gap
		if r.At == t.last {
			t.Together++
		}
	}
	t.last = r.At
	if w := int64((r.At - t.first) / peakWindow); w != t.window {
		t.window, t.inWindow = w, 0
	}
	t.inWindow++
	t.peak = max(t.peak, t.inWindow)
	t.Sequences += int64(r.Sequences())
	t.prompt.Add(int64(r.PromptTokens))
	t.output.Add(int64(r.OutputTokens))
	t.promptSum += int64(r.PromptTokens)
	t.outputSum += int64(r.OutputTokens)
	if r.CancelAfter > 0 || r.CancelChunks > 0 {
		t.Cancelled++
	}
	class := r.Class
	if _, known := t.classes[class]; !known && len(t.classes) >= 1000 {
		class = ""
	}
	t.classes[class]++
	t.Structure = t.Structure || len(r.Prefix) > 0
	t.Shared += t.seen.take(r.Prefix)
}

func (t *tally) summary() Summary {
	s := t.Summary
	s.SpanNs = int64(t.last - t.first)
	if gaps := float64(s.Requests - 1); s.SpanNs > 0 {
		mean := t.gaps / gaps
		s.Rate = 1 / mean
		s.GapCV = math.Sqrt(max(t.squares/gaps-mean*mean, 0)) / mean
		s.PeakRate = float64(t.peak) / min(peakWindow.Seconds(), time.Duration(s.SpanNs).Seconds())
	}
	s.Prompt, s.Output = lengthy(&t.prompt, t.promptSum), lengthy(&t.output, t.outputSum)
	if t.promptSum > 0 {
		s.SharedPart = float64(s.Shared) / float64(t.promptSum)
	}
	s.SharedLeast = t.seen.forgot
	for class, n := range t.classes {
		s.Classes = append(s.Classes, ClassCount{class, n})
	}
	slices.SortFunc(s.Classes, func(a, b ClassCount) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Class, b.Class))
	})
	s.Classes = s.Classes[:min(len(s.Classes), 20)]
	if len(s.Classes) == 1 && s.Classes[0].Class == "" {
		s.Classes = nil
	}
	return s
}

func lengthy(v *experiment.Values, sum int64) Lengthy {
	return Lengthy{Sum: sum, Mean: v.Mean(), P50: v.Quantile(0.5), P90: v.Quantile(0.9), P99: v.Quantile(0.99), Max: v.Max()}
}

// rememberedPrefixes is how many beginnings of prompts are remembered at least; they take about 40 bytes each.
const rememberedPrefixes = 1 << 20

// prefixes remembers with which runs prompts have begun. A beginning is its whole chain of runs: equal runs after different
// ones are not shared, as no cache could use them. Of runs that differ in length it does not see what they share.
type prefixes struct {
	recent, earlier map[uint64]struct{}
	forgot          bool
}

// take returns how many tokens of the prefix were there before, and remembers it.
func (p *prefixes) take(prefix []experiment.PrefixRun) (shared int64) {
	chain, known := uint64(0), true
	for _, run := range prefix {
		chain = mixed(mixed(chain, uint64(run.Hash)), uint64(run.Tokens))
		_, ok := p.recent[chain]
		if !ok {
			_, ok = p.earlier[chain]
			p.remember(chain)
		}
		if known = known && ok; known {
			shared += int64(run.Tokens)
		}
	}
	return shared
}

func (p *prefixes) remember(chain uint64) {
	if len(p.recent) >= rememberedPrefixes {
		p.forgot = p.forgot || len(p.earlier) > 0
		p.earlier, p.recent = p.recent, nil
	}
	if p.recent == nil {
		p.recent = make(map[uint64]struct{})
	}
	p.recent[chain] = struct{}{}
}
