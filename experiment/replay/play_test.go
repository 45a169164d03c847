package replay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

// played is [replayed] for a source: the results in the order in which they ended.
func played(t *testing.T, o Options, source experiment.Source, handler http.HandlerFunc) (Summary, []Result, error) {
	t.Helper()
	listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: handler}
	go server.Serve(listener)
	defer server.Close()
	zero := bubbleClock{}.Now()
	o.Base, o.Clock, o.Dial, o.Run = "http://engine", bubbleClock{}, listener.dial, "test"
	var results []Result
	o.Recorder = func(r Result) {
		r.Planned, r.Sent, r.End = r.Planned-zero, r.Sent-zero, r.End-zero
		results = append(results, r)
	}
	summary, err := Play(context.Background(), o, source)
	return summary, results, err
}

// thinking has two requests of its own, 1 s apart, each of which two others follow, the think time after the answer.
type thinking struct {
	first   int
	follows int
	ends    []time.Duration
}

func (s *thinking) Next() (experiment.Request, error) {
	if s.first++; s.first > 2 {
		return experiment.Request{}, io.EOF
	}
	return experiment.Request{At: time.Duration(s.first) * time.Second, PromptTokens: 5, OutputTokens: 3}, nil
}

func (s *thinking) Finished(r *experiment.Request, at time.Duration) (experiment.Request, bool, error) {
	s.ends = append(s.ends, at)
	if s.follows++; s.follows > 4 {
		return experiment.Request{}, false, nil
	}
	return experiment.Request{At: at + 2*time.Second, PromptTokens: 5, OutputTokens: 3}, true, nil
}

func TestWhatFollowsFromAnAnswerIsSentAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		source := &thinking{}
		summary, results, err := played(t, Options{Speed: 2}, source, engine(300*time.Millisecond, 700*time.Millisecond))
		if err != nil || summary.Requests != 6 || summary.NotSent != 0 || summary.Outcomes.Complete != 6 || summary.PeakInFlight != 2 {
			t.Fatal(err, summary)
		}
		// Twice as fast: 0.5 s apart, 1 s of thinking, and answers of 1 s, which are 2 s of the workload.
		var sent []time.Duration
		for _, r := range results {
			if r.Sent != r.Planned {
				t.Errorf("request %d is %v late", r.Index, time.Duration(r.Sent-r.Planned))
			}
			sent = append(sent, time.Duration(r.Sent))
		}
		slices.Sort(sent)
		want := []time.Duration{0, 500, 2000, 2500, 4000, 4500}
		for i := range want {
			if sent[i] != want[i]*time.Millisecond {
				t.Fatalf("sent at %v", sent)
			}
		}
		slices.Sort(source.ends)
		if source.ends[0] != 3*time.Second || source.ends[5] != 12*time.Second {
			t.Errorf("the source was told of answers at %v", source.ends)
		}
	})
}

// failing gives some requests, then an error.
type failingStream struct {
	good int
	err  error
}

func (s *failingStream) Next() (experiment.Request, error) {
	if s.good--; s.good < 0 {
		return experiment.Request{}, s.err
	}
	return experiment.Request{At: time.Duration(10-s.good) * time.Second, PromptTokens: 5, OutputTokens: 3}, nil
}

func TestPlayEndsWhereTheWorkloadBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		broken := errors.New("line 4 is bad")
		summary, results, err := played(t, Options{}, experiment.Open(&failingStream{3, broken}), engine(time.Minute))
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "after 3 requests") || len(results) != 3 || summary.Outcomes.Complete != 3 {
			t.Error(err, summary.Outcomes, len(results))
		}
	})
}

func TestPlayOfNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		if summary, _, err := played(t, Options{}, experiment.Open(experiment.Requests(nil)), engine(0)); err != nil || summary.Requests != 0 {
			t.Error(summary, err)
		}
	})
}

func TestFollowersHeedTheLimitOfRequestsInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		summary, results, err := played(t, Options{MaxInFlight: 1}, &thinking{}, engine(1500*time.Millisecond))
		if err != nil || summary.PeakInFlight != 1 || summary.Delayed == 0 || len(results) != 6 {
			t.Error(err, summary.PeakInFlight, summary.Delayed, len(results))
		}
	})
}
