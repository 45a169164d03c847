package dialect

import (
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/whylate/whylate/wire"
)

// spansOf are the spans of exports, by what a call calls itself, with their attributes as text.
func spansOf(t *testing.T, exports []byte, key func(s ptrace.Span) string) map[string]ptrace.Span {
	t.Helper()
	out := map[string]ptrace.Span{}
	for line := range strings.Lines(string(exports)) {
		traces, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		for _, rs := range traces.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					out[key(s)] = s
				}
			}
		}
	}
	return out
}

func attribute(s ptrace.Span, name string) string {
	v, _ := s.Attributes().Get(name)
	return v.AsString()
}

// TestSpansAreTheEngines holds the span of each sequence against the one that the engine exported of it.
func TestSpansAreTheEngines(t *testing.T) {
	for _, name := range realRuns {
		t.Run(name, func(t *testing.T) {
			r := readReal(t, name)
			f := newFleet(window)
			var exports []byte
			var x *requests
			f.metFront = func(front *front, h *wire.Hello, _ int64) {
				x = newRequests(h, func(b []byte) { exports = append(exports, b...) })
				front.hears = append(front.hears, x)
			}
			r.play(t, fleetRecorder{f})
			if err := f.end(); err != nil {
				t.Fatal(err)
			}
			x.flush()
			// Children of one request have one id: their times tell them apart.
			key := func(s ptrace.Span) string {
				return attribute(s, "gen_ai.request.id") + " " + attribute(s, "gen_ai.latency.time_in_model_decode")
			}
			want, got := spansOf(t, r.files["otlp/vllm-0.jsonl"], key), spansOf(t, exports, key)
			if len(want) == 0 || len(got) != len(want) {
				t.Errorf("%d spans, the engine has %d", len(got), len(want))
			}
			off := map[string]float64{} // s, the largest
			lacks := map[string]int{}
			for k, w := range want {
				g, ok := got[k]
				if !ok {
					t.Errorf("no span %s", k)
					continue
				}
				if g.TraceID() != w.TraceID() || g.ParentSpanID() != w.ParentSpanID() || g.Name() != w.Name() || g.Kind() != w.Kind() {
					t.Errorf("%s: %s %s under %s, the engine's is %s under %s", k, g.Name(), g.TraceID(), g.ParentSpanID(), w.TraceID(), w.ParentSpanID())
				}
				off["start"] = max(off["start"], math.Abs(float64(g.StartTimestamp())-float64(w.StartTimestamp()))/1e9)
				off["end"] = max(off["end"], math.Abs(float64(g.EndTimestamp())-float64(w.EndTimestamp()))/1e9)
				for name, v := range w.Attributes().All() {
					mine, ok := g.Attributes().Get(name)
					switch {
					case !ok:
						lacks[name]++
					case strings.HasPrefix(name, "gen_ai.latency."):
						off[name] = max(off[name], math.Abs(mine.Double()-v.Double()))
					case mine.AsString() != v.AsString():
						t.Errorf("%s: %s is %s, the engine says %s", k, name, mine.AsString(), v.AsString())
					}
				}
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%d spans\n\nlargest difference, ms:\n", len(want))
			for _, n := range slices.Sorted(maps.Keys(off)) {
				fmt.Fprintf(&b, "  %-46s %.3f\n", n, off[n]*1e3)
				if off[n] > 0.01 {
					t.Errorf("%s differs by %v s", n, off[n])
				}
			}
			fmt.Fprintf(&b, "\nnot told by the wire: %s\n", strings.Join(slices.Sorted(maps.Keys(lacks)), ", "))
			golden(t, path.Join("testdata", name+".spans.txt"), b.String())
		})
	}
}
