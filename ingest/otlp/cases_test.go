package otlp

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
)

var update = flag.Bool("update", false, "accept what the views say now")

const cases = "../../testdata/cases/"

// seen decodes the case's file and compares what its view says with the accepted text.
func seen(t *testing.T, name string) (*Decoded, *genai.View) {
	t.Helper()
	d := decoded(t, name)
	v := genai.Calls(d.Spans)
	golden(t, name, v)
	return d, v
}

func decoded(t testing.TB, name string) *Decoded {
	t.Helper()
	f, err := os.Open(cases + name + ".otlp.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := new(Decoder).File(f, nil)
	if err != nil || d.Rejected+d.Refused > 0 {
		t.Fatal(err, d.Counts)
	}
	return d
}

func golden(t *testing.T, name string, v *genai.View) {
	t.Helper()
	var b bytes.Buffer
	if err := v.Text(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name[:strings.IndexByte(name, '-')]+".txt")
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("%s says\n%s\nwant\n%s", name, &b, want)
	}
}

// of finds a call by the end of its trace id.
func of(t *testing.T, v *genai.View, trace string) *genai.Call {
	t.Helper()
	for _, c := range v.Calls {
		if strings.HasSuffix(c.Trace.String(), trace) {
			return c
		}
	}
	t.Fatalf("no call of trace %s", trace)
	return nil
}

// ms are the lines of a call, in milliseconds.
func ms(c *genai.Call) map[string]float64 {
	m := map[string]float64{}
	for _, l := range c.Lines {
		m[l.Name] += float64(l.NS) / 1e6
	}
	return m
}

