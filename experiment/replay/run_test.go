package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

const ms = time.Millisecond

func TestTimesAreExact(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		summary, results, err := replayed(t, Options{}, every(100*ms, 3), engine(50*ms, 20*ms, 30*ms))
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, results,
			"0.1 planned 0 sent 0 first 50 end 100: 200 complete [0@50 0@70 0@100]",
			"1.1 planned 100 sent 100 first 150 end 200: 200 complete [0@150 0@170 0@200]",
			"2.1 planned 200 sent 200 first 250 end 300: 200 complete [0@250 0@270 0@300]")
		for _, r := range results {
			if r.ResponseID != "cmpl-"+r.RequestID || r.PromptTokens != 5 || r.OutputTokens != 3 || !r.UsageReported || !r.Final || r.Sequences != 1 {
				t.Errorf("%+v", r)
			}
		}
		q := func(n int, d ...time.Duration) Quantiles {
			return Quantiles{n, int64(d[0]), int64(d[1]), int64(d[1]), int64(d[1])}
		}
		if summary.TTFTFromSent != q(3, 50*ms, 50*ms) || summary.ITL != q(6, 20*ms, 30*ms) || summary.TPOT != q(3, 25*ms, 25*ms) ||
			summary.E2EFromPlanned != q(3, 100*ms, 100*ms) || summary.Lateness != q(3, 0, 0) || summary.SpanNs != int64(300*ms) ||
			summary.OfferedRate != 10 || summary.SentRate != 10 || summary.CompletedRate != 10 || summary.OutputRate != 30 {
			t.Errorf("%+v", summary)
		}
	})
}

// oneAtATime is a server that works on one request at a time, a second each, and keeps the others waiting.
func oneAtATime() http.HandlerFunc {
	busy := make(chan struct{}, 1)
	return func(w http.ResponseWriter, r *http.Request) {
		busy <- struct{}{}
		engine(time.Second)(w, r)
		<-busy
	}
}

func TestSlowServerDoesNotSlowTheSending(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		summary, results, err := replayed(t, Options{}, every(100*ms, 10), oneAtATime())
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range results {
			if at := int64(i) * int64(100*ms); r.Planned != at || r.Sent != at {
				t.Errorf("request %d: planned %d, sent %d, want %d", i, r.Planned, r.Sent, at)
			}
		}
		if summary.Lateness.Max != 0 || summary.PeakInFlight != 10 || summary.Delayed != 0 || summary.TTFTFromSent != summary.TTFTFromPlanned {
			t.Errorf("%+v", summary)
		}
		// The tenth waits for the nine before it: 10 s less the 0.9 s by which it came later.
		if want := int64(9100 * ms); summary.TTFTFromSent.Max != want {
			t.Errorf("worst TTFT %d, want %d", summary.TTFTFromSent.Max, want)
		}
	})
}

// With the sending held back, the time from sending looks as good as ever; the time from the plan tells the truth.
func TestLimitInFlightIsCountedAndCorrected(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		summary, _, err := replayed(t, Options{MaxInFlight: 1}, every(100*ms, 10), oneAtATime())
		if err != nil {
			t.Fatal(err)
		}
		if summary.TTFTFromSent.Max != int64(time.Second) || summary.TTFTFromPlanned.Max != int64(9100*ms) || summary.Lateness.Max != int64(8100*ms) {
			t.Errorf("%+v", summary)
		}
		if summary.Delayed != 9 || summary.PeakInFlight != 1 || summary.OfferedRate != 10 || summary.SentRate != 1 {
			t.Errorf("%+v", summary)
		}
	})
}

// A request that is due while another waits for a slot is delayed by the limit too, though it finds a free one.
func TestDelayedBehindADelayedOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := every(0, 4) // two slots: the third waits, and the fourth finds the slot that came free with the third's
		w[3].At = 900 * ms
		summary, _, err := replayed(t, Options{MaxInFlight: 2}, w, engine(time.Second))
		if err != nil || summary.Delayed != 2 {
			t.Errorf("%d delayed, %v", summary.Delayed, err)
		}
	})
}

func TestSpeed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := every(100*ms, 3)
		for i := range w {
			w[i].At += time.Hour // the workload's own zero may be anywhere
		}
		_, results, err := replayed(t, Options{Speed: 4}, w, engine(ms))
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, results,
			"0.1 planned 0 sent 0 first 1 end 1: 200 complete [0@1]",
			"1.1 planned 25 sent 25 first 26 end 26: 200 complete [0@26]",
			"2.1 planned 50 sent 50 first 51 end 51: 200 complete [0@51]")
	})
}

func TestClientsHangUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		hungUp := make(map[string]time.Duration)
		start := time.Now()
		handler := func(w http.ResponseWriter, r *http.Request) {
			engine(50*ms, 20*ms, 20*ms, 20*ms)(w, r)
			if r.Context().Err() != nil {
				mu.Lock()
				defer mu.Unlock()
				hungUp[r.Header.Get("X-Request-Id")] = time.Since(start)
			}
		}
		w := every(0, 5)
		w[0].CancelAfter = 80 * ms  // in the middle of the answer
		w[1].CancelAfter = 30 * ms  // before its first token
		w[2].CancelChunks = 3       // after three chunks
		w[3].CancelAfter = 200 * ms // too late: it is done by then
		w[4].CancelChunks = 5       // more than there are
		summary, results, err := replayed(t, Options{Retries: 3}, w, handler)
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, results,
			"0.1 planned 0 sent 0 first 50 end 80: 200 cancelled [0@50 0@70]",
			"1.1 planned 0 sent 0 first 0 end 30: 200 cancelled",
			"2.1 planned 0 sent 0 first 50 end 90: 200 cancelled [0@50 0@70 0@90]",
			"3.1 planned 0 sent 0 first 50 end 110: 200 complete [0@50 0@70 0@90 0@110]",
			"4.1 planned 0 sent 0 first 50 end 110: 200 complete [0@50 0@70 0@90 0@110]")
		want := map[string]time.Duration{"wl-test-0": 80 * ms, "wl-test-1": 30 * ms, "wl-test-2": 90 * ms}
		if !reflect.DeepEqual(hungUp, want) {
			t.Errorf("the server saw %v, want %v", hungUp, want)
		}
		if r := results[0]; r.UsageReported || r.OutputTokens != 2 || r.PromptTokens != 5 || r.ResponseID == "" {
			t.Errorf("tokens of a request that was hung up: %+v", r)
		}
		if summary.Outcomes != (Outcomes{Complete: 2, Cancelled: 3}) || summary.TPOT.Count != 2 || summary.TTFTFromSent.Count != 4 {
			t.Errorf("%+v", summary)
		}
	})
}

func TestTimeouts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		never := func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			switch r.Header.Get("X-Request-Id") {
			case "wl-test-1": // a head and no body
				begin(w)
			case "wl-test-2": // a body that never ends
				begin(w)
				for sleep(r.Context(), 450*ms) {
					send(w, `{"choices":[{"index":0,"text":"x"}]}`)
				}
			case "wl-test-3": // an error that never ends
				w.WriteHeader(http.StatusInternalServerError)
				io.WriteString(w, "out of ")
				w.(http.Flusher).Flush()
			case "wl-test-4": // an answer that is whole, and a body that never ends
				begin(w)
				send(w, `{"choices":[{"index":0,"text":"x","finish_reason":"length"}]}`, "[DONE]")
			}
			<-r.Context().Done()
		}
		_, results, err := replayed(t, Options{Timeout: 2 * time.Second}, every(0, 5), never)
		if err != nil {
			t.Fatal(err)
		}
		const late = ": no whole answer within the timeout of 2s"
		wantResults(t, results,
			"0.1 planned 0 sent 0 first 0 end 2000: 0 timed out"+late,
			"1.1 planned 0 sent 0 first 0 end 2000: 200 timed out"+late,
			"2.1 planned 0 sent 0 first 450 end 2000: 200 timed out [0@450 0@900 0@1350 0@1800]"+late,
			"3.1 planned 0 sent 0 first 0 end 1000: 500 HTTP error: 500 Internal Server Error: out of",
			"4.1 planned 0 sent 0 first 0 end 0: 200 complete [0@0]")
	})
}

func TestBadAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := func(want string, handler http.HandlerFunc) {
			t.Helper()
			_, results, err := replayed(t, Options{MaxLine: 1000}, every(0, 1), handler)
			if err != nil {
				t.Fatal(err)
			}
			wantResults(t, results, "0.1 planned 0 sent 0 "+want)
		}
		status := func(code int, body string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code); io.WriteString(w, body) }
		}
		stream := func(data ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { begin(w); send(w, data...) }
		}
		breaking := func(data ...string) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				stream(data...)(w, r)
				panic(http.ErrAbortHandler)
			}
		}
		const chunk, last = `{"choices":[{"index":0,"text":"x"}]}`, `{"choices":[{"index":0,"text":"x","finish_reason":"stop"}]}`

		f("first 0 end 0: 400 HTTP error: 400 Bad Request: max_tokens must be at least 1", status(400, `{"error":{"message":"max_tokens must be at least 1","code":400}}`))
		f("first 0 end 0: 429 HTTP error: 429 Too Many Requests: slow down", status(429, "slow\n down"))
		f("first 0 end 0: 401 HTTP error: 401 Unauthorized: Unauthorized", status(401, `{"error":"Unauthorized"}`))
		f("first 0 end 0: 502 HTTP error: 502 Bad Gateway", status(502, ""))
		f("first 0 end 0: 307 HTTP error: 307 Temporary Redirect to https://engine/: give that as the base URL", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://engine/", http.StatusTemporaryRedirect)
		})
		f(`first 0 end 0: 200 HTTP error: 200 OK of type application/json, want text/event-stream: does the server heed "stream" in the request?`, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"choices":[]}`)
		})
		f("first 0 end 0: 0 connection error: no answer: EOF", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		f("first 0 end 0: 200 connection error [0@0 0@0]: the stream broke: unexpected EOF", breaking(chunk, chunk))
		f("first 0 end 0: 200 connection error [0@0]: the stream ended after 1 chunks without [DONE]", stream(chunk))
		f("first 0 end 0: 200 HTTP error: the stream said [DONE] without any output", stream("[DONE]"))
		f("first 0 end 0: 200 HTTP error [0@0]: the server says: EngineCore encountered an issue", stream(chunk, `{"error":{"message":"EngineCore encountered an issue","code":500}}`, "[DONE]"))
		f(`first 0 end 0: 200 HTTP error [0@0 0@0]: {"choices": is not a completion: unexpected end of JSON input`, stream(chunk, `{"choices":`, last, "[DONE]"))
		f("first 0 end 0: 200 HTTP error [0@0]: a line of the stream is longer than the limit of 1000 bytes", stream(chunk, strings.Repeat("x", 9000)))

		// Whole without [DONE]: every sequence has its finish reason, even if the connection breaks after it.
		f("first 0 end 0: 200 complete [0@0 0@0]", stream(chunk, last))
		f("first 0 end 0: 200 complete [0@0 0@0]", breaking(chunk, last))
		// What comes after [DONE] is not looked at.
		f("first 0 end 0: 200 complete [0@0]", stream(last, "[DONE]", "nonsense"))
	})
}

// vLLM answers a token outside of the vocabulary with status 200 and an error event.
func TestRealErrorStream(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		_, results, _ := replayed(t, Options{}, every(0, 1), func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			w.Write(realStreams(t)["vllm-error"])
		})
		wantResults(t, results, "0.1 planned 0 sent 0 first 0 end 0: 200 HTTP error: the server says: Token id 99999 is out of vocabulary")
	})
}

func TestSeveralSequences(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := every(0, 1)
		w[0].N = 2
		summary, results, err := replayed(t, Options{}, w, func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			for step := range 3 {
				time.Sleep(10 * ms)
				finish := "null"
				if step == 2 {
					finish = `"length"`
				}
				send(w, fmt.Sprintf(`{"choices":[{"index":1,"text":"x","finish_reason":%s}]}`, finish), fmt.Sprintf(`{"choices":[{"index":0,"text":"x","finish_reason":%s}]}`, finish))
			}
			send(w, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}`)
		})
		if err != nil {
			t.Fatal(err)
		}
		wantResults(t, results, "0.1 planned 0 sent 0 first 10 end 30: 200 complete [1@10 0@10 1@20 0@20 1@30 0@30]")
		if ten := int64(10 * ms); summary.ITL != (Quantiles{4, ten, ten, ten, ten}) || summary.TPOT != (Quantiles{1, ten, ten, ten, ten}) {
			t.Errorf("the gaps of one sequence are 10 ms: %+v, %+v", summary.ITL, summary.TPOT)
		}

		// One of two sequences without its end is not a whole answer.
		_, results, _ = replayed(t, Options{}, w, func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			send(w, `{"choices":[{"index":1,"text":"x","finish_reason":"stop"}]}`)
		})
		wantResults(t, results, "0.1 planned 0 sent 0 first 0 end 0: 200 connection error [1@0]: the stream ended after 1 chunks without [DONE]")
	})
}

