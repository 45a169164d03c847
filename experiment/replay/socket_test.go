package replay

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/wire"
)

// What follows uses real sockets and the real clock, and so asserts order, not durations.

func TestOverRealSockets(t *testing.T) {
	server := httptest.NewServer(engine(0, 0, 0))
	defer server.Close()
	file, err := os.Open("../testdata/vllm-cpu.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	workload, _, err := experiment.Read(file, experiment.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range workload {
		workload[i].N, workload[i].CancelChunks = 1, 0
	}
	var out bytes.Buffer
	capture, err := wire.NewCaptureWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	hello, err := Hello("test", "r1")
	if err != nil {
		t.Fatal(err)
	}
	recorder, err := NewRecorder(capture, hello)
	if err != nil {
		t.Fatal(err)
	}
	summary, err := Run(t.Context(), Options{Base: server.URL, Run: "r1", Speed: 600, Recorder: func(r Result) {
		last := r.Sent
		for _, c := range r.Chunks {
			if c.At < last {
				t.Errorf("%+v: a chunk before the one ahead of it", r)
			}
			last = c.At
		}
		if r.Outcome != Complete || len(r.Chunks) != 3 || r.First != r.Chunks[0].At || r.Planned > r.Sent || r.End < last || r.ResponseID != "cmpl-"+r.RequestID {
			t.Errorf("%+v", r)
		}
		recorder.Record(r)
	}}, workload)
	if err != nil {
		t.Fatal(err)
	}
	if summary.Outcomes.Complete != len(workload) || summary.Chunks != 3*len(workload) || summary.OutputTokens != int64(3*len(workload)) {
		t.Errorf("%+v", summary)
	}
	if summary.Connections > summary.PeakInFlight || summary.Connections == 0 {
		t.Errorf("%d connections for at most %d requests at once: connections should be kept", summary.Connections, summary.PeakInFlight)
	}
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := capture.Close(); err != nil {
		t.Fatal(err)
	}
	clients := 0
	_, all := messages(t, out.Bytes())
	for _, m := range all {
		if c, ok := m.(*wire.Client); ok {
			if clients++; len(c.Gaps) != 3 || c.Planned == 0 || !strings.HasPrefix(c.RequestID, "cli-") {
				t.Errorf("%+v", c)
			}
		}
	}
	if clients != len(workload) {
		t.Errorf("%d client messages, want %d", clients, len(workload))
	}
}

