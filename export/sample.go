package export

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
)

// whole is 2^56: the randomness R and the threshold T of OpenTelemetry's consistent probability sampling are below it.
const whole = uint64(1) << 56

// Sampling says which requests leave: a share without bias, every failed one, and every late one.
type Sampling struct {
	OneIn    int           // 1 = all; 0 = none for its own sake
	TailTTFT time.Duration // whoever's TTFT is longer leaves; 0 = nobody for that
	TailE2E  time.Duration // whoever took longer leaves; 0 = nobody for that
}

// Reasons why a request left.
const (
	Baseline = "baseline" // the share without bias
	Failed   = "error"
	Late     = "tail"
)

// threshold is the rejection threshold of the share, to four hexadecimal digits after those that only say how small the share is (fd70a for
// one in a hundred), as OpenTelemetry's SDKs round it.
func (s Sampling) threshold() uint64 {
	if s.OneIn <= 0 {
		return whole
	}
	t := whole - whole/uint64(s.OneIn)
	digits := 4
	for shift := 52; shift > 0 && t>>shift&0xf == 0xf; shift -= 4 {
		digits++
	}
	if digits >= 14 {
		return t
	}
	unit := uint64(1) << (4 * (14 - digits))
	return (t + unit/2) / unit * unit
}

// choice is why a request leaves, and with what probability. Whether it failed or was late does not depend on R, so such a request leaves
// with certainty and stands for itself alone.
type choice struct {
	r, t    uint64 // R and T: kept where R ≥ T
	reasons []string
}

func (s Sampling) choose(r uint64, a *account.Account, failed bool) (c choice, keep bool) {
	c = choice{r: r, t: s.threshold()}
	if r >= c.t {
		c.reasons = append(c.reasons, Baseline)
	}
	certain := len(c.reasons)
	if failed {
		c.reasons = append(c.reasons, Failed)
	}
	if over(a.TTFT, s.TailTTFT) || over(a.E2E(), s.TailE2E) {
		c.reasons = append(c.reasons, Late)
	}
	if len(c.reasons) > certain {
		c.t = 0
	}
	return c, len(c.reasons) > 0
}

func over(ns int64, limit time.Duration) bool { return limit > 0 && ns > int64(limit) }

// certain reports a request that leaves whatever its randomness.
func (c *choice) certain() bool { return c.t == 0 }

// mark writes the choice on every span of a request: th and, where the trace id is not random, rv in the tracestate; the reasons on the first.
func (c *choice) mark(t *Trace, random bool) {
	state := "ot=th:" + digits(c.t)
	if !random {
		state += fmt.Sprintf(";rv:%014x", c.r)
	}
	for _, s := range t.Spans {
		s.TraceState = state
	}
	at := attributes(t.Spans[0].Attributes)
	at.texts("whylate.sampling.reasons", c.reasons)
	t.Spans[0].Attributes = at
}

// digits are those of a threshold, without zeros at the end.
func digits(t uint64) string {
	s := strings.TrimRight(fmt.Sprintf("%014x", t), "0")
	if s == "" {
		return "0"
	}
	return s
}

// thin keeps as many of some requests as their spans fit into a budget: those with the highest R, and gives them the threshold that this
// amounts to. So a limit raises the threshold and leaves the weights true.
func thin(items []*item, budget int) (kept, over []*item, left int) {
	spans := 0
	for _, it := range items {
		spans += len(it.trace.Spans)
	}
	if spans <= budget {
		return items, nil, budget - spans
	}
	slices.SortStableFunc(items, func(a, b *item) int {
		switch {
		case a.choice.r > b.choice.r:
			return -1
		case a.choice.r < b.choice.r:
			return 1
		}
		return 0
	})
	n := 0
	for n < len(items) && len(items[n].trace.Spans) <= budget {
		budget -= len(items[n].trace.Spans)
		n++
	}
	kept, over = items[:n], items[n:]
	for _, it := range kept {
		it.choice.t = max(it.choice.t, min(over[0].choice.r+1, it.choice.r))
	}
	return kept, over, budget
}
