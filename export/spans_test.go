package export

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"google.golang.org/protobuf/proto"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

var made map[string]*query.Ledger

// ledgers are what tests export: the demo capture, every scenario of package diagnose, and random runs.
func ledgers(t testing.TB) map[string]*query.Ledger {
	t.Helper()
	if made == nil {
		made = makeLedgers(t)
	}
	return made
}

func makeLedgers(t testing.TB) map[string]*query.Ledger {
	t.Helper()
	out := map[string]*query.Ledger{}
	b, err := os.ReadFile("../cli/demo.wlc")
	if err != nil {
		t.Fatal(err)
	}
	a := ingest.New()
	if err := ingest.ReadCapture(bytes.NewReader(b), "demo", a); err != nil {
		t.Fatal(err)
	}
	out["demo"] = query.Open(a.Book())
	files, _ := filepath.Glob("../diagnose/testdata/*.txtar")
	if len(files) == 0 {
		t.Fatal("no scenarios")
	}
	for _, f := range files {
		archive, err := txtar.ParseFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out[filepath.Base(f)] = play(t, string(archive.Files[0].Data))
	}
	for seed := range uint64(10) {
		run, _, err := scenario.Random(seed, 300, scenario.PlainCost)
		if err != nil {
			t.Fatal(err)
		}
		out[fmt.Sprintf("random %d", seed)] = book(t, run)
	}
	return out
}

func play(t testing.TB, text string) *query.Ledger {
	t.Helper()
	run, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return book(t, run)
}

func book(t testing.TB, run *scenario.Run) *query.Ledger {
	t.Helper()
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	return query.Open(b)
}

// each calls do with every request that has ended.
func each(t testing.TB, do func(name string, l *query.Ledger, r *ledger.Request, tr *Trace)) {
	t.Helper()
	n := 0
	for name, l := range ledgers(t) {
		for _, r := range l.Book.Requests {
			a := l.Account(r)
			tr, err := Spans(diagnose.Explain(l, r), Options{IDs: true, Version: "test"})
			if (a.State == account.Finished && a.From != 0) != (err == nil) {
				t.Fatalf("%s %s is %s: %v", name, r.Name(), a.State, err)
			}
			if err == nil {
				n++
				do(name, l, r, tr)
			}
		}
	}
	if n < 100 {
		t.Fatalf("only %d requests were exported", n)
	}
}

func get(s *tracepb.Span, key string) any {
	for _, kv := range s.Attributes {
		if kv.Key != key {
			continue
		}
		switch v := kv.Value; {
		case v.GetArrayValue() != nil:
			var out []string
			for _, e := range v.GetArrayValue().Values {
				out = append(out, e.GetStringValue())
			}
			return out
		case v.GetStringValue() != "":
			return v.GetStringValue()
		case v.GetDoubleValue() != 0:
			return v.GetDoubleValue()
		default:
			return v.GetIntValue()
		}
	}
	return nil
}

// Parts touch, cover the request's span exactly, and their times with what is missing in them are those of the account.
func TestPartsSumToTheRoot(t *testing.T) {
	each(t, func(name string, l *query.Ledger, r *ledger.Request, tr *Trace) {
		a := l.Account(r)
		root := tr.Spans[0]
		if int64(root.StartTimeUnixNano) != a.From || int64(root.EndTimeUnixNano) != a.To {
			t.Errorf("%s %s: the root is %d to %d, the account %d to %d", name, r.Name(), root.StartTimeUnixNano, root.EndTimeUnixNano, a.From, a.To)
		}
		at, parts := root.StartTimeUnixNano, map[account.Part]int64{}
		ids := map[string]bool{}
		for _, s := range tr.Spans {
			if ids[string(s.SpanId)] || len(s.SpanId) != 8 || len(s.TraceId) != 16 || !bytes.Equal(s.TraceId, root.TraceId) {
				t.Errorf("%s %s: ids of %s", name, r.Name(), s.Name)
			}
			ids[string(s.SpanId)] = true
			if s == root || s.Name == "whylate.sequence" {
				continue
			}
			if !bytes.Equal(s.ParentSpanId, root.SpanId) || s.StartTimeUnixNano != at {
				t.Errorf("%s %s: %s begins at %d and not at %d", name, r.Name(), s.Name, s.StartTimeUnixNano, at)
			}
			at = s.EndTimeUnixNano
			p := account.Part(get(s, "whylate.part").(string))
			missing := int64(0)
			if ms, ok := get(s, "whylate.unexplained_ms").(float64); ok {
				missing = int64(ms*1e6 + 0.5)
			}
			parts[p] += int64(s.EndTimeUnixNano-s.StartTimeUnixNano) - missing
			parts[account.Unexplained] += missing
			for _, ev := range s.Events {
				if ev.TimeUnixNano < s.StartTimeUnixNano || ev.TimeUnixNano > s.EndTimeUnixNano {
					t.Errorf("%s %s: event %s lies outside %s", name, r.Name(), ev.Name, s.Name)
				}
			}
		}
		if at != root.EndTimeUnixNano {
			t.Errorf("%s %s: the parts end %d ns before the root", name, r.Name(), root.EndTimeUnixNano-at)
		}
		for _, line := range a.Lines {
			if parts[line.Part] != line.NS {
				t.Errorf("%s %s: %s is %d ns in spans and %d in the account", name, r.Name(), line.Part, parts[line.Part], line.NS)
			}
		}
	})
}