func expect(t *testing.T, c *genai.Call, want map[string]float64) {
	t.Helper()
	got := ms(c)
	for name, w := range want {
		if g, ok := got[name]; !ok || math.Abs(g-w) > 0.001 {
			t.Errorf("%s: %v ms, want %v (%v)", name, g, w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("lines %v, want %v", got, want)
	}
	holds(t, c)
}

// holds checks what must hold of every call.
func holds(t testing.TB, c *genai.Call) {
	t.Helper()
	sum := int64(0)
	for _, l := range c.Lines {
		if l.NS <= 0 || l.Standing == "" || l.Part == "" {
			t.Errorf("line %+v", l)
		}
		sum += l.NS
	}
	if c.E2E.Known && sum != c.E2E.NS || !c.E2E.Known && (sum != 0 || c.E2E.Why == "") {
		t.Errorf("parts sum to %d of %+v", sum, c.E2E)
	}
	if c.E2E.NS < 0 || c.Client.NS < 0 || c.Server.NS < 0 || !c.Client.Known && c.Client.Why == "" {
		t.Errorf("%+v %+v %+v", c.E2E, c.Client, c.Server)
	}
	for _, n := range []genai.Tokens{c.Input, c.Output, c.Cached} {
		if n.N < 0 || !n.Known && (n.N != 0 || n.Why == "") {
			t.Errorf("tokens %+v", n)
		}
	}
	if n := c.Network; n != nil && (n.NS < 0 || n.Bounded && (n.SendLow < 0 || n.SendLow > n.SendHigh && n.Shift.Low <= n.Shift.High && n.Shift.Pairs > 0 || n.BackLow < 0 || n.SendHigh > n.NS)) {
		t.Errorf("network %+v", *n)
	}
}

func notes(c *genai.Call) string { return strings.Join(c.Notes, "\n") }

// C39: the web server's span and the engine's hang side by side; the time is counted once.
func TestSiblings(t *testing.T) {
	_, v := seen(t, "C39-otlp-sibling-server-and-engine")
	c := of(t, v, "c39")
	expect(t, c, map[string]float64{"network and gateway": 8, "server before engine": 5.5, "queue": 12, "prefill": 371, "other before first token (front end, inbox)": 38,
		"decode": 1940, "after decode": 10.5, "server after engine": 15})
	if len(v.Calls) != 1 || c.E2E.NS != 2_400e6 || c.Chunks != 40 || v.Counts.Failed != 0 {
		t.Errorf("%d calls, %+v, %d chunks", len(v.Calls), c.E2E, c.Chunks)
	}
	if len(c.Layers) != 3 || !c.Layers[1].Inferred || c.Layers[0].Inferred || c.Layers[2].Inferred || !strings.Contains(notes(c), "inferred") {
		t.Errorf("layers %+v", c.Layers)
	}
	for _, l := range c.Lines {
		if strings.HasPrefix(l.Name, "server") != (l.Standing == genai.Inferred) {
			t.Errorf("%+v", l)
		}
	}
}

// C39 without the gateway's span, and with the two on different hosts.
func TestSiblingsElsewhere(t *testing.T) {
	orphaned := slices.DeleteFunc(decoded(t, "C39-otlp-sibling-server-and-engine").Spans, func(s genai.Span) bool { return s.Parent == genai.SpanID{} })
	v := genai.Calls(orphaned)
	if c := v.Calls[0]; len(v.Calls) != 1 || c.E2E.NS != 2_392e6 || c.MissingParent == (genai.SpanID{}) || ms(c)["server before engine"] != 5.5 {
		t.Errorf("%+v", c)
	} else {
		holds(t, c)
	}
	apart := decoded(t, "C39-otlp-sibling-server-and-engine").Spans
	for i := range apart {
		if apart[i].Name == "llm_request" {
			r := *apart[i].Resource
			r.Host = "gpu-2"
			apart[i].Resource = &r
		} else {
			apart[i].Resource.Host = "gpu-1"
		}
	}
	c := genai.Calls(apart).Calls[0]
	if got := ms(c); got["network and gateway"] != 28.5 || got["server before engine"] != 0 {
		t.Errorf("two hosts: %v", got)
	}
	holds(t, c)
}

// C41: no root, no end, an end an hour late.
func TestOrphansAndOpenSpans(t *testing.T) {
	_, v := seen(t, "C41-otlp-orphans-open-spans")
	if n := v.Counts; n.Requests != 3 || n.Aborted != 1 || n.UsableClient != 0 || n.MissingParent != 1 || n.Open != 1 || n.LeftOpen != 1 || len(v.ClientDurations()) != 0 {
		t.Errorf("%+v", n)
	}
	for trace, want := range map[string]struct {
		out     int64
		server  int64
		outcome genai.Outcome
	}{"411": {212, 1_840e6, genai.Incomplete}, "412": {160, 1_478e6, genai.Incomplete}, "413": {250, 2_130e6, genai.Aborted}} {
		c := of(t, v, trace)
		holds(t, c)
		if c.Output.N != want.out || c.E2E.NS != want.server || c.Server.NS != want.server || c.Outcome != want.outcome || c.Client.Known {
			t.Errorf("%s: %+v", trace, c)
		}
	}
	if c := of(t, v, "411"); c.MissingParent.String() != "0000000000004100" {
		t.Error(c.MissingParent)
	}
	if n := notes(of(t, v, "413")); !strings.Contains(n, "left open after abort") {
		t.Error(n)
	}
}

// C42: the server's clock is behind its client's.
func TestClockSkew(t *testing.T) {
	_, v := seen(t, "C42-otlp-clock-skew")
	if len(v.Shifts) != 1 {
		t.Fatalf("%v", v.Shifts)
	}
	s := v.Shifts[0]
	if s.Low != 50e6 || s.High != 70e6 || s.Middle() != 60e6 || s.Half() != 10e6 || s.Pairs != 4 || s.Inner.Name != "gpu-node-a" || s.Outer.Name != "edge-1" {
		t.Errorf("%+v", s)
	}
	for i, want := range []struct{ server, overhead, began int64 }{{852, 48, -37}, {610, 24, 1954}, {1404, 36, 3966}, {433, 29, 6950}} {
		c := v.Calls[i]
		holds(t, c)
		inner := c.Layers[len(c.Layers)-1]
		if c.Server.NS != want.server*1e6 || c.Network.NS != want.overhead*1e6 || c.E2E.NS != (want.server+want.overhead)*1e6 {
			t.Errorf("%d: %+v", i, c)
		}
		if began := inner.Span.Start - 1_772_700_000_000_000_000; began != want.began*1e6 || inner.Shift != 60e6 || inner.Half != 10e6 {
			t.Errorf("%d: began at %d, %+v", i, began, inner)
		}
		if n := c.Network; !n.Bounded || n.SendLow == n.SendHigh || n.SendLow < 0 || n.SendHigh > n.NS {
			t.Errorf("%d: %+v", i, n)
		}
	}
	if n := v.Calls[0].Network; n.SendLow != 13e6 || n.SendHigh != 33e6 || n.BackLow != 15e6 || n.BackHigh != 35e6 {
		t.Errorf("%+v", n)
	}
}

// C44: seven views of one call, in five spellings.
func TestMixedNames(t *testing.T) {
	_, v := seen(t, "C44-otlp-mixed-genai-attributes")
	if len(v.Calls) != 1 {
		t.Fatal(len(v.Calls))
	}
	c := v.Calls[0]
	holds(t, c)
	if c.Input.N != 812 || c.Output.N != 96 || c.Cached.N != 512 || c.Input.Views != 6 || len(c.Layers) != 6 {
		t.Errorf("%+v %+v %+v, %d layers", c.Input, c.Output, c.Cached, len(c.Layers))
	}
	if n := notes(c); !strings.Contains(n, "512 + 300 = 812") || strings.Contains(n, "contradict") || !strings.Contains(n, "openai") {
		t.Error(n)
	}
	if len(c.First) != 1 || c.First[0].NS != 231e6 || len(c.First[0].By) != 2 {
		t.Errorf("%+v", c.First)
	}
	if c.Provider != "vllm" || c.Operation != "chat" {
		t.Errorf("%q %q", c.Provider, c.Operation)
	}
	for _, s := range []genai.Shape{genai.Old, genai.Standard, genai.Middle, genai.V137, genai.OpenInference, genai.OpenLLMetry, genai.Vendor} {
		if !slices.Contains(c.Shapes, s) {
			t.Errorf("%v lacks %s", c.Shapes, s)
		}
	}
	for _, l := range c.Layers {
		if n, known := l.Span.Number(genai.InputTokens); l.Span.Scope.Name == "ebpf" && (known || n != 0) {
			t.Error("the span without counts has one")
		}
	}
}

var private = []string{"example.com", "kim.", "000 555", "555 0100", "NOT-A-REAL", "invoice", "German", "Line item", "data:image", "bitte"}

// C45: of content only the size is left, whatever is printed.
func TestPrivateContent(t *testing.T) {
	d, v := seen(t, "C45-otlp-huge-private-attributes")
	long, cut := of(t, v, "451"), of(t, v, "452")
	if long.Content != (genai.Content{Attributes: 1, Bytes: 39_249, Roles: genai.Roles{System: 1, User: 2, Assistant: 1}}) {
		t.Errorf("%+v", long.Content)
	}
	if cut.Content.Truncated != 1 || cut.Content.Bytes != 4_096 || cut.Content.Roles != (genai.Roles{}) {
		t.Errorf("%+v", cut.Content)
	}
	if long.Input.N != 9120 || long.Output.N != 340 || long.Finish != "stop" || long.Client.NS != 3_120e6 || cut.Input.N != 2010 || cut.Output.N != 210 || cut.Finish != "stop" || cut.Client.NS != 2_210e6 {
		t.Errorf("%+v\n%+v", long, cut)
	}
	if d.Dropped[genai.ContentKey] != 2 {
		t.Errorf("%+v", d.Counts)
	}
	silent(t, d, v, nil)

	small := Decoder{Limits: Limits{Value: 1000}}
	body, err := os.ReadFile(cases + "C45-otlp-huge-private-attributes.otlp.json")
	if err != nil {
		t.Fatal(err)
	}
	limited, err := small.Decode(body, JSON, false)
	if err != nil || limited.Oversize != 2 || len(limited.Spans) != 2 || limited.Spans[0].Content.Oversized != 1 || limited.Spans[0].Content.Bytes != 39_249 {
		t.Errorf("%v %+v", err, limited)
	}
	for _, at := range []int{100, 3000, 20_000, len(body) - 40} { // broken in every way: no error quotes anything
		for _, broken := range [][]byte{body[:at], append(slices.Clone(body[:at]), 0x00), bytes.Replace(body, []byte("intValue"), []byte(`intValue":"kim.example@example.com","x`), 1),
			append(slices.Clone(body[:at]), `{"kim.example@example.com":[[[`...)} {
			d, err := new(Decoder).Decode(broken, JSON, false)
			silent(t, d, nil, err)
			d, err = new(Decoder).File(bytes.NewReader(broken), nil)
			silent(t, d, nil, err)
			d, err = new(Decoder).Decode(broken, Protobuf, false)
			silent(t, d, nil, err)
		}
	}
}

// silent renders everything in every way and looks for what must not be there.
func silent(t *testing.T, d *Decoded, v *genai.View, err error) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "%+v %#v %v\n", d, d, err)
	enc := json.NewEncoder(&b)
	if d != nil {
		for i := range d.Spans {
			s := &d.Spans[i]
			fmt.Fprintf(&b, "%+v %+v %+v %+v\n", *s, *s.Resource, *s.Scope, s.Content)
		}
		enc.Encode(d)
	}
	if v != nil {
		fmt.Fprintf(&b, "%+v\n", v)
		for _, c := range v.Calls {
			fmt.Fprintf(&b, "%+v %#v\n", *c, *c)
		}
		if err := enc.Encode(v); err != nil {
			t.Error(err)
		}
		v.Text(&b)
	}
	for _, p := range private {
		if strings.Contains(strings.ToLower(b.String()), strings.ToLower(p)) {
			t.Errorf("%q is in what is printed", p)
		}
	}
}

