package otlp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whylate/whylate/adapter/genai"
)

func text(t testing.TB, v *genai.View) string {
	t.Helper()
	var b bytes.Buffer
	if err := v.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func bodies(t testing.TB, r ptraceotlp.ExportRequest) (proto, text []byte) {
	t.Helper()
	proto, err := r.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	if text, err = r.MarshalJSON(); err != nil {
		t.Fatal(err)
	}
	return proto, text
}

func zipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

func refusedAs(t *testing.T, err error, c Cause) {
	t.Helper()
	var r *Refused
	if !errors.As(err, &r) || r.Cause != c {
		t.Errorf("%v, want %s", err, c)
	}
}

// Both encodings, plain and gzipped, whole and in several exports: the same view.
func TestEncodingsAgree(t *testing.T) {
	proto, js := bodies(t, fleet(20, 1))
	want := ""
	for name, c := range map[string]struct {
		body []byte
		e    Encoding
		gz   bool
	}{"protobuf": {proto, Protobuf, false}, "json": {js, JSON, false}, "protobuf gzip": {zipped(proto), Protobuf, true}, "json gzip": {zipped(js), JSON, true}} {
		d, err := new(Decoder).Decode(c.body, c.e, c.gz)
		if err != nil || len(d.Spans) != 60 || d.Requests != 1 || d.Kept == 0 {
			t.Fatal(name, err)
		}
		got := text(t, genai.Calls(d.Spans))
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s:\n%s\nnot\n%s", name, got, want)
		}
	}
	lines := slices.Concat(js, []byte("\n\n{\"resourceMetrics\":[]}\n"), js, []byte("\n{\"resourceSpans\":[{\"sco\n"), []byte("{}"))
	for name, body := range map[string][]byte{"file protobuf": proto, "file gzip": zipped(proto), "file json": js, "indented": bytes.ReplaceAll(js, []byte(`,"`), []byte(",\n \"")), "lines": lines, "lines gzip": zipped(lines),
		"after white space": slices.Concat([]byte("\xef\xbb\xbf\n \n"), js), "two documents": slices.Concat(bytes.ReplaceAll(js, []byte(`,"`), []byte(",\n \"")), []byte("\n"), js)} {
		d, err := new(Decoder).File(bytes.NewReader(body), nil)
		if err != nil {
			t.Error(name, err)
			continue
		}
		v := genai.Calls(d.Spans)
		v.Counts.Duplicates = 0
		if got := text(t, v); got != want {
			t.Errorf("%s:\n%s\nnot\n%s", name, got, want)
		}
		if strings.HasPrefix(name, "lines") && (d.Refused != 1 || d.Elsewhere != 1 || d.Requests != 3) {
			t.Errorf("%s: %+v", name, d.Counts)
		}
	}
	a, b := fleet(10, 1), fleet(10, 11)
	var parts []genai.Span
	for _, r := range []ptraceotlp.ExportRequest{b, a, b} {
		p, _ := bodies(t, r)
		d, err := new(Decoder).Decode(p, Protobuf, false)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, d.Spans...)
	}
	v := genai.Calls(parts)
	if v.Counts.Duplicates != 30 {
		t.Errorf("%+v", v.Counts)
	}
	v.Counts.Duplicates = 0
	if got := text(t, v); got != want {
		t.Errorf("in three exports:\n%s\nnot\n%s", got, want)
	}
}

// A file larger than memory should be is handed on line by line.
func TestFileIsHandedOn(t *testing.T) {
	_, js := bodies(t, fleet(5, 1))
	var file bytes.Buffer
	for range 40 {
		file.Write(js)
		file.WriteByte('\n')
	}
	most, all := 0, 0
	d, err := new(Decoder).File(&file, func(s []genai.Span) { most, all = max(most, len(s)), all+len(s) })
	if err != nil || most != 15 || all != 600 || len(d.Spans) != 0 || d.Requests != 40 {
		t.Error(err, most, all, d.Counts)
	}
}

// A span that cannot be taken costs itself: partial success.
func TestPartialSuccess(t *testing.T) {
	_, js := bodies(t, fleet(4, 1))
	for name, broken := range map[string][]byte{
		"time below zero":    bytes.Replace(js, []byte(`"startTimeUnixNano":"1`), []byte(`"startTimeUnixNano":"-1`), 1),
		"id in base64":       bytes.Replace(js, []byte(`"spanId":"0101020304050607"`), []byte(`"spanId":"AQECAwQFBgc="`), 1),
		"number that is not": bytes.Replace(js, []byte(`"intValue":"41"`), []byte(`"intValue":"kim.example@example.com"`), 1),
		"no id":              bytes.Replace(js, []byte(`"spanId":"0101020304050607"`), []byte(`"spanId":""`), 1),
		"attribute of text":  bytes.Replace(js, []byte(`{"intValue":"41"}`), []byte(`"kim.example@example.com"`), 1),
	} {
		d, err := new(Decoder).Decode(broken, JSON, false)
		if err != nil || len(d.Spans) != 11 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		n, message := d.PartialSuccess()
		if n != 1 || !strings.HasPrefix(message, "1 spans refused: ") || strings.Contains(message, "kim") {
			t.Errorf("%s: %d %q", name, n, message)
		}
	}
	odd := bytes.Replace(js, []byte(`"scope":{"name":"gateway"}`), []byte(`"scope":7`), 1)
	if d, err := new(Decoder).Decode(odd, JSON, false); err != nil || len(d.Spans) != 12 || bytes.Equal(odd, js) {
		t.Error("a scope that is none costs more than itself", err)
	}
	if d, err := new(Decoder).Decode(js, JSON, false); err != nil {
		t.Error(err)
	} else if n, message := d.PartialSuccess(); n != 0 || message != "" {
		t.Error(n, message)
	}
}