func TestTLS(t *testing.T) {
	server := httptest.NewUnstartedServer(engine(0))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.EnableHTTP2 = true // on offer, and not to be taken
	server.StartTLS()
	defer server.Close()
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	got := func(config *tls.Config) (r Result) {
		if _, err := Run(t.Context(), Options{Base: server.URL, TLS: config, Recorder: func(last Result) { r = last }}, every(0, 1)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := got(&tls.Config{RootCAs: trusted}); r.Outcome != Complete {
		t.Errorf("%+v", r)
	}
	if r := got(nil); r.Outcome != ConnectionError || !strings.Contains(r.Error, "certificate") {
		t.Errorf("%+v", r)
	}
}

func TestRefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	summary, err := Run(t.Context(), Options{Base: "http://" + listener.Addr().String()}, every(0, 2))
	if err != nil || summary.Outcomes.ConnectionError != 2 || !strings.Contains(summary.Errors[0].Error, "connection refused") || summary.TTFTFromSent.Count != 0 {
		t.Errorf("%v, %+v", err, summary)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: engine(0)}
	go server.Serve(listener)
	defer server.Close()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	summary, err := Run(t.Context(), Options{Base: "http://engine", Dial: dial}, every(0, 2))
	if err != nil || summary.Outcomes.Complete != 2 {
		t.Errorf("%v, %+v", err, summary)
	}
}

func TestMonotonic(t *testing.T) {
	c := Monotonic{}
	before := c.Now()
	if err := c.SleepUntil(t.Context(), before+int64(200*time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	if after := c.Now(); after < before+int64(200*time.Microsecond) {
		t.Errorf("woke %d ns early", before+int64(200*time.Microsecond)-after)
	}
	if err := c.SleepUntil(t.Context(), before); err != nil {
		t.Error("a time that has passed", err)
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	for _, at := range []int64{before, before + int64(time.Hour)} {
		if err := c.SleepUntil(ended, at); err != context.Canceled {
			t.Error("a context that has ended", err)
		}
	}
}

// The answers that vLLM 0.32 gave to the four kinds of request.
func TestRealStreams(t *testing.T) {
	f := func(name string, chunks, tokens, sequences int) {
		t.Helper()
		var a answer
		r := Result{Sequences: sequences}
		if err := a.read(newEventReader(bytes.NewReader(realStreams(t)[name]), &ticks{}, 1<<20), &r, 0); err != nil {
			t.Fatal(name, err)
		}
		a.report(&r)
		if len(r.Chunks) != chunks || r.OutputTokens != tokens || a.counted > tokens || r.PromptTokens != 5 || !r.UsageReported ||
			!a.done || a.finished != sequences || a.fault != "" || !strings.Contains(r.ResponseID, "cmpl-seed-") {
			t.Errorf("%s: %+v of %+v", name, r, a)
		}
		seen := make(map[int]bool)
		for _, c := range r.Chunks {
			seen[c.Sequence] = true
		}
		if len(seen) != sequences {
			t.Errorf("%s: chunks of %d sequences, want %d", name, len(seen), sequences)
		}
	}
	f("vllm-completion", 12, 12, 1)
	f("vllm-fan-logprobs", 9, 9, 3)
	f("vllm-chat", 8, 8, 2)
}

// With prompt_logprobs the answer is one JSON object.
func TestWholeAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		file := func(name string) string {
			text, err := os.ReadFile("testdata/" + name)
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		f := func(o Options, n int, body, want string) Result {
			t.Helper()
			w := every(0, 1)
			w[0].PromptLogprobs, w[0].N = new(1), n
			summary, results, err := replayed(t, o, w, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/json")
				w.(http.Flusher).Flush()
				if sleep(r.Context(), 40*ms) {
					io.WriteString(w, body)
				}
				if body == "" {
					panic(http.ErrAbortHandler)
				}
			})
			if err != nil || summary.TTFTFromSent.Count != 0 || summary.TPOT.Count != 0 {
				t.Errorf("%v, %+v", err, summary)
			}
			wantResults(t, results, "0.1 planned 0 sent 0 first 0 end "+want)
			return results[0]
		}
		r := f(Options{}, 2, file("vllm-whole.json"), "40: 200 complete")
		if r.PromptTokens != 5 || r.OutputTokens != 8 || !r.UsageReported || r.ResponseID != "cmpl-seed-5" {
			t.Errorf("%+v", r)
		}
		if r = f(Options{Chat: true}, 1, file("vllm-whole-chat.json"), "40: 200 complete"); r.OutputTokens != 2 {
			t.Errorf("%+v", r)
		}
		f(Options{}, 3, file("vllm-whole.json"), "40: 200 HTTP error: the answer has 2 of 3 sequences")
		f(Options{}, 1, `{"choices":`, `40: 200 HTTP error: {"choices": is not a completion: unexpected end of JSON input`)
		f(Options{}, 1, `{"error":"full"}`, "40: 200 HTTP error: the server says: full")
		f(Options{}, 1, "", "40: 200 connection error: the answer broke: unexpected EOF")
		f(Options{MaxLine: 100}, 1, strings.Repeat(" ", 101), "40: 200 HTTP error: the answer is longer than the limit of 100 bytes")
		f(Options{Timeout: 30 * ms}, 1, "{}", "30: 200 timed out: no whole answer within the timeout of 30ms")
	})
}