// C46: with several tokenizer workers the scheduler's spans are missing; the empty time is nobody's.
func TestSchedulerMissing(t *testing.T) {
	const name = "C46-sglang-scheduler-spans-missing"
	v := genai.Calls(decoded(t, name).Spans)
	v.Offer(genai.Waited{Metric: "sglang:queue_time_seconds", MeanNS: 4_020e6, Count: 40}) // as look makes it of the case's scrapes
	golden(t, name, v)
	expect(t, of(t, v, "461"), map[string]float64{"other before the scheduler": 2, "tokenize": 9, "waiting": 41, "prefill": 212, "decode": 1702, "after decode": 14})
	c := of(t, v, "462")
	expect(t, c, map[string]float64{"before the first stage": 0.2, "tokenize": 11.8, "api_server_dispatch": 8, "scheduler telemetry missing": 6180})
	if c.Gap.NS != 6_180e6 || !strings.Contains(notes(c), "more than one tokenizer worker") || !strings.Contains(c.Gap.Evidence, "4,020 ms over 40 requests") || !strings.Contains(c.Gap.Evidence, "not a measured stage") {
		t.Errorf("%+v %s", c.Gap, notes(c))
	}
	for _, l := range c.Lines {
		if l.NS > 1e9 && (l.Part != account.Unexplained || l.Standing != genai.Unknown) {
			t.Errorf("%+v", l)
		}
	}
	if of(t, v, "461").Gap.Evidence != "" {
		t.Error("evidence for a call that lacks nothing")
	}
}
