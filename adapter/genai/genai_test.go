package genai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const second = int64(time.Second)

var (
	gateway = &Resource{Service: "gateway", Host: "edge-1"}
	server  = &Resource{Service: "vllm", Host: "gpu-1"}
	agent   = &Resource{Service: "agent", Host: "app-1"}
)

// made is a span of trace 1, from and to in milliseconds, with attributes in pairs of key and value.
func made(t testing.TB, id, parent byte, name string, kind Kind, r *Resource, from, to float64, attributes ...any) Span {
	t.Helper()
	s := Span{Trace: TraceID{15: 1}, ID: SpanID{7: id}, Name: name, Kind: kind, Resource: r, Scope: &Scope{Name: r.Service + name},
		Start: 1000*second + int64(from*1e6), End: 1000*second + int64(to*1e6)}
	if parent > 0 {
		s.Parent = SpanID{7: parent}
	}
	for i := 0; i < len(attributes); i += 2 {
		n := Named(attributes[i].(string))
		if n == nil {
			t.Fatalf("no name %v", attributes[i])
		}
		var err error
		switch v := attributes[i+1].(type) {
		case int:
			err = s.SetInt(n, int64(v))
		case float64:
			err = s.SetFloat(n, v)
		case string:
			err = s.SetText(n, v)
		}
		if err != nil {
			t.Fatal(attributes[i], err)
		}
	}
	return s
}

func sums(t testing.TB, v *View) {
	t.Helper()
	for _, c := range v.Calls {
		sum := int64(0)
		for _, l := range c.Lines {
			if l.NS <= 0 {
				t.Errorf("%+v", l)
			}
			sum += l.NS
		}
		if sum != c.E2E.NS || c.E2E.NS < 0 {
			t.Errorf("parts sum to %d of %d: %+v", sum, c.E2E.NS, c.Lines)
		}
		if n := c.Network; n != nil && (n.NS < 0 || n.SendLow < 0 || n.BackLow < 0 || n.SendHigh > n.NS || n.BackHigh > n.NS) {
			t.Errorf("%+v", *n)
		}
		for _, f := range c.First {
			if f.NS < 0 {
				t.Errorf("%+v", f)
			}
		}
	}
	for _, b := range v.Batches {
		if c := b.Coverage(); math.IsNaN(c) || c < 0 || c > 1 {
			t.Errorf("%+v", b)
		}
	}
	if d := v.Denom; math.IsNaN(d.Total) || math.IsInf(d.Total, 0) || math.IsNaN(d.Error) {
		t.Errorf("%+v", d)
	}
}

func lines(c *Call) string {
	var out []string
	for _, l := range c.Lines {
		out = append(out, fmt.Sprintf("%s %.1f", l.Name, float64(l.NS)/1e6))
	}
	return strings.Join(out, ", ")
}

// An agent holds calls; its own token count is their sum and no call.
func TestAgentHoldsCalls(t *testing.T) {
	v := Calls([]Span{
		made(t, 1, 0, "invoke_agent x", Internal, agent, 0, 5000, "gen_ai.operation.name", "invoke_agent", "gen_ai.usage.input_tokens", 300, "gen_ai.usage.output_tokens", 30),
		made(t, 2, 1, "chat m", Client, agent, 10, 2000, "gen_ai.operation.name", "chat", "gen_ai.request.model", "m", "gen_ai.usage.input_tokens", 100, "gen_ai.usage.output_tokens", 10),
		made(t, 3, 1, "execute_tool t", Internal, agent, 2000, 2500, "gen_ai.operation.name", "execute_tool"),
		made(t, 4, 1, "chat m", Client, agent, 2600, 4900, "gen_ai.operation.name", "chat", "gen_ai.request.model", "m", "gen_ai.usage.input_tokens", 200, "gen_ai.usage.output_tokens", 20),
	})
	sums(t, v)
	if len(v.Calls) != 2 || v.Calls[0].Input.N != 100 || v.Calls[1].Input.N != 200 || v.Counts.Holders != 2 {
		t.Errorf("%+v", v.Counts)
	}
	// the same without an operation name on the wrapper: it counts more than each
	v = Calls([]Span{
		made(t, 1, 0, "run", Client, agent, 0, 5000, "llm.token_count.prompt", 300, "llm.token_count.completion", 30),
		made(t, 2, 1, "chat m", Client, agent, 10, 2000, "gen_ai.usage.input_tokens", 100, "gen_ai.usage.output_tokens", 10),
		made(t, 4, 1, "chat m", Client, agent, 2600, 4900, "gen_ai.usage.input_tokens", 200, "gen_ai.usage.output_tokens", 20),
	})
	if len(v.Calls) != 2 || v.Counts.Holders != 1 {
		t.Errorf("%+v", v.Counts)
	}
}

