package replay

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/experiment"
)

// A Summary is what a replay found. Latencies and counts of requests are of each request's last attempt. Whatever was not
// measured is absent from its JSON.
type Summary struct {
	Run      string `json:"run"`
	Endpoint string `json:"endpoint"`

	Requests      int      `json:"requests"`          // of the workload
	NotSent       int      `json:"requests_not_sent"` // since the replay was stopped
	Attempts      int      `json:"attempts"`          // made, retries included
	Outcomes      Outcomes `json:"outcomes"`          // they sum to the requests sent
	MaxInFlight   int      `json:"limit_in_flight"`   // requests under way that were allowed
	PeakInFlight  int      `json:"peak_in_flight"`    // … that there were
	Delayed       int      `json:"requests_delayed_by_limit"`
	Connections   int      `json:"connections_opened"`
	WithoutUsage  int      `json:"complete_without_usage"` // their output tokens are counted from chunks, at least as many
	Chunks        int      `json:"chunks"`
	PromptTokens  int64    `json:"prompt_tokens"` // of requests that got output
	OutputTokens  int64    `json:"output_tokens"`
	SpanNs        int64    `json:"span_ns"`                       // from the first planned time to the last end
	OfferedRate   float64  `json:"offered_requests_per_second"`   // as planned; 0 if all were planned for one moment
	SentRate      float64  `json:"sent_requests_per_second"`      // as sent; below the offered rate if the generator fell behind
	CompletedRate float64  `json:"completed_requests_per_second"` // over the span
	OutputRate    float64  `json:"output_tokens_per_second"`      // over the span
	PromptRate    float64  `json:"prompt_tokens_per_second"`      // over the span

	Lateness        Quantiles `json:"lateness,omitzero"`          // of the generator itself: first attempt sent − planned
	TTFTFromPlanned Quantiles `json:"ttft_from_planned,omitzero"` // of all requests that got output: what their users waited
	TTFTFromSent    Quantiles `json:"ttft_from_sent,omitzero"`    // the same, of what the server was given: coordinated omission hides here
	ITL             Quantiles `json:"itl_per_chunk,omitzero"`     // gaps between two chunks of one sequence
	TPOT            Quantiles `json:"tpot,omitzero"`              // of complete requests: (E2E − TTFT) / (output tokens of a sequence − 1)
	E2EFromPlanned  Quantiles `json:"e2e_from_planned,omitzero"`  // of complete requests
	E2EFromSent     Quantiles `json:"e2e_from_sent,omitzero"`     // of complete requests

	Errors []ErrorCount `json:"errors,omitempty"` // the most frequent first, at most 20
}

// Outcomes counts requests by how their last attempt ended.
type Outcomes struct {
	Complete        int `json:"complete"`
	HTTPError       int `json:"http_error"`
	ConnectionError int `json:"connection_error"`
	Cancelled       int `json:"cancelled"`
	TimedOut        int `json:"timed_out"`
}

// An ErrorCount says how many attempts ended with one error.
type ErrorCount struct {
	Error    string `json:"error"`
	Attempts int    `json:"attempts"`
}

// Quantiles of a set of durations, ns. Each is one of the values measured (nearest rank), not a guess between two; of more than
// 65,536 values all but the greatest are within 0.4 % of one.
type Quantiles struct {
	Count int   `json:"count"`
	P50   int64 `json:"p50_ns"`
	P90   int64 `json:"p90_ns"`
	P99   int64 `json:"p99_ns"`
	Max   int64 `json:"max_ns"`
}

// quantiles of no values are the zero Quantiles, which JSON leaves out.
func quantiles(v *experiment.Values) Quantiles {
	return Quantiles{Count: int(v.Count()), P50: v.Quantile(0.50), P90: v.Quantile(0.90), P99: v.Quantile(0.99), Max: v.Max()}
}

// of says how many requests the workload has, of which the summary knows those that were sent.
func (s *Summary) of(requests int) {
	s.Requests, s.NotSent = requests, requests-s.Requests
}

// A tally gathers results, in memory that does not grow with them.
type tally struct {
	sum                          Summary
	outcomes                     [TimedOut + 1]int
	lateness, itl, tpot          experiment.Values
	ttftPlanned, ttftSent        experiment.Values
	e2ePlanned, e2eSent          experiment.Values
	firstPlanned, lastPlanned    int64
	firstSent, lastSent, lastEnd int64
	errors                       map[string]int
	lastOf                       map[int]int64 // scratch: sequence → its last chunk
}

