package overhead

import (
	"errors"
	"fmt"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Load is what every server is given: a warm-up that is not measured, the workload, and a burst that shows how much it can do at most.
type Load struct {
	Workload []experiment.Request
	WarmUp   time.Duration // so much of the workload's beginning, its first request at least, once before
	Burst    int           // requests like the workload's first ones, all at once; 0 is none
}

// MaxRequests bounds a workload that is made from a rate and a time.
const MaxRequests = 1_000_000

// Steady makes a workload of equal requests at equal distances: rate a second, for so long.
func Steady(rate float64, length time.Duration, prompt, output int) ([]experiment.Request, error) {
	n := rate*length.Seconds() + 1e-9 // 10 a second for 0.3 s are 3
	switch {
	case !(rate > 0) || rate > MaxRequests:
		return nil, fmt.Errorf("rate %v: give requests a second above 0", rate)
	case length <= 0:
		return nil, fmt.Errorf("length %v: give a time above 0", length)
	case n < 1 || n > MaxRequests:
		return nil, fmt.Errorf("%v requests a second for %v are %.1f requests: choose 1 to %d", rate, length, n, MaxRequests)
	}
	w := make([]experiment.Request, int(n))
	for i := range w {
		w[i] = experiment.Request{At: time.Duration(float64(i) / rate * 1e9), PromptTokens: prompt, OutputTokens: output}
		if err := w[i].Validate(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// check holds that the load can be played.
func (l *Load) check() error {
	switch {
	case len(l.Workload) == 0:
		return errors.New("the workload is empty: give at least one request")
	case l.WarmUp < 0:
		return fmt.Errorf("warm-up %v: give 0 or more", l.WarmUp)
	case l.Burst < 0 || l.Burst > MaxRequests:
		return fmt.Errorf("burst of %d requests: give 0 to %d", l.Burst, MaxRequests)
	}
	return nil
}

// warmUp is the part of the workload that lies in the warm-up, its first request at least.
func (l *Load) warmUp() []experiment.Request {
	w := l.Workload
	n := 1
	for n < len(w) && w[n].At-w[0].At < l.WarmUp {
		n++
	}
	return w[:n]
}

// burst is that many requests at one moment: the workload's own, again from its beginning where there are more.
func (l *Load) burst() []experiment.Request {
	b := make([]experiment.Request, l.Burst)
	for i := range b {
		b[i] = l.Workload[i%len(l.Workload)]
		b[i].At = 0
		b[i].ID = "" // each its own, or equal prompts would meet in the prefix cache
	}
	return b
}

// String is the load in words.
func (l *Load) String() string {
	w := l.Workload
	prompt, output := 0, 0
	for i := range w {
		prompt += w[i].PromptTokens
		output += w[i].OutputTokens * w[i].Sequences()
	}
	s := fmt.Sprintf("%d requests in %.0f s (mean %d + %d tokens)", len(w), (w[len(w)-1].At - w[0].At).Seconds(), prompt/len(w), output/len(w))
	if l.Burst > 0 {
		s += fmt.Sprintf(", then %d at once", l.Burst)
	}
	return s
}