// Parallel calls of one library beside each other stay two, even where one lies within the other.
func TestParallelCalls(t *testing.T) {
	a := made(t, 2, 1, "chat m", Client, agent, 10, 2000, "gen_ai.usage.input_tokens", 100, "gen_ai.usage.output_tokens", 10)
	b := made(t, 3, 1, "chat m", Client, agent, 20, 1900, "gen_ai.usage.input_tokens", 100, "gen_ai.usage.output_tokens", 10)
	b.Scope = a.Scope
	v := Calls([]Span{made(t, 1, 0, "chain", Internal, agent, 0, 3000, "openinference.span.kind", "CHAIN"), a, b})
	if len(v.Calls) != 2 {
		t.Errorf("%+v", v.Counts)
	}
	// two libraries that watch one call from the same place are one
	b.Scope = &Scope{Name: "another"}
	if v = Calls([]Span{made(t, 1, 0, "chain", Internal, agent, 0, 3000, "openinference.span.kind", "CHAIN"), a, b}); len(v.Calls) != 1 || v.Calls[0].Input.N != 100 {
		t.Errorf("%+v", v.Counts)
	}
}

// A retry is an attempt of one request, and its time stands by itself.
func TestRetries(t *testing.T) {
	v := Calls([]Span{
		made(t, 1, 0, "chat m", Client, gateway, 0, 3000, "gen_ai.request.model", "m"),
		made(t, 2, 1, "POST", Client, gateway, 5, 905, "http.method", "POST", "http.status_code", 503),
		made(t, 3, 1, "POST", Client, gateway, 1000, 2990, "http.method", "POST", "http.status_code", 200),
		made(t, 4, 3, "llm_request", Server, server, 1010, 2980, "gen_ai.latency.time_to_first_token", 0.5, "gen_ai.usage.completion_tokens", 7),
	})
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.Attempts != 2 || c.Outcome != Complete || !strings.Contains(lines(c), "earlier attempts 900.0") {
		t.Errorf("%+v %s", c, lines(c))
	}
	// two engines' spans, the first of which failed
	first := made(t, 2, 1, "llm_request", Server, server, 5, 905, "gen_ai.latency.e2e", 0.9, "gen_ai.usage.completion_tokens", 3)
	first.Status = Failed
	v = Calls([]Span{
		made(t, 1, 0, "chat m", Client, gateway, 0, 3000, "gen_ai.request.model", "m"), first,
		made(t, 4, 1, "llm_request", Server, server, 1010, 2980, "gen_ai.latency.time_to_first_token", 0.5, "gen_ai.usage.completion_tokens", 7),
	})
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.Attempts != 2 || c.Output.N != 7 || c.Outcome != Complete || !strings.Contains(lines(c), "earlier attempts 900.0") {
		t.Errorf("%+v %s", c, lines(c))
	}
}

// Several sequences of one request (n > 1) are one call: the prompt once, the output together.
func TestSequences(t *testing.T) {
	spans := []Span{made(t, 1, 0, "chat m", Client, gateway, 0, 3000, "gen_ai.request.model", "m", "gen_ai.usage.input_tokens", 100, "gen_ai.usage.output_tokens", 60)}
	for k := byte(2); k < 5; k++ {
		spans = append(spans, made(t, k, 1, "llm_request", Server, server, 10, 2000+float64(k), "gen_ai.request.id", "cmpl-1", "gen_ai.usage.prompt_tokens", 100, "gen_ai.usage.completion_tokens", 20))
		spans[len(spans)-1].Scope = spans[1].Scope
	}
	v := Calls(spans)
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.Sequences != 3 || c.Output.N != 60 || c.Input.N != 100 || strings.Contains(fmt.Sprint(c.Notes), "contradict") {
		t.Errorf("%+v", c)
	}
}

// A prefill leg and a decode leg on two engines are one call.
func TestLegs(t *testing.T) {
	v := Calls([]Span{
		made(t, 1, 0, "chat m", Client, gateway, 0, 3000, "gen_ai.request.model", "m"),
		made(t, 2, 1, "llm_request", Server, &Resource{Service: "prefill", Host: "gpu-1"}, 10, 510, "gen_ai.request.id", "r", "gen_ai.usage.prompt_tokens", 100, "gen_ai.usage.completion_tokens", 1),
		made(t, 3, 1, "llm_request", Server, &Resource{Service: "decode", Host: "gpu-2"}, 520, 2990, "gen_ai.request.id", "r", "gen_ai.usage.prompt_tokens", 100, "gen_ai.usage.completion_tokens", 20),
	})
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.Legs != 2 || c.Output.N != 20 || !strings.Contains(lines(c), "other leg 500.0, network and gateway 30.0") || strings.Contains(fmt.Sprint(c.Notes), "contradict") {
		t.Errorf("%+v %s", c, lines(c))
	}
}