func newTally() *tally {
	return &tally{
		firstPlanned: math.MaxInt64, firstSent: math.MaxInt64,
		errors: make(map[string]int), lastOf: make(map[int]int64),
	}
}

// maxErrors bounds how many different errors are kept apart.
const maxErrors = 1000

func (t *tally) add(r *Result) {
	t.sum.Attempts++
	if r.NewConnection {
		t.sum.Connections++
	}
	if r.Error != "" {
		if _, known := t.errors[r.Error]; known || len(t.errors) < maxErrors {
			t.errors[r.Error]++
		}
	}
	t.lastEnd = max(t.lastEnd, r.End)
	if r.Attempt == 1 {
		t.lateness.Add(r.Sent - r.Planned)
		t.firstPlanned, t.lastPlanned = min(t.firstPlanned, r.Planned), max(t.lastPlanned, r.Planned)
		t.firstSent, t.lastSent = min(t.firstSent, r.Sent), max(t.lastSent, r.Sent)
	}
	if r.Final {
		t.sum.Requests++
		t.outcomes[r.Outcome]++
		t.addLatencies(r)
	}
}

func (t *tally) addLatencies(r *Result) {
	if r.OutputTokens > 0 {
		t.sum.PromptTokens += int64(r.PromptTokens)
		t.sum.OutputTokens += int64(r.OutputTokens)
	}
	if len(r.Chunks) > 0 {
		t.sum.Chunks += len(r.Chunks)
		t.ttftPlanned.Add(r.First - r.Planned)
		t.ttftSent.Add(r.First - r.Sent)
	}
	clear(t.lastOf)
	for _, c := range r.Chunks {
		if last, ok := t.lastOf[c.Sequence]; ok {
			t.itl.Add(c.At - last)
		}
		t.lastOf[c.Sequence] = c.At
	}
	if r.Outcome != Complete {
		return
	}
	t.e2ePlanned.Add(r.End - r.Planned)
	t.e2eSent.Add(r.End - r.Sent)
	if !r.UsageReported {
		t.sum.WithoutUsage++
	}
	if gaps := float64(r.OutputTokens)/float64(r.Sequences) - 1; gaps > 0 && len(r.Chunks) > 0 {
		t.tpot.Add(int64(float64(r.End-r.First) / gaps))
	}
}

// summary computes what the values add up to. The tally is of no further use.
func (t *tally) summary(o *Options, delayed, peak int) Summary {
	s := t.sum
	s.Run, s.Endpoint = o.Run, o.endpoint()
	s.MaxInFlight, s.PeakInFlight, s.Delayed = o.MaxInFlight, peak, delayed
	s.Outcomes = Outcomes{
		Complete: t.outcomes[Complete], HTTPError: t.outcomes[HTTPError], ConnectionError: t.outcomes[ConnectionError],
		Cancelled: t.outcomes[Cancelled], TimedOut: t.outcomes[TimedOut],
	}
	if first := float64(t.lateness.Count()); first > 0 {
		s.SpanNs = t.lastEnd - t.firstPlanned
		s.OfferedRate = perSecond(first-1, t.lastPlanned-t.firstPlanned)
		s.SentRate = perSecond(first-1, t.lastSent-t.firstSent)
		s.CompletedRate = perSecond(float64(s.Outcomes.Complete), s.SpanNs)
		s.OutputRate = perSecond(float64(s.OutputTokens), s.SpanNs)
		s.PromptRate = perSecond(float64(s.PromptTokens), s.SpanNs)
	}
	s.Lateness = quantiles(&t.lateness)
	s.TTFTFromPlanned, s.TTFTFromSent = quantiles(&t.ttftPlanned), quantiles(&t.ttftSent)
	s.ITL, s.TPOT = quantiles(&t.itl), quantiles(&t.tpot)
	s.E2EFromPlanned, s.E2EFromSent = quantiles(&t.e2ePlanned), quantiles(&t.e2eSent)
	for text, n := range t.errors {
		s.Errors = append(s.Errors, ErrorCount{text, n})
	}
	slices.SortFunc(s.Errors, func(a, b ErrorCount) int {
		return cmp.Or(cmp.Compare(b.Attempts, a.Attempts), cmp.Compare(a.Error, b.Error))
	})
	s.Errors = s.Errors[:min(len(s.Errors), 20)]
	return s
}

func perSecond(n float64, ns int64) float64 {
	if ns <= 0 {
		return 0
	}
	return n / (float64(ns) / 1e9)
}