// One bad id among the spans of a protobuf request.
func TestPartialSuccessProtobuf(t *testing.T) {
	proto, _ := bodies(t, fleet(4, 1))
	id := []byte{1, 1, 2, 3, 4, 5, 6, 7}
	at := bytes.Index(proto, append([]byte{18, 8}, id...))
	broken := slices.Clone(proto)
	for what, tag := range map[string]byte{"the start of a group": 2<<3 | 3, "an unknown field, so no id": 14<<3 | 2, "a trace id of 8 bytes": 1<<3 | 2} {
		broken[at] = tag
		d, err := new(Decoder).Decode(broken, Protobuf, false)
		if err != nil || d.Rejected != 1 || len(d.Spans) != 11 {
			t.Errorf("%s: %v %+v", what, err, d)
		}
	}
}

func TestRefusals(t *testing.T) {
	proto, js := bodies(t, fleet(4, 1))
	small := Decoder{Limits: Limits{Body: 1000}}
	decode := func(d *Decoder, b []byte, e Encoding, gz bool) error {
		_, err := d.Decode(b, e, gz)
		return err
	}
	refusedAs(t, decode(&small, proto, Protobuf, false), TooLarge)
	refusedAs(t, decode(&small, zipped(bytes.Repeat([]byte(" "), 100_000)), JSON, true), TooLarge) // a bomb
	few := Decoder{Limits: Limits{Spans: 5}}
	refusedAs(t, decode(&few, proto, Protobuf, false), TooMany)
	refusedAs(t, decode(&few, js, JSON, false), TooMany)
	few = Decoder{Limits: Limits{Objects: 20}}
	refusedAs(t, decode(&few, js, JSON, false), TooMany)
	def := new(Decoder)
	shells := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), bytes.Repeat([]byte{18, 0}, 600_000)) // two bytes a span
	refusedAs(t, decode(def, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), shells), Protobuf, false), TooMany)
	refusedAs(t, decode(def, []byte(`{"a":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`}`), JSON, false), TooDeep)
	refusedAs(t, decode(def, []byte(strings.Repeat(`{"resourceSpans":`, 1_000_000)), JSON, false), TooDeep)
	refusedAs(t, decode(def, zipped(js)[:200], JSON, true), Truncated)
	refusedAs(t, decode(def, js, JSON, true), Malformed)
	refusedAs(t, decode(def, js[:len(js)/2], JSON, false), Truncated)
	refusedAs(t, decode(def, proto[:len(proto)-3], Protobuf, false), Malformed)
	refusedAs(t, decode(def, js, Protobuf, false), Malformed)
	refusedAs(t, decode(def, proto, JSON, false), Malformed)
	refusedAs(t, decode(def, []byte(`{"resourceSpans": 7}`), JSON, false), Malformed)
	refusedAs(t, decode(def, slices.Concat(js, js), JSON, false), Malformed)
	for _, empty := range []struct {
		b []byte
		e Encoding
	}{{nil, Protobuf}, {[]byte("{}"), JSON}, {[]byte(`{"resourceSpans":[]}`), JSON}} {
		if d, err := def.Decode(empty.b, empty.e, false); err != nil || len(d.Spans) != 0 || d.Requests != 1 {
			t.Error(err)
		}
	}
	file := func(b []byte, l Limits) error {
		_, err := (&Decoder{Limits: l}).File(bytes.NewReader(b), nil)
		return err
	}
	refusedAs(t, file([]byte("# HELP a b\na 1\n"), Limits{}), NotTraces)
	refusedAs(t, file(zipped(slices.Concat(js, []byte("\n"), js))[:900], Limits{}), Truncated)
	damaged := zipped(js)
	damaged[len(damaged)/2] ^= 0xff
	refusedAs(t, file(damaged, Limits{}), Malformed)
	refusedAs(t, file(bytes.Repeat(append(slices.Clone(js), '\n'), 3), Limits{File: int64(len(js) + 10)}), TooLarge)
	refusedAs(t, file(proto, Limits{Body: 100}), TooLarge)
	d, err := (&Decoder{Limits: Limits{Body: len(js)}}).File(strings.NewReader(string(js)+"\n{\"x\":\""+strings.Repeat("y", 2*len(js))+"\"}\n"+strings.Replace(string(js), "9e37", "9e38", -1)), nil)
	if err != nil || d.Refused != 1 || d.Requests != 2 || len(d.Spans) != 24 || d.Why[string(TooLarge)] != 1 {
		t.Errorf("a line that is too long: %v %+v", err, d.Counts)
	}
	if d, err := def.File(strings.NewReader(""), nil); err != nil || len(d.Spans) != 0 {
		t.Error(err)
	}
	_, err = def.File(&failing{}, nil)
	if err == nil || errors.As(err, new(*Refused)) {
		t.Error(err)
	}
}

type failing struct{}

func (*failing) Read([]byte) (int, error) { return 0, os.ErrPermission }

// Thousands of attributes on one span: the first are looked at, the others are counted, the span stays.
func TestManyAttributes(t *testing.T) {
	r := fleet(1, 1)
	a := r.Traces().ResourceSpans().At(2).ScopeSpans().At(0).Spans().At(0).Attributes()
	for i := range 2000 {
		a.PutEmpty(fmt.Sprint("label.", i)).SetInt(1)
	}
	proto, _ := bodies(t, r)
	d, err := new(Decoder).Decode(proto, Protobuf, false)
	if err != nil || len(d.Spans) != 3 || d.Surplus != 2013-512 {
		t.Fatal(err)
	}
	if v := genai.Calls(d.Spans); v.Calls[0].Output.N != 41 {
		t.Errorf("%+v", v.Calls[0].Output)
	}
	big := strings.Repeat("x", 3<<20)
	a.PutStr("gen_ai.prompt", big)
	a.PutStr("note", big)
	a.PutStr("gen_ai.response.model", big)
	a.PutEmptyMap("gen_ai.output.messages").PutEmptySlice("parts").AppendEmpty().SetStr("invoice words")
	a.RemoveIf(func(k string, _ pcommon.Value) bool { return strings.HasPrefix(k, "label.") })
	proto, _ = bodies(t, r)
	d, err = new(Decoder).Decode(proto, Protobuf, false)
	if err != nil || d.Oversize != 2 || d.Unusable != 1 {
		t.Fatalf("%v %+v", err, d.Counts)
	}
	for _, s := range d.Spans {
		if s.Content != nil && (s.Content.Bytes != 3<<20+int64(len("parts")+len("invoice words")) || s.Content.Oversized != 1) {
			t.Errorf("%+v", s.Content)
		}
	}
	silent(t, d, genai.Calls(d.Spans), nil)
}

// A real engine's spans: vLLM 0.32, three requests, one of them with eight sequences, and its own start.
func TestRecorded(t *testing.T) {
	f, err := os.Open("testdata/vllm-0.32.otlp.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d, err := new(Decoder).File(f, nil)
	if err != nil || d.Rejected+d.Refused > 0 {
		t.Fatal(err)
	}
	v := genai.Calls(d.Spans)
	for _, c := range v.Calls {
		holds(t, c)
	}
	golden(t, "vllm-0.32", v)
	// what the clients of the run were told
	for id, want := range map[string][2]int64{"cmpl-cli-0-0": {680, 25}, "cmpl-cli-1-0": {100, 480}, "cmpl-cli-2-0": {22, 29}} {
		k := slices.IndexFunc(v.Calls, func(c *genai.Call) bool { return c.RequestID == id })
		if k < 0 || v.Calls[k].Input.N != want[0] || v.Calls[k].Output.N != want[1] {
			t.Errorf("%s", id)
		}
	}
	if len(v.Calls) != 3 || v.Counts.Elsewhere == 0 {
		t.Errorf("%+v", v.Counts)
	}
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"C39-otlp-sibling-server-and-engine", "C41-otlp-orphans-open-spans", "C44-otlp-mixed-genai-attributes", "C46-sglang-scheduler-spans-missing"} {
		b, err := os.ReadFile(cases + name + ".otlp.json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	proto, js := bodies(f, fleet(2, 1))
	f.Add(proto)
	f.Add(js)
	f.Add(zipped(proto))
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"01","":{}}]}]}]}`))
	f.Add([]byte(`{"resourceSpans":[null,{"scopeSpans":[null,{"spans":[null,{"events":[null],"links":[null],"attributes":[null,{"value":null}]}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range []Encoding{Protobuf, JSON} {
			check(t, b, func() (*Decoded, error) { return new(Decoder).Decode(b, e, false) })
		}
		check(t, b, func() (*Decoded, error) { return new(Decoder).File(bytes.NewReader(b), nil) })
	})
}

func check(t *testing.T, b []byte, decode func() (*Decoded, error)) {
	d, err := decode()
	if err != nil && !errors.As(err, new(*Refused)) {
		t.Fatalf("%v", err)
	}
	if d == nil {
		return
	}
	v := genai.Calls(d.Spans)
	for _, c := range v.Calls {
		holds(t, c)
	}
	var out bytes.Buffer
	if err := v.Text(&out); err != nil {
		t.Fatal(err)
	}
}