// What is exported again is the same, to the byte.
func TestExportIsIdempotent(t *testing.T) {
	var once [2]map[string][]byte
	for k := range once {
		once[k] = map[string][]byte{}
		made = nil // from the records again
		each(t, func(name string, _ *query.Ledger, r *ledger.Request, tr *Trace) {
			for _, s := range tr.Spans {
				b, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
				if err != nil {
					t.Fatal(err)
				}
				once[k][name+r.Name()+identity(r)+string(s.SpanId)] = b
			}
		})
	}
	for key, b := range once[0] {
		if !bytes.Equal(b, once[1][key]) {
			t.Fatalf("%q differs", key)
		}
	}
}

// A request that is exported and read back as anybody's spans has an account of level L1 with the same boundaries.
func TestRoundTrip(t *testing.T) {
	compared := 0
	each(t, func(name string, l *query.Ledger, r *ledger.Request, tr *Trace) {
		a := l.Account(r)
		var file bytes.Buffer
		c, err := Lines(context.Background(), &file)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Send(context.Background(), Batch([]*Trace{tr})); err != nil {
			t.Fatal(err)
		}
		var spans []genai.Span
		d := &otlp.Decoder{}
		decoded, err := d.File(&file, func(s []genai.Span) { spans = append(spans, s...) })
		if err != nil || decoded.Rejected+decoded.Refused != 0 || decoded.Dropped[genai.ContentKey] != 0 || decoded.Dropped[genai.PersonKey] != 0 || decoded.Unusable != 0 {
			t.Fatalf("%s %s: %v %+v", name, r.Name(), err, decoded.Counts)
		}
		v := genai.Calls(spans)
		if len(v.Calls) != 1 {
			t.Fatalf("%s %s: %d calls\n%s", name, r.Name(), len(v.Calls), file.String())
		}
		call := v.Calls[0]
		if call.Start != a.From || !call.E2E.Known || call.E2E.NS != a.E2E() {
			t.Errorf("%s %s: from %d for %v; want %d for %d", name, r.Name(), call.Start, call.E2E, a.From, a.E2E())
		}
		sum, lines := int64(0), map[account.Part]int64{}
		for _, line := range call.Lines {
			sum += line.NS
			lines[line.Part] += line.NS
		}
		if sum != a.E2E() {
			t.Errorf("%s %s: the parts sum to %d of %d", name, r.Name(), sum, a.E2E())
		}
		width := func(parts ...account.Part) (ns int64) {
			for _, b := range a.Bounds {
				if slices.Contains(parts, b.Part) {
					ns += b.To - b.From
				}
			}
			return ns
		}
		if a.Lead == nil || a.Lead.FirstToken == 0 {
			return // there is no first token to put boundaries around
		}
		compared++
		for _, p := range []account.Part{account.Queue, account.Prefill, account.Decode} {
			if lines[p] != width(p) {
				t.Errorf("%s %s: %s lasts %d, want %d: %+v", name, r.Name(), p, lines[p], width(p), call.Lines)
			}
		}
		if len(call.First) == 0 || call.First[0].NS != width(account.Gateway, account.Frontend, account.Inbox, account.Queue, account.Prefill)+unseenBefore(a) {
			t.Errorf("%s %s: first token: %v", name, r.Name(), call.First)
		}
		if int(call.Output.N) != int(a.Output) || call.RequestID != identifier(r.Name()) {
			t.Errorf("%s %s: %d output tokens of %q, want %d", name, r.Name(), call.Output.N, call.RequestID, a.Output)
		}
	})
	if compared < 50 {
		t.Fatalf("only %d were compared", compared)
	}
}

// unseenBefore is the time before the first token that lies between parts.
func unseenBefore(a *account.Account) (ns int64) {
	for _, b := range a.Bounds {
		if b.Part == account.Unexplained && b.To <= a.Lead.FirstToken {
			ns += b.To - b.From
		}
	}
	return ns
}