// Unknown is not zero, and a wrapper's zero is not a count.
func TestTokensUnknown(t *testing.T) {
	engine := func(attributes ...any) Span {
		return made(t, 2, 1, "llm_request", Server, server, 10, 900, append(attributes, "gen_ai.latency.e2e", 0.89)...)
	}
	top := func(attributes ...any) Span {
		return made(t, 1, 0, "chat", Client, gateway, 0, 1000, append(attributes, "gen_ai.request.model", "m")...)
	}
	for name, c := range map[string]struct {
		spans    []Span
		in, out  string
		conflict bool
	}{
		"nobody":             {[]Span{top(), engine()}, "unknown", "unknown", false},
		"zeros of a wrapper": {[]Span{top("gen_ai.usage.input_tokens", 0, "gen_ai.usage.output_tokens", 0), engine("gen_ai.usage.prompt_tokens", 5, "gen_ai.usage.completion_tokens", 2)}, "5", "2", false},
		"only zeros":         {[]Span{top("gen_ai.usage.input_tokens", 0), engine()}, "unknown", "unknown", false},
		"text":               {[]Span{top("gen_ai.usage.input_tokens", "5", "gen_ai.usage.output_tokens", "2.0"), engine()}, "5", "2", false},
		"conflict":           {[]Span{top("gen_ai.usage.input_tokens", 6), engine("gen_ai.usage.prompt_tokens", 5)}, "5", "unknown", true},
		"total":              {[]Span{top("llm.usage.total_tokens", 9, "llm.usage.completion_tokens", 2), engine()}, "7", "2", false},
		"cached left out":    {[]Span{top("gen_ai.usage.input_tokens", 300, "gen_ai.usage.cache_read.input_tokens", 512), engine()}, "812", "unknown", false},
		"anthropic":          {[]Span{top("gen_ai.usage.input_tokens", 10, "gen_ai.usage.cache_read.input_tokens", 500, "gen_ai.usage.cache_creation.input_tokens", 90), engine("gen_ai.usage.prompt_tokens", 600)}, "600", "unknown", false},
	} {
		v := Calls(c.spans)
		sums(t, v)
		got := v.Calls[0]
		if got.Input.String() != c.in || got.Output.String() != c.out || strings.Contains(fmt.Sprint(got.Notes), "contradict") != c.conflict {
			t.Errorf("%s: %v in, %v out, %q", name, got.Input, got.Output, got.Notes)
		}
	}
}

// What cannot be a value of its name leaves the field unknown and nothing else.
func TestCoercion(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		want  int64
		ok    bool
	}{
		{"ttft_ms", "231", 231e6, true}, {"ttft_ms", 231, 231e6, true}, {"gen_ai.latency.time_to_first_token", 0.231, 231e6, true}, {"gen_ai.latency.e2e", "1.5", 1.5e9, true},
		{"queue_time", "456.7ms", 456_700_000, true}, {"inference_time", "12µs", 12_000, true}, {"gen_ai.usage.input_tokens", " 812 ", 812, true}, {"gen_ai.usage.input_tokens", 812.0, 812, true},
		{"gen_ai.usage.input_tokens", "many", 0, false}, {"gen_ai.usage.input_tokens", -1, 0, false}, {"gen_ai.usage.input_tokens", 1.5, 0, false}, {"gen_ai.usage.input_tokens", math.NaN(), 0, false},
		{"gen_ai.latency.e2e", math.Inf(1), 0, false}, {"gen_ai.latency.e2e", "NaN", 0, false}, {"gen_ai.latency.e2e", -0.1, 0, false}, {"gen_ai.latency.e2e", 1e300, 0, false},
		{"gen_ai.latency.e2e", "-3s", 0, false}, {"gen_ai.usage.input_tokens", strings.Repeat("1", 5000), 0, false},
	} {
		s, err := Span{}, error(nil)
		switch v := c.value.(type) {
		case string:
			err = s.SetText(Named(c.key), v)
		case int:
			err = s.SetInt(Named(c.key), int64(v))
		case float64:
			err = s.SetFloat(Named(c.key), v)
		}
		got, known := s.Number(Named(c.key).Field)
		if known != c.ok || (err == nil) != c.ok || got != c.want {
			t.Errorf("%s %v: %d %v %v", c.key, c.value, got, known, err)
		}
	}
	seen := map[string]bool{}
	for _, n := range Names() {
		if seen[n.Key] || n.Shape == "" || ClassOf(n.Key) == PersonKey {
			t.Errorf("%+v", n)
		}
		seen[n.Key] = true
	}
}

