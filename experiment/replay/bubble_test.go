package replay

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/whylate/whylate/experiment"
)

// inBubble runs f where time is synctest's: it goes on only while everybody waits, so every time that f sees is exact.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// bubbleClock reads the time package's clock, which is the bubble's.
type bubbleClock struct{}

func (bubbleClock) Now() int64 { return time.Now().UnixNano() }

func (c bubbleClock) SleepUntil(ctx context.Context, at int64) error {
	timer := time.NewTimer(time.Duration(at - c.Now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

// pipes is a listener whose connections are pipes in memory: sockets would keep a bubble's time from going on.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-p.closed:
		return nil, fmt.Errorf("connection refused")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// replayed runs the workload against the handler within the bubble and returns the summary, the error and the results in the
// order of their requests and attempts. Times are ns since the call.
func replayed(t *testing.T, o Options, workload []experiment.Request, handler http.HandlerFunc) (Summary, []Result, error) {
	t.Helper()
	return replayedUntil(t, context.Background(), o, workload, handler)
}

func replayedUntil(t *testing.T, ctx context.Context, o Options, workload []experiment.Request, handler http.HandlerFunc) (Summary, []Result, error) {
	t.Helper()
	listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()

	zero := bubbleClock{}.Now()
	byPlace := make(map[[2]int]Result)
	o.Base, o.Clock, o.Dial = "http://engine", bubbleClock{}, listener.dial
	if o.Run == "" {
		o.Run = "test"
	}
	o.Recorder = func(r Result) {
		for _, time := range []*int64{&r.Planned, &r.Sent, &r.First, &r.End} {
			if *time != 0 {
				*time -= zero
			}
		}
		for i := range r.Chunks {
			r.Chunks[i].At -= zero
		}
		byPlace[[2]int{r.Index, r.Attempt}] = r
	}
	// The summary counts durations only, so that the shift above, which it may see in the chunks, does it no harm: the
	// recorder is called after it.
	summary, err := Run(ctx, o, workload)
	var results []Result
	for i := range workload {
		for attempt := 1; ; attempt++ {
			r, ok := byPlace[[2]int{i, attempt}]
			if !ok {
				break
			}
			results = append(results, r)
		}
	}
	return summary, results, err
}

// every returns n requests of 5 + 3 tokens, one after each gap.
func every(gap time.Duration, n int) []experiment.Request {
	requests := make([]experiment.Request, n)
	for i := range requests {
		requests[i] = experiment.Request{At: time.Duration(i) * gap, PromptTokens: 5, OutputTokens: 3}
	}
	return requests
}

// engine answers with chunks after the given waits, then usage and [DONE].
func engine(waits ...time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		begin(w)
		for i, wait := range waits {
			if !sleep(r.Context(), wait) {
				return
			}
			finish := "null"
			if i == len(waits)-1 {
				finish = `"length"`
			}
			send(w, fmt.Sprintf(`{"id":"cmpl-%s","choices":[{"index":0,"text":"x","finish_reason":%s}]}`, r.Header.Get("X-Request-Id"), finish))
		}
		send(w, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":%d}}`, len(waits)))
		send(w, "[DONE]")
	}
}

func begin(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
}

func send(w http.ResponseWriter, data ...string) {
	for _, d := range data {
		io.WriteString(w, "data: "+d+"\n\n")
	}
	w.(http.Flusher).Flush()
}

// sleep waits, unless the client hangs up first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// text is a short form of a result, times in ms, for comparing.
func text(r Result) string {
	var chunks []string
	for _, c := range r.Chunks {
		chunks = append(chunks, fmt.Sprintf("%d@%v", c.Sequence, float64(c.At)/1e6))
	}
	at := func(ns int64) float64 { return float64(ns) / 1e6 }
	s := fmt.Sprintf("%d.%d planned %v sent %v first %v end %v: %d %v", r.Index, r.Attempt, at(r.Planned), at(r.Sent), at(r.First), at(r.End), r.Status, r.Outcome)
	if len(chunks) > 0 {
		s += " [" + strings.Join(chunks, " ") + "]"
	}
	if r.Error != "" {
		s += ": " + r.Error
	}
	return s
}

func wantResults(t *testing.T, results []Result, want ...string) {
	t.Helper()
	var got []string
	for _, r := range results {
		got = append(got, text(r))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
