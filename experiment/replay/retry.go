package replay

import (
	"context"
	"net/http"
	"time"
)

// Limits of retrying.
const (
	maxRetries   = 100
	maxRetryWait = time.Minute
)

// do makes the attempts that a job gets and returns what came of each.
func (c *client) do(ctx context.Context, j *job) []Result {
	var results []Result
	jitter := c.random(j.index)
	for wait := c.RetryWait; ; wait = min(2*wait, maxRetryWait) {
		r := c.attempt(ctx, j, len(results)+1)
		results = append(results, r)
		if len(results) > c.Retries || !r.mayRetry() {
			break
		}
		// Half of the wait is certain, half is chance, so that the refused do not all come back at once.
		random := float64(jitter.Uint64()>>11) / (1 << 53)
		if c.Clock.SleepUntil(ctx, r.End+int64(float64(wait)*(1+random)/2)) != nil {
			break
		}
	}
	results[len(results)-1].Final = true
	return results
}

// mayRetry says whether another attempt could end otherwise without repeating output that the client has seen.
func (r *Result) mayRetry() bool {
	if len(r.Chunks) > 0 {
		return false
	}
	switch r.Outcome {
	case ConnectionError:
		return true
	case HTTPError:
		switch r.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return true
		}
	}
	return false
}
