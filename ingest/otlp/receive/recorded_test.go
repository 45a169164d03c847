package receive

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/otlp"
)

// recorded are the requests of a file, each behind its length, as their sender put them on the wire.
func recorded(t testing.TB, name string) (requests [][]byte) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	for len(b) > 0 {
		r, n := protowire.ConsumeBytes(b)
		if n < 0 {
			t.Fatal(name, "is damaged")
		}
		requests, b = append(requests, r), b[n:]
	}
	return requests
}

// What vLLM 0.32.0 itself sends over gRPC: its start, and four requests with one to four sequences. The clients sent traceparents.
func TestRecordedVLLM(t *testing.T) {
	var s sink
	conn := dial(t, serving(t, New(s.sinks(&book{}), Settings{}), nil))
	for _, b := range recorded(t, "vllm-0.32-traces.bin") {
		if out, err := call(t, conn, b); err != nil || len(out) > 0 {
			t.Fatal(err, out)
		}
	}
	v := genai.Calls(s.spans)
	for i, want := range []struct {
		trace   string
		in, out int64
	}{{"0af7651916cd43dd8448eb211c803191", 32, 8}, {"0af7651916cd43dd8448eb211c803192", 32, 32}, {"0af7651916cd43dd8448eb211c803193", 32, 54}, {"0af7651916cd43dd8448eb211c803194", 32, 128}} {
		k := slices.IndexFunc(v.Calls, func(c *genai.Call) bool { return c.Trace.String() == want.trace })
		if k < 0 {
			t.Fatalf("no call of trace %s", want.trace)
		}
		c := v.Calls[k]
		if c.Input.N != want.in || c.Output.N != want.out || !c.Server.Known || c.Server.NS <= 0 || len(c.First) == 0 {
			t.Errorf("%d: in %+v out %+v server %+v", i, c.Input, c.Output, c.Server)
		}
	}
	if len(v.Calls) != 4 || v.Counts.Elsewhere == 0 {
		t.Errorf("%d calls, %+v", len(v.Calls), v.Counts)
	}
}

// What OpenTelemetry's SDK for Python sends: GenAI metrics, cumulative and delta, and logs. Cumulative and added-up deltas are the same in the end.
func TestRecordedPython(t *testing.T) {
	var s sink
	var b book
	r := New(s.sinks(&b), Settings{})
	for signal, name := range map[Signal]string{Metrics: "python-sdk-metrics.bin", Logs: "python-sdk-logs.bin"} {
		for _, q := range recorded(t, name) {
			if a := send(t, r, signal, q, otlp.Protobuf); a.rejected != 0 {
				t.Error(a)
			}
		}
	}
	last := func(name string) string {
		for _, l := range slices.Backward(b.lines) {
			if strings.Contains(l, `"`+name+`"`) && !strings.Contains(l, "le=") || strings.Contains(l, `"`+name+`"`) && strings.Contains(l, `le="2.56"`) {
				_, v, _ := strings.Cut(l[strings.Index(l, "} ")+2:], " ")
				return v
			}
		}
		return "nothing"
	}
	for name, want := range map[string]string{"gen_ai_client_operation_duration%s_seconds_bucket": "7", "gen_ai_client_operation_duration%s_seconds_count": "9", "gen_ai_client_calls%s_total": "9",
		"gen_ai_server_time_to_first_token%s_seconds": last("gen_ai_server_time_to_first_token_seconds")} {
		for _, suffix := range []string{"", "_delta"} {
			if got := last(strings.Replace(name, "%s", suffix, 1)); got != want || !strings.ContainsAny(got, "79") {
				t.Errorf("%s%s: %s, want %s", name, suffix, got, want)
			}
		}
	}
	if len(s.logs) != 1 || s.logs[0].Evaluation.Response != "cmpl-cli-1" || len(s.lines) != 1 || !strings.Contains(s.lines[0], "Avg generation throughput") {
		t.Errorf("%+v %q", s.logs, s.lines)
	}
	if text := b.text(); strings.Contains(text, "kim") || strings.Contains(text, "invoice") || strings.Contains(text, "cmpl-cli") {
		t.Error(text)
	}
}

func FuzzRequests(f *testing.F) {
	for signal, name := range []string{"vllm-0.32-traces.bin", "python-sdk-metrics.bin", "python-sdk-logs.bin"} {
		for _, b := range recorded(f, name) {
			f.Add(uint8(signal), false, b)
		}
	}
	proto, js := bodies(f, fleet(1))
	f.Add(uint8(Metrics), false, proto)
	f.Add(uint8(Metrics), true, js)
	f.Fuzz(func(t *testing.T, signal uint8, json bool, b []byte) {
		var s sink
		var kept book
		r := New(s.sinks(&kept), Settings{Decoders: 1})
		q := body{bytes: bytes.Clone(b), gzipped: len(b) > 1 && b[0] == 0x1f && b[1] == 0x8b}
		if json {
			q.encoding = otlp.JSON
		}
		a, fail := r.take(t.Context(), Signal(signal%uint8(signals)), HTTP, q)
		if fail != nil && (fail.text == "" || fail.retry > 0) || fail == nil && (a.rejected > 0) != (a.message != "") {
			t.Errorf("%+v %+v", a, fail)
		}
		if r.inFlight.Load() != 0 || len(r.decoders) != 1 || len(kept.staged) != 0 {
			t.Error("something is left behind")
		}
	})
}