func TestRetries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		seen := make(map[string][]string) // id → traceparents
		handler := func(w http.ResponseWriter, r *http.Request) {
			id := r.Header.Get("X-Request-Id")
			mu.Lock()
			seen[id] = append(seen[id], r.Header.Get("Traceparent"))
			n := len(seen[id])
			mu.Unlock()
			switch {
			case id == "wl-test-0" && n == 1:
				w.WriteHeader(503)
			case id == "wl-test-0" && n == 2:
				panic(http.ErrAbortHandler)
			case id == "wl-test-1": // for good
				w.WriteHeader(400)
			case id == "wl-test-2": // output has been seen: it must not come again
				begin(w)
				send(w, `{"choices":[{"text":"x"}]}`)
				panic(http.ErrAbortHandler)
			case id == "wl-test-3": // always
				w.WriteHeader(429)
			default:
				engine(ms)(w, r)
			}
		}
		summary, results, err := replayed(t, Options{Retries: 2}, every(0, 4), handler)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range results {
			got = append(got, fmt.Sprintf("%d.%d %v %v", r.Index, r.Attempt, r.Outcome, r.Final))
			if r.Planned != 0 || r.RequestID != fmt.Sprintf("wl-test-%d", r.Index) {
				t.Errorf("%+v", r)
			}
		}
		want := []string{
			"0.1 HTTP error false", "0.2 connection error false", "0.3 complete true",
			"1.1 HTTP error true", "2.1 connection error true",
			"3.1 HTTP error false", "3.2 HTTP error false", "3.3 HTTP error true",
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		first, second := results[1].Sent-results[0].End, results[2].Sent-results[1].End
		if first < int64(50*ms) || first > int64(100*ms) || second < int64(100*ms) || second > int64(200*ms) {
			t.Errorf("waits %v, %v", time.Duration(first), time.Duration(second))
		}
		if p := seen["wl-test-0"]; p[0][:35] != p[1][:35] || p[0] == p[1] || p[1] == p[2] {
			t.Errorf("attempts should be spans of one trace: %q", p)
		}
		if summary.Attempts != 8 || summary.Outcomes != (Outcomes{Complete: 1, HTTPError: 2, ConnectionError: 1}) || summary.Lateness.Count != 4 || summary.Lateness.Max != 0 {
			t.Errorf("%+v", summary)
		}
		if summary.TTFTFromPlanned.Max < int64(150*ms) {
			t.Errorf("the user's wait contains the retries: %+v", summary.TTFTFromPlanned)
		}
	})
}

func TestStop(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		stopped := errors.New("enough")
		ctx, stop := context.WithCancelCause(context.Background())
		go func() { time.Sleep(250 * ms); stop(stopped) }()
		summary, results, err := replayedUntil(t, ctx, Options{Retries: 1}, every(100*ms, 10), engine(time.Second))
		if !errors.Is(err, stopped) || !strings.Contains(err.Error(), "after 3 of 10 requests") {
			t.Errorf("error %v", err)
		}
		if len(results) != 3 || summary.NotSent != 7 || summary.Outcomes.Cancelled != 3 {
			t.Errorf("%d results, %+v", len(results), summary)
		}
		for _, r := range results {
			if r.End != int64(250*ms) || r.Error != "the replay was stopped: enough" {
				t.Errorf("%+v", r)
			}
		}
	})
}

func TestStopWhileHeldByTheLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(context.Background(), 250*ms)
		defer stop()
		summary, _, err := replayedUntil(t, ctx, Options{MaxInFlight: 1}, every(100*ms, 10), engine(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || summary.NotSent != 9 || summary.Delayed != 1 {
			t.Errorf("%v, %+v", err, summary)
		}
	})
}

func TestNobodyListens(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		listener := &pipes{closed: make(chan struct{})}
		listener.Close()
		summary, err := Run(t.Context(), Options{Base: "http://engine", Clock: bubbleClock{}, Dial: listener.dial}, every(ms, 3))
		if err != nil || summary.Outcomes.ConnectionError != 3 || len(summary.Errors) != 1 || summary.Errors[0] != (ErrorCount{"no answer: connection refused", 3}) {
			t.Errorf("%v, %+v", err, summary)
		}
	})
}