func TestPrivateTexts(t *testing.T) {
	for _, s := range []string{"kim@example.com", "+4917012345678", "a b", "sk-abcdefghijklmnop", "Bearer", strings.Repeat("x", 200), "", "my-secret-key", "ü", "a\nb"} {
		if Identifier(s) != (s == "Bearer") {
			t.Errorf("%q", s)
		}
	}
	for _, s := range []string{"chatcmpl-0123456789abcdef", "acme/atlas-32b-instruct", "claude-3-5-sonnet@20240620", "stop", "gpt-4-20240613", "meta-llama/Llama-3.1-8B:free"} {
		if !Identifier(s) {
			t.Errorf("%q", s)
		}
	}
	for in, want := range map[string]string{
		"POST /v1/chat/completions http send": "POST /v1/chat/completions http send", "Scheduler [TP 0] (host:0a1b2c3d | pid:201)": "Scheduler [TP 0] (host:0a1b2c3d | pid:201)",
		"chat gpt-4-20240613": "chat gpt-4-20240613", "GET /u?mail=kim@example.com": "GET /u", "ask kim@example.com now": "ask [mail] now", "call +49 170 1234567": "call [number]",
		"use sk-abcdefghijklmnop1234": "use [secret]", "a\x00b\xff": "a_b_", "Please write me a short poem about my neighbour Kim and her two old cats": "[a sentence]",
	} {
		if got := Label(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	for key, want := range map[string]Class{
		"gen_ai.input.messages": ContentKey, "gen_ai.prompt.0.content": ContentKey, "gen_ai.prompt.variable.kim@example.com": ContentKey, "llm.input_messages.3.message.content": ContentKey,
		"input.value": ContentKey, "ai.prompt.messages": ContentKey, "gen_ai.tool.call.arguments": ContentKey, "exception.message": ContentKey, "url.full": PersonKey, "gen_ai.promptly": OtherKey,
		"user.email": PersonKey, "enduser.id": PersonKey, "session.id": PersonKey, "gen_ai.conversation.id": PersonKey, "net.peer.ip": PersonKey,
		"gen_ai.request.temperature": SettingKey, "server.address": OtherKey, "kim@example.com": OtherKey,
	} {
		if got := ClassOf(key); got != want {
			t.Errorf("%s: %s", key, got)
		}
	}
}

func TestMeasure(t *testing.T) {
	for _, c := range []struct {
		key, value string
		roles      Roles
		truncated  int
	}{
		{"m", `[{"role":"user"},{"role":"tool","content":"[{\"role\":\"user\"}]"},{"role":7},{"role":"critic"}]`, Roles{User: 1, Tool: 1, Other: 1}, 0},
		{"m", `[{"role":"user","content":"it ends he`, Roles{}, 1},
		{"m", `{"role":"user"}`, Roles{}, 0},
		{"m", `[1, 2]`, Roles{}, 0},
		{"m", `plain words`, Roles{}, 0},
		{"gen_ai.prompt.0.role", "assistant", Roles{Assistant: 1}, 0},
		{"m", strings.Repeat("[", 100_000), Roles{}, 1},
	} {
		var m Content
		m.Measure([]byte(c.key), []byte(c.value), 1<<20)
		if m.Roles != c.roles || m.Truncated != c.truncated || m.Bytes != int64(len(c.value)) || m.Attributes != 1 {
			t.Errorf("%.40q: %+v", c.value, m)
		}
	}
}

func TestThresholds(t *testing.T) {
	for state, want := range map[string]float64{"ot=th:0": 1, "ot=th:8": 2, "ot=th:c": 4, "vendor=x, ot=rv:abcdefabcdef12;th:fd70a": 99.9977, "ot=th:e666": 9.99939} {
		th := ThresholdOf(state)
		if !th.Known || math.Abs(th.Weight()/want-1) > 1e-5 {
			t.Errorf("%s: %+v %v", state, th, th.Weight())
		}
	}
	for _, state := range []string{"", "ot=th:", "ot=th:xyz", "ot=th:123456789abcdef", "ot=rv:12345678901234", "tt=th:8"} {
		if ThresholdOf(state).Known {
			t.Error(state)
		}
	}
	spans := func(states ...string) (out []Span) {
		for i, st := range states {
			s := made(t, byte(i+1), 0, "chat", Client, gateway, 0, 1000, "gen_ai.request.model", "m")
			s.Trace[0] = byte(i + 1)
			s.Threshold = ThresholdOf(st)
			out = append(out, s)
		}
		return out
	}
	if d := Calls(spans("ot=th:c", "ot=th:8", "ot=th:0")).Denom; !d.Known || d.Total != 7 || math.Abs(d.Error-math.Sqrt(14)) > 1e-9 {
		t.Errorf("%+v %v", d, d)
	}
	if d := Calls(spans("ot=th:c", "")).Denom; d.Known || !strings.Contains(d.String(), "denominator unknown: 1 of 2") {
		t.Errorf("%v", d)
	}
	if d := Calls(spans("", "")).Denom; !strings.Contains(d.String(), "denominator unknown: no span") {
		t.Errorf("%v", d)
	}
}

// A clock that is set in the middle of the day bounds two stretches; hosts behind one name bound nothing.
func TestClockSteps(t *testing.T) {
	pair := func(i int, skew float64) []Span {
		at := float64(i) * 10_000
		a := made(t, 1, 0, "chat", Client, gateway, at, at+1000, "gen_ai.request.model", "m")
		b := made(t, 2, 1, "llm_request", Server, server, at+20-skew, at+980-skew, "gen_ai.latency.e2e", 0.96)
		a.Trace[0], b.Trace[0] = byte(i+1), byte(i+1)
		return []Span{a, b}
	}
	var stepped, mixed []Span
	for i := range 40 {
		skew := 500.0
		if i >= 20 {
			skew = -300
		}
		stepped = append(stepped, pair(i, skew)...)
		mixed = append(mixed, pair(i, float64(i%2)*5000)...)
	}
	v := Calls(stepped)
	sums(t, v)
	if len(v.Shifts) != 2 || v.Shifts[0].Middle() != 500e6 || v.Shifts[1].Middle() != -300e6 || v.Shifts[0].Half() != 20e6 || v.Calls[30].Layers[1].Shift != -300e6 {
		t.Errorf("%v", v.Shifts)
	}
	v = Calls(mixed)
	sums(t, v)
	if len(v.Shifts) != 0 || len(v.Notes) != 1 || !strings.Contains(v.Notes[0], "contradict") || v.Calls[1].Network.NS != 40e6 {
		t.Errorf("%v %q", v.Shifts, v.Notes)
	}
}

// A span that ends an hour after the answer is left open, also where nobody says that it was aborted; one that waited an hour before is not.
func TestLeftOpen(t *testing.T) {
	late := []Span{made(t, 1, 0, "chat", Client, gateway, 0, 3_601_000, "gen_ai.request.model", "m"), made(t, 2, 1, "llm_request", Server, server, 10, 2000, "gen_ai.latency.e2e", 1.99)}
	v := Calls(late)
	sums(t, v)
	if c := v.Calls[0]; v.Counts.LeftOpen != 1 || v.Counts.UsableClient != 0 || c.E2E.NS != 1_990e6 {
		t.Errorf("%+v %+v", v.Counts, c.E2E)
	}
	queued := []Span{made(t, 1, 0, "chat", Client, gateway, 0, 3_601_000, "gen_ai.request.model", "m"), made(t, 2, 1, "llm_request", Server, server, 3_599_000, 3_600_990, "gen_ai.latency.e2e", 1.99)}
	if v = Calls(queued); v.Counts.LeftOpen != 0 || v.Counts.UsableClient != 1 || v.Calls[0].E2E.NS != 3_601*second {
		t.Errorf("%+v", v.Counts)
	}
	gone := []Span{made(t, 1, 0, "chat", Client, gateway, 0, 500, "gen_ai.request.model", "m"), made(t, 2, 1, "llm_request", Server, server, 10, 2000, "gen_ai.latency.e2e", 1.99)}
	v = Calls(gone)
	sums(t, v)
	if v.Counts.Early != 1 || v.Calls[0].E2E.NS != 1_990e6 {
		t.Errorf("%+v", v.Counts)
	}
}

// The request's own words may say more than its span took: they are cut, and it is said.
func TestPartsLongerThanTheSpan(t *testing.T) {
	v := Calls([]Span{made(t, 1, 0, "llm_request", Server, server, 0, 1000, "gen_ai.latency.time_in_queue", 0.7, "gen_ai.latency.time_in_model_prefill", 0.7, "gen_ai.latency.time_in_model_decode", 0.7, "gen_ai.latency.time_to_first_token", 0.1)})
	sums(t, v)
	if c := v.Calls[0]; lines(c) != "queue 700.0, prefill 300.0" || !strings.Contains(fmt.Sprint(c.Notes), "cut to what it took") {
		t.Errorf("%s %q", lines(c), c.Notes)
	}
}

// A day's incident that engines' queue time does not contain: it stands before the first token, and the reader is told where it may be.
func TestInbox(t *testing.T) {
	v := Calls([]Span{made(t, 1, 0, "llm_request", Server, server, 0, 25_011, "gen_ai.latency.time_in_queue", 0.003, "gen_ai.latency.time_in_model_prefill", 0.052, "gen_ai.latency.time_in_model_decode", 0.965, "gen_ai.latency.time_to_first_token", 24.03)})
	sums(t, v)
	if c := v.Calls[0]; !strings.Contains(lines(c), "other before first token (front end, inbox) 23975.0") || !strings.Contains(fmt.Sprint(c.Notes), "does not contain the inbox") {
		t.Errorf("%s %q", lines(c), c.Notes)
	}
}

// SGLang at level 3: the forward passes that requests shared, each rank once.
func TestBatches(t *testing.T) {
	r := &Resource{Service: "sglang"}
	request := func(trace byte, bids ...string) []Span {
		spans := []Span{
			made(t, 1, 0, " Req x", Internal, r, 0, 100, "module", "sglang::request", "rid", fmt.Sprintf("r%d", trace)),
			made(t, 2, 1, "Scheduler [TP 0] (host:a | pid:7)", Internal, r, 1, 99, "thread_label", "Scheduler", "tp_rank", 0, "pid", 7, "host_id", "a"),
			made(t, 3, 1, "Scheduler [TP 1] (host:a | pid:8)", Internal, r, 1, 99, "thread_label", "Scheduler", "tp_rank", 1, "pid", 8, "host_id", "a"),
			made(t, 4, 2, "decode_forward", Internal, r, 2, 90), made(t, 5, 3, "decode_forward", Internal, r, 2, 90),
		}
		for k := range spans {
			spans[k].Trace[0] = trace
			if k >= 3 {
				for n, b := range bids {
					spans[k].Events = append(spans[k].Events, Event{Name: "schedule", BID: b, Size: 4, Mode: "decode", At: int64(n + 1)})
				}
			}
		}
		return spans
	}
	v := Calls(append(request(1, "10", "11"), request(2, "11", "12")...))
	sums(t, v)
	if len(v.Batches) != 3 || v.Batches[1].BID != "11" || v.Batches[1].Seen != 2 || v.Batches[1].Coverage() != 0.5 || v.Batches[0].Coverage() != 0.25 {
		t.Errorf("%+v", v.Batches)
	}
	if c := v.Calls[0]; !strings.Contains(lines(c), "decode 88.0") {
		t.Errorf("%s", lines(c))
	}
}

// Parents in a circle, a span that is its own parent, a chain of fifty thousand: read, and summed.
func TestOddTrees(t *testing.T) {
	circle := []Span{made(t, 1, 2, "a", Client, gateway, 0, 10, "gen_ai.request.model", "m"), made(t, 2, 3, "b", Client, gateway, 0, 10, "gen_ai.request.model", "m"), made(t, 3, 1, "c", Client, gateway, 0, 10, "gen_ai.request.model", "m"),
		made(t, 4, 4, "d", Client, gateway, 0, 10, "gen_ai.request.model", "m")}
	v := Calls(circle)
	sums(t, v)
	if v.Counts.MissingParent != 2 {
		t.Errorf("%+v", v.Counts)
	}
	var chain, wide []Span
	for i := range 50_000 {
		s := made(t, 0, 0, "chat", Client, gateway, float64(i)/1000, 1_000_000-float64(i)/1000, "gen_ai.usage.output_tokens", 1+i%3)
		s.ID, s.Parent = SpanID{1, byte(i >> 16), byte(i >> 8), byte(i)}, SpanID{}
		w := s
		if i > 0 {
			s.Parent, w.Parent = SpanID{1, byte((i - 1) >> 16), byte((i - 1) >> 8), byte(i - 1)}, SpanID{1}
		}
		w.Name = fmt.Sprint("chat ", i) // each gives a note of its own
		chain, wide = append(chain, s), append(wide, w)
	}
	sums(t, Calls(chain)) // work in the square of the spans would not end within a test's time
	sums(t, Calls(wide))
	for i := range wide { // one id for all of them, and all but the last failed
		wide[i].SetText(Named("gen_ai.request.id"), "r")
		wide[i].Status = Failed
	}
	sums(t, Calls(wide))
	for i := range wide {
		wide[i].Start, wide[i].End = int64(i+1)*second, int64(i+1)*second+1e6
	}
	sums(t, Calls(wide))
}

// Whatever the spans, the parts of each call sum, nothing is negative, and neither order nor copies of spans change anything.
func TestRandomSpans(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		spans := random(r, 1+r.IntN(40))
		v := Calls(slices.Clone(spans))
		sums(t, v)
		want := print(t, v)
		for range 3 {
			again := slices.Clone(spans)
			for range r.IntN(4) {
				again = append(again, again[r.IntN(len(again))])
			}
			r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
			w := Calls(again)
			w.Counts.Duplicates = v.Counts.Duplicates
			if got := print(t, w); got != want {
				t.Fatalf("seed %d: another order gives\n%s\nnot\n%s", seed, got, want)
			}
		}
	}
}

func print(t *testing.T, v *View) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.Text(&b); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func random(r *rand.Rand, n int) []Span {
	names := []string{"chat", "llm_request", "POST /v1/chat/completions", "x http send", "invoke_agent", " Req 1", "Scheduler [TP 0] (host:a | pid:1)", "decode_forward", "prefill_waiting", "other"}
	hosts := []*Resource{gateway, server, agent, {Service: "sglang"}, {}}
	scopes := []*Scope{{}, {Name: "sglang server"}, {Name: "x"}}
	var out []Span
	for i := range n {
		s := Span{Trace: TraceID{15: byte(r.IntN(3))}, ID: SpanID{7: byte(i + 1)}, Name: names[r.IntN(len(names))], Kind: Kind(r.IntN(6)), Status: Status(r.IntN(4)),
			Resource: hosts[r.IntN(len(hosts))], Scope: scopes[r.IntN(len(scopes))], Start: r.Int64N(100) * 1e7, Dropped: uint32(r.IntN(2))}
		s.End = s.Start + r.Int64N(1000)*1e7 - 1e8
		switch r.IntN(12) {
		case 0:
			s.End = 0
		case 1:
			s.Start, s.End = math.MaxInt64-5, math.MaxInt64
		case 2:
			s.End = s.Start + r.Int64N(1e15)
		}
		if r.IntN(4) > 0 {
			s.Parent = SpanID{7: byte(1 + r.IntN(n+2))}
		}
		if r.IntN(3) == 0 {
			s.Threshold = Threshold{r.Uint64N(1 << 56), true}
		}
		for range r.IntN(8) {
			name := &names2[r.IntN(len(names2))]
			switch name.Unit {
			case Ident:
				s.SetText(name, []string{"chat", "abort", "m", "r1", "LLM", "AGENT", "invoke_agent", "sglang::request", "http.response.body"}[r.IntN(9)])
			case Count:
				s.SetInt(name, r.Int64N(700))
			default:
				s.SetFloat(name, r.Float64()*20)
			}
		}
		if r.IntN(5) == 0 {
			s.Events = append(s.Events, Event{Name: "schedule", BID: fmt.Sprint(r.IntN(3)), Size: r.Int64N(3)}, Event{Name: "retract"})
		}
		out = append(out, s)
	}
	return out
}

var names2 = Names()

// A span that ends at the first token tells the beginning of a stream, not its end.
func TestSpanEndsAtFirstToken(t *testing.T) {
	v := Calls([]Span{made(t, 1, 0, "chat", Client, gateway, 0, 450, "gen_ai.request.model", "m"),
		made(t, 2, 1, "llm_request", Server, server, 10, 2400, "gen_ai.latency.time_to_first_token", 0.42, "gen_ai.latency.e2e", 2.39)})
	sums(t, v)
	c := v.Calls[0]
	if c.Outcome != Complete || c.Client.Known || c.E2E.NS != 2_390e6 || v.Counts.UsableClient != 0 || !strings.Contains(fmt.Sprint(c.Notes), "a stream that went on for 1,970 ms") {
		t.Errorf("%+v %q", c.E2E, c.Notes)
	}
}

// Milliseconds under a name that stands for seconds.
func TestWrongUnit(t *testing.T) {
	v := Calls([]Span{made(t, 1, 0, "llm_request", Server, server, 0, 2390, "gen_ai.latency.time_to_first_token", 420.0, "gen_ai.latency.e2e", 2390.0, "gen_ai.latency.time_in_queue", 20.0)})
	sums(t, v)
	if c := v.Calls[0]; c.First[0].NS != 420e6 || !strings.Contains(lines(c), "queue 20.0") || !strings.Contains(fmt.Sprint(c.Notes), "milliseconds") {
		t.Errorf("%s %q", lines(c), c.Notes)
	}
}

// An engine that aborts loses the caller's context: its span comes as a root, with the right request id.
func TestEngineSpanInAnotherTrace(t *testing.T) {
	lost := made(t, 2, 0, "llm_request", Server, server, 10, 2000, "gen_ai.request.id", "chatcmpl-x7", "gen_ai.response.finish_reasons", "abort", "gen_ai.latency.e2e", 1.99)
	lost.Trace = TraceID{15: 9}
	spans := []Span{made(t, 1, 0, "chat", Client, gateway, 0, 2010, "gen_ai.request.model", "m", "gen_ai.response.id", "chatcmpl-x7"), lost}
	v := Calls(spans)
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.Outcome != Aborted || !c.Layers[1].Inferred || len(c.Layers) != 2 || !strings.Contains(fmt.Sprint(c.Notes), "inferred from its request id") {
		t.Errorf("%+v", v.Counts)
	}
	if spans[1].Trace != lost.Trace {
		t.Error("the spans given were changed")
	}
}

// A router's span and an engine's beside it are one call where the id is the same but for what vLLM puts around it.
func TestRouterBeside(t *testing.T) {
	v := Calls([]Span{
		made(t, 1, 0, "ingress", Server, agent, 0, 3000),
		made(t, 2, 1, "gateway.request", Server, gateway, 5, 2990, "gen_ai.request.model", "m", "gen_ai.request.id", "q-1"),
		made(t, 3, 1, "llm_request", Server, server, 20, 2980, "gen_ai.request.id", "chatcmpl-q-1", "gen_ai.latency.e2e", 2.96),
	})
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.RequestID != "chatcmpl-q-1" || c.E2E.NS != 2_985e6 {
		t.Errorf("%+v %+v %s", v.Counts, c, lines(c))
	}
}

// A span that books a call after its end is no part of its way; an engine's span that was closed an hour late is as long as it says itself.
func TestLateSpans(t *testing.T) {
	v := Calls([]Span{made(t, 1, 0, "chat", Client, gateway, 0, 2000, "gen_ai.usage.input_tokens", 9, "gen_ai.usage.output_tokens", 3),
		made(t, 2, 1, "usage", Client, &Resource{Service: "meter"}, 2001, 2002, "gen_ai.usage.input_tokens", 9, "gen_ai.usage.output_tokens", 3)})
	sums(t, v)
	if c := v.Calls[0]; len(v.Calls) != 1 || len(c.Layers) != 1 || c.E2E.NS != 2*second || c.Network != nil {
		t.Errorf("%+v %s", v.Counts, lines(c))
	}
	v = Calls([]Span{made(t, 1, 0, "llm_request", Server, server, 0, 3_600_000, "gen_ai.latency.e2e", 2.1, "gen_ai.latency.time_to_first_token", 0.1)})
	sums(t, v)
	if c := v.Calls[0]; c.E2E.NS != 2_100e6 {
		t.Errorf("%+v %q", c.E2E, c.Notes)
	}
}

// A span that was sent open and again when it had ended counts once, as it ended, in whatever order the two came.
func TestSentTwice(t *testing.T) {
	ended := made(t, 1, 0, "chat", Client, gateway, 0, 1000, "gen_ai.request.model", "m", "gen_ai.usage.output_tokens", 5)
	open := made(t, 1, 0, "chat", Client, gateway, 0, 1000, "gen_ai.request.model", "m")
	open.End = 0
	for _, spans := range [][]Span{{open, ended}, {ended, open}, {ended, open, ended}} {
		v := Calls(spans)
		if c := v.Calls[0]; len(v.Calls) != 1 || !c.Client.Known || c.Output.N != 5 || v.Counts.Duplicates != len(spans)-1 {
			t.Errorf("%+v %+v", v.Counts, c.Client)
		}
	}
}

// A router's inner spans name the model and are no calls.
func TestRouterInside(t *testing.T) {
	v := Calls([]Span{
		made(t, 1, 0, "gateway.request", Server, gateway, 0, 3000),
		made(t, 2, 1, "gateway.request_orchestration", Internal, gateway, 1, 20, "gen_ai.request.model", "m"),
		made(t, 3, 1, "pick_endpoints", Internal, gateway, 21, 30, "gen_ai.request.model", "m"),
		made(t, 4, 1, "llm_request", Server, server, 40, 2980, "gen_ai.latency.e2e", 2.94),
	})
	sums(t, v)
	if len(v.Calls) != 1 || v.Counts.Elsewhere != 3 {
		t.Errorf("%+v", v.Counts)
	}
}
