package dialect

import "github.com/whylate/whylate/ledger"

// counts are what vLLM counts of one engine.
type counts struct {
	now                       state
	queries, hits             float64 // prompt tokens asked of the prefix cache, and found
	preemptions               float64
	prompt, cached, generated float64 // tokens
	success                   [len(reasons)]float64
	drafts, drafted           float64
	acceptedAt                []float64 // by position

	ttft, itl, tpot, e2e, queue, inference, prefill, decode *histogram // s
	promptTokens, generationTokens, iterationTokens         *histogram
	mostTokens, paramN, paramMost, preempted, computed      *histogram
}

// reasons are the finish reasons, in the order of the page.
var reasons = [...]ledger.FinishReason{ledger.FinishStop, ledger.FinishLength, ledger.FinishAbort, ledger.FinishError, ledger.FinishRepetition}

// Buckets, as the engine has them.
var (
	firstBounds      = []float64{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	tokenBounds      = []float64{.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	requestBounds    = []float64{.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	iterationBounds  = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	choiceBounds     = []float64{1, 2, 5, 10, 20}
	preemptionBounds = []float64{1, 2, 3, 4, 5, 10, 20}
)

// lengthBounds are those of numbers of tokens: 1, 2, 5, 10 and so on, up to the longest sequence.
func lengthBounds(most int) (bounds []float64) {
	for ten := 1; ; ten *= 10 {
		for _, digit := range []int{1, 2, 5} {
			if digit*ten > most {
				return bounds
			}
			bounds = append(bounds, float64(digit*ten))
		}
	}
}

// newCounts counts nothing yet, of an engine whose sequences have so many tokens at most, and that drafts so many at once.
func newCounts(longest, drafts int) *counts {
	lengths := lengthBounds(longest)
	return &counts{
		acceptedAt: make([]float64, drafts),
		ttft:       newHistogram(firstBounds), itl: newHistogram(tokenBounds), tpot: newHistogram(tokenBounds), e2e: newHistogram(requestBounds),
		queue: newHistogram(requestBounds), inference: newHistogram(requestBounds), prefill: newHistogram(requestBounds), decode: newHistogram(requestBounds),
		promptTokens: newHistogram(lengths), generationTokens: newHistogram(lengths), iterationTokens: newHistogram(iterationBounds),
		mostTokens: newHistogram(lengths), paramN: newHistogram(choiceBounds), paramMost: newHistogram(lengths), preempted: newHistogram(preemptionBounds), computed: newHistogram(lengths),
	}
}

// state takes what the scheduler says of itself.
func (c *counts) state(s *state) {
	c.now = *s
	c.queries += float64(s.queries)
	c.hits += float64(s.hits)
	for _, d := range s.drafts {
		c.drafts++
		c.drafted += float64(d.tokens)
		for i := range min(d.taken, len(c.acceptedAt)) {
			c.acceptedAt[i]++
		}
	}
}

// output takes what a message brings.
func (c *counts) output(v version, o *output) {
	c.prompt += float64(o.prompts)
	c.cached += float64(o.cached)
	c.generated += float64(o.tokens)
	c.preemptions += float64(o.lost)
	for _, q := range o.first {
		c.ttft.observe(o.receipt - q.arrival)
	}
	for _, gap := range o.later {
		c.itl.observe(gap)
	}
	c.iterationTokens.observe(float64(v.iterationPrompt(o) + o.tokens)) // 0 where all it brings is for requests whose client went
}

// ended takes the end of a sequence, which is one of its parent's.
func (c *counts) ended(q *sequence, p *parent) {
	for i, r := range reasons {
		if r == q.reason {
			c.success[i]++
		}
	}
	c.e2e.observe(q.receipt - q.arrival)
	c.queue.observe(q.scheduled - q.queued)
	c.prefill.observe(q.firstAt - q.scheduled)
	c.inference.observe(q.lastAt - q.scheduled)
	c.decode.observe(q.lastAt - q.firstAt)
	c.tpot.observe(q.perToken())
	c.promptTokens.observe(float64(q.prompt))
	c.generationTokens.observe(float64(q.output))
	c.computed.observe(float64(q.prompt - q.cached))
	c.preempted.observe(float64(q.preempted))
	if q.most > 0 {
		c.paramMost.observe(float64(q.most))
	}
	if p.open == 0 {
		c.mostTokens.observe(float64(p.most))
		c.paramN.observe(float64(p.sequences))
	}
}

// perToken is the mean time per output token after the first, s.
func (q *sequence) perToken() float64 {
	if q.output <= 1 {
		return 0
	}
	return (q.lastAt - q.firstAt) / float64(q.output-1)
}