// A recorder that takes its time holds up no request.
func TestSlowRecorder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		listener := &pipes{accepted: nil, closed: make(chan struct{})}
		listener.Close()
		var sent []int64
		start := bubbleClock{}.Now()
		_, err := Run(t.Context(), Options{Base: "http://engine", Clock: bubbleClock{}, Dial: listener.dial, MaxInFlight: 1, Recorder: func(r Result) {
			time.Sleep(time.Second)
			sent = append(sent, r.Sent-start)
		}}, every(100*ms, 4))
		if err != nil || len(sent) != 4 {
			t.Fatal(err, sent)
		}
		for i, at := range sent {
			if at%int64(100*ms) != 0 || at > int64(300*ms) {
				t.Errorf("result %d was sent at %v", i, time.Duration(at))
			}
		}
	})
}

// request is what a server got.
type request struct {
	path string
	head http.Header
	body map[string]any
}

// requestsOf replays the workload and returns what the server got, by X-Request-Id.
func requestsOf(t *testing.T, o Options, w []experiment.Request) map[string]request {
	t.Helper()
	var mu sync.Mutex
	got := make(map[string]request)
	_, _, err := replayed(t, o, w, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		mu.Lock()
		got[r.Header.Get("X-Request-Id")] = request{r.URL.Path, r.Header, body}
		mu.Unlock()
		engine(0)(w, r)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestRequestBodies(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := []experiment.Request{
			{PromptTokens: 4, OutputTokens: 3, Prefix: []experiment.PrefixRun{{Hash: 1, Tokens: 2}}},
			{PromptTokens: 1, OutputTokens: 9, ID: "mine", N: 8, Logprobs: new(20), StopAtEOS: true},
			{PromptTokens: 1, OutputTokens: 9, PromptLogprobs: new(0), Logprobs: new(0)},
		}
		prompter, err := experiment.NewPrompter(experiment.PromptOptions{})
		if err != nil {
			t.Fatal(err)
		}
		keys := []string{"wl-test-0", "mine", "wl-test-2"}
		ids := func(i int) (list []any) {
			for _, id := range prompter.AppendTokens(nil, &w[i], keys[i]) {
				list = append(list, float64(id))
			}
			return list
		}
		letters := func(i int) string { return string(prompter.AppendText(nil, &w[i], keys[i])) }
		usage := map[string]any{"include_usage": true}
		f := func(o Options, path string, want map[string]map[string]any) {
			t.Helper()
			for id, r := range requestsOf(t, o, w) {
				if r.path != path || !reflect.DeepEqual(r.body, want[id]) {
					t.Errorf("%s to %s\ngot  %v\nwant %v", id, r.path, r.body, want[id])
				}
			}
		}
		f(Options{Model: "tiny"}, "/v1/completions", map[string]map[string]any{
			"wl-test-0": {"model": "tiny", "prompt": ids(0), "max_tokens": 3.0, "temperature": 0.0, "ignore_eos": true, "stream": true, "stream_options": usage},
			"mine":      {"model": "tiny", "prompt": ids(1), "max_tokens": 9.0, "temperature": 1.0, "n": 8.0, "logprobs": 20.0, "stream": true, "stream_options": usage},
			"wl-test-2": {"model": "tiny", "prompt": ids(2), "max_tokens": 9.0, "temperature": 0.0, "ignore_eos": true, "logprobs": 0.0, "prompt_logprobs": 0.0, "stream": false},
		})
		f(Options{TextPrompt: true, Temperature: 0.5}, "/v1/completions", map[string]map[string]any{
			"wl-test-0": {"prompt": letters(0), "max_tokens": 3.0, "temperature": 0.5, "ignore_eos": true, "stream": true, "stream_options": usage},
			"mine":      {"prompt": letters(1), "max_tokens": 9.0, "temperature": 0.5, "n": 8.0, "logprobs": 20.0, "stream": true, "stream_options": usage},
			"wl-test-2": {"prompt": letters(2), "max_tokens": 9.0, "temperature": 0.5, "ignore_eos": true, "logprobs": 0.0, "prompt_logprobs": 0.0, "stream": false},
		})
		message := func(text string) []any { return []any{map[string]any{"role": "user", "content": text}} }
		f(Options{Chat: true}, "/v1/chat/completions", map[string]map[string]any{
			"wl-test-0": {"messages": message(letters(0)), "max_tokens": 3.0, "temperature": 0.0, "ignore_eos": true, "stream": true, "stream_options": usage},
			"mine":      {"messages": message(letters(1)), "max_tokens": 9.0, "temperature": 1.0, "n": 8.0, "logprobs": true, "top_logprobs": 20.0, "stream": true, "stream_options": usage},
			"wl-test-2": {"messages": message(letters(2)), "max_tokens": 9.0, "temperature": 0.0, "ignore_eos": true, "logprobs": true, "top_logprobs": 0.0, "prompt_logprobs": 0.0, "stream": false},
		})
	})
}

