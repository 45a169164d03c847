package workload

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/experiment"
)

// A Distribution of lengths is given by some of its quantiles. Between two of them it is even on a logarithmic scale, as
// lengths span orders of magnitude. The zero value is always 1.
type Distribution []Quantile

// A Quantile says that the part Below of all lengths is at most Length.
type Quantile struct {
	Below  float64 // 0 to 1
	Length float64
}

// Fixed is the distribution of one length.
func Fixed(length int) Distribution { return Distribution{{0, float64(length)}} }

const distributionAdvice = "give a length such as 512, a range such as 100-200, or quantiles such as p50=512,p90=2000,p99=8000"

// ParseDistribution reads "512", a range "100-200", or quantiles "p50=512,p90=2000,p99=8000". Where p0 is not given it is 1,
// where p100 is not given it is the last one that is.
func ParseDistribution(text string) (Distribution, error) {
	bad := func() error { return fmt.Errorf("lengths %q: %s", text, distributionAdvice) }
	if !strings.Contains(text, "=") {
		low, high, isRange := strings.Cut(text, "-")
		if !isRange {
			high = low
		}
		from, err1 := parseLength(low)
		to, err2 := parseLength(high)
		if err1 != nil || err2 != nil || to < from {
			return nil, bad()
		}
		return Distribution{{0, from}, {1, to}}, nil
	}
	d := Distribution{{0, 1}}
	for _, part := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		percent, err1 := strconv.ParseFloat(strings.TrimPrefix(name, "p"), 64)
		length, err2 := parseLength(value)
		if err1 != nil || err2 != nil || !strings.HasPrefix(name, "p") || !(percent >= 0 && percent <= 100) {
			return nil, bad()
		}
		if percent == 0 {
			d[0].Length = length
			continue
		}
		d = append(d, Quantile{percent / 100, length})
	}
	slices.SortStableFunc(d, func(a, b Quantile) int { return cmp.Compare(a.Below, b.Below) })
	for i := 1; i < len(d); i++ {
		if d[i].Below == d[i-1].Below || d[i].Length < d[i-1].Length {
			return nil, fmt.Errorf("lengths %q: a higher quantile is not below a lower one, and each is given once", text)
		}
	}
	return d, nil
}

func parseLength(text string) (float64, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > experiment.MaxTokens {
		return 0, strconv.ErrRange
	}
	return float64(n), nil
}

// draw returns a length.
func (d Distribution) draw(random *rand.Rand) int {
	u := random.Float64() // also where the length is fixed: what is drawn after it stays the same
	if len(d) == 0 {
		return 1
	}
	i := slices.IndexFunc(d, func(q Quantile) bool { return q.Below > u })
	if i < 0 {
		return int(d[len(d)-1].Length)
	}
	if i == 0 {
		return int(d[0].Length)
	}
	a, b := d[i-1], d[i]
	part := (u - a.Below) / (b.Below - a.Below)
	return int(math.Round(math.Exp(math.Log(a.Length) + part*math.Log(b.Length/a.Length))))
}

// Lengths draws the lengths of a prompt and of its answer.
type Lengths func(*rand.Rand) (prompt, output int)

// Independent draws both from distributions of their own.
func Independent(prompt, output Distribution) Lengths {
	return func(random *rand.Rand) (int, int) { return prompt.draw(random), output.draw(random) }
}

// traceSample is how many pairs of lengths are kept of a trace, 1 MiB.
const traceSample = 1 << 16

// LengthsOf draws pairs of lengths as they occur in a workload, so that a long prompt keeps the answers that long prompts have.
// Of more than 65,536 requests an even sample is kept (Vitter's algorithm R).
func LengthsOf(s experiment.Stream, seed uint64) (Lengths, error) {
	random := rand.New(rand.NewPCG(seed, forTrace))
	var pairs [][2]int
	for n := 0; ; n++ {
		r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		pair := [2]int{r.PromptTokens, r.OutputTokens}
		if n < traceSample {
			pairs = append(pairs, pair)
		} else if i := random.IntN(n + 1); i < traceSample {
			pairs[i] = pair
		}
	}
	if len(pairs) == 0 {
		return nil, errors.New("lengths of a workload that has no request")
	}
	return func(random *rand.Rand) (int, int) {
		p := pairs[random.IntN(len(pairs))]
		return p[0], p[1]
	}, nil
}