const two = `engine vllm depth=1 max_num_seqs=8 num_gpu_blocks=64
0ms     http r1 trace=00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
1ms     submit r1/0 prompt=32
1ms     submit r1/1 prompt=32
2ms     queue r1/0 prompt=32
2ms     queue r1/1 prompt=32
3..8ms  iter r1/0:32 r1/1:32
9ms     x5 10ms iter r1/0 r1/1
60..69ms iter r1/0 r1/1 end=r1/0:length end=r1/1:stop
70ms    last r1
`

func one(t *testing.T, text, id string) *Trace {
	t.Helper()
	l := play(t, text)
	r, err := l.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := Spans(diagnose.Explain(l, r), Options{IDs: true})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func names(tr *Trace) (out []string) {
	for _, s := range tr.Spans {
		out = append(out, s.Name)
	}
	return out
}

// A request keeps the trace and the parent that it came with; several sequences are siblings.
func TestSequencesAndTraceContext(t *testing.T) {
	tr := one(t, two, "4bf92f3577b34da6a3ce929d0e0e4736")
	root := tr.Spans[0]
	if got := fmt.Sprintf("%x %x", root.TraceId, root.ParentSpanId); got != "4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7" {
		t.Error(got)
	}
	n := 0
	for _, s := range tr.Spans {
		if s.Name == "whylate.sequence" {
			n++
			if !bytes.Equal(s.ParentSpanId, root.SpanId) || len(s.Events) == 0 {
				t.Errorf("%v", s)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d sequences: %v", n, names(tr))
	}
	if got := get(root, "gen_ai.request.choice.count"); got != int64(2) {
		t.Errorf("choices: %v", got)
	}
}

// A preemption and the recompute that follows are events of the part in which they happened, with their iterations.
func TestPreemptionEvents(t *testing.T) {
	archive, err := txtar.ParseFile("../diagnose/testdata/preemption.txtar")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimRight(string(archive.Files[0].Data), "\n") + "\n1600ms last victim\n1600ms last grower\n"
	tr := one(t, text, "victim")
	var got []string
	for _, s := range tr.Spans {
		for _, ev := range s.Events {
			line := s.Name + " " + ev.Name
			for _, kv := range ev.Attributes {
				if strings.Contains(kv.Key, "iteration") {
					line += fmt.Sprintf(" %d", kv.Value.GetIntValue())
				}
			}
			got = append(got, line)
		}
	}
	want := []string{"whylate.prefill whylate.stint 1 1", "whylate.prefill first_token 1", "whylate.decode whylate.stint 2 61", "whylate.decode whylate.preemption 62",
		"whylate.decode whylate.recompute 143 143", "whylate.decode whylate.stint 144 171"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if kind := get(tr.Spans[0], "whylate.finding.kind"); kind != diagnose.Preempted {
		t.Errorf("finding %v", kind)
	}
	if s, _ := get(tr.Spans[0], "whylate.finding").(string); !strings.HasPrefix(s, "It was preempted once") {
		t.Errorf("finding %q", s)
	}
}

// Without leave, no id and no sentence that may hold one goes out; what looks like a person's never does.
func TestIDsLeaveOnlyWithLeave(t *testing.T) {
	for name, l := range ledgers(t) {
		for _, r := range l.Book.Requests {
			tr, err := Spans(diagnose.Explain(l, r), Options{})
			if err != nil {
				continue
			}
			for _, s := range tr.Spans {
				for _, kv := range s.Attributes {
					for _, id := range r.IDs() {
						if kv.Key != "whylate.finding.kind" && strings.Contains(kv.Value.GetStringValue(), id) {
							t.Errorf("%s: %q left in %s", name, id, kv.Key)
						}
					}
				}
			}
		}
	}
	if identifier("jane.doe@example.com") != "" || identifier("a sentence") != "" || identifier("cli-7") == "" {
		t.Error("identifier")
	}
}

// A traceparent is somebody else's text: it is taken whole or not at all.
func FuzzTraceParent(f *testing.F) {
	for _, s := range []string{"", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-03", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-zz-00f067aa0ba902b7-01-x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		trace, parent, _, ok := parseTraceParent(s)
		if ok && (len(trace) != 16 || zero(trace) || parent != nil && (len(parent) != 8 || zero(parent))) {
			t.Errorf("%q: %x %x", s, trace, parent)
		}
		l := lineageOf(&ledger.Request{RequestID: "r", TraceParent: s})
		if len(l.trace) != 16 || l.randomness() >= whole || len(l.span("x")) != 8 {
			t.Errorf("%q: %+v", s, l)
		}
	})
}