func TestRequestHeaders(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const own = experiment.Traceparent("00-dedb9109618177ffd75d6769aa4c5c60-aba8b9b38185797c-01")
		w := every(0, 4)
		w[1].Traceparent = experiment.TraceOff
		w[2].Traceparent = own
		w[3].Traceparent = experiment.TraceOn
		o := Options{Token: "s3cret", Header: http.Header{"x-tenant": {"a"}}, Seed: 7}
		got := requestsOf(t, o, w)
		h := got["wl-test-0"].head
		for key, want := range map[string]string{"Authorization": "Bearer s3cret", "Content-Type": "application/json", "X-Tenant": "a", "Accept-Encoding": ""} {
			if h.Get(key) != want {
				t.Errorf("%s is %q, want %q", key, h.Get(key), want)
			}
		}
		trace := func(r map[string]request, i int) string {
			return r[fmt.Sprintf("wl-test-%d", i)].head.Get("Traceparent")
		}
		made := &experiment.Request{PromptTokens: 1, OutputTokens: 1, Traceparent: experiment.Traceparent(trace(got, 0))}
		if err := made.Validate(); err != nil || !strings.HasSuffix(trace(got, 0), "-01") {
			t.Errorf("traceparent %q: %v", trace(got, 0), err)
		}
		if trace(got, 1) != "" || trace(got, 2) != string(own) || trace(got, 3) == "" || trace(got, 3) == trace(got, 0) {
			t.Errorf("traceparents %q, %q, %q", trace(got, 1), trace(got, 2), trace(got, 3))
		}
		if again := requestsOf(t, o, w); trace(again, 0) != trace(got, 0) {
			t.Error("the same run and seed gave another trace id")
		}
		o.Run, o.NoTraceparent = "test", true
		if none := requestsOf(t, o, w); trace(none, 0) != "" || trace(none, 3) == "" {
			t.Errorf("without traceparent: %q, and %q for the one that asks for it", trace(none, 0), trace(none, 3))
		}
		o.Seed, o.NoTraceparent = 8, false
		if other := requestsOf(t, o, w); trace(other, 0) == trace(got, 0) {
			t.Error("another seed gave the same trace id")
		}
	})
}

func TestOptionsAndWorkloadAreChecked(t *testing.T) {
	f := func(o Options, w []experiment.Request, want string) {
		t.Helper()
		if _, err := Run(t.Context(), o, w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	good, base := every(0, 1), "http://127.0.0.1:1"
	f(Options{}, good, `base URL "": give one such as http://127.0.0.1:8000`)
	f(Options{Base: "127.0.0.1:8000"}, good, "base URL")
	f(Options{Base: "localhost:8000/v1"}, good, "base URL")
	f(Options{Base: base + "/?x=1"}, good, "leave out")
	f(Options{Base: base, Speed: -1}, good, "speed -1")
	f(Options{Base: base, Temperature: -1}, good, "temperature -1")
	f(Options{Base: base, MaxInFlight: -1}, good, "in flight -1")
	f(Options{Base: base, Timeout: -1}, good, "timeout")
	f(Options{Base: base, Retries: -1}, good, "retries -1")
	f(Options{Base: base, MaxLine: -1}, good, "longest line -1")
	f(Options{Base: base, Run: "a b"}, good, `run "a b"`)
	f(Options{Base: base, Prompt: experiment.PromptOptions{Low: 9, High: 1}}, good, "prompt token ids 9 to 1")
	f(Options{Base: base}, nil, "the workload is empty")
	f(Options{Base: base}, []experiment.Request{{}}, "request 0: workload: prompt_tokens: 0")
	f(Options{Base: base}, []experiment.Request{{At: 5, PromptTokens: 1, OutputTokens: 1}, good[0]}, "request 1 is at 0s, before the one ahead of it at 5ns: sort")
}

func TestEndpoint(t *testing.T) {
	f := func(base, want string) {
		t.Helper()
		if got := (&Options{Base: base}).endpoint(); got != want {
			t.Errorf("%s: %s, want %s", base, got, want)
		}
	}
	f("http://a:1", "http://a:1/v1/completions")
	f("http://a:1/", "http://a:1/v1/completions")
	f("http://a:1/v1", "http://a:1/v1/completions")
	f("http://a:1/v1/", "http://a:1/v1/completions")
	f("https://a/tenant/7", "https://a/tenant/7/v1/completions")
}
