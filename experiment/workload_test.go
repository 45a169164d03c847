package experiment

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

const plain = `{"at_ns":0,"prompt_tokens":5,"output_tokens":2}`

func TestReadEveryField(t *testing.T) {
	const text = "\ufeff" + `{"at_ns": 1500000000, "prompt_tokens": 680, "output_tokens": 25, "prefix": [[640, 512], ["9e3779b97f4a7c15", 128]],` +
		`"n": 8, "logprobs": 20, "prompt_logprobs": -1, "cancel_after_ns": 7, "cancel_after_chunks": 10, "class": "fan", "id": "cli-1",` +
		`"traceparent": "00-dedb9109618177ffd75d6769aa4c5c60-aba8b9b38185797c-01", "ignore_eos": false}` + "\r\n" +
		"\n  \n" + // empty lines are nothing
		`{"at_ns":1500000000,"prompt_tokens":1,"output_tokens":1,"traceparent":true,"logprobs":null,"ignore_eos":true,"prefix":[]}` // no newline at the end
	got, skipped, err := Read(strings.NewReader(text), ReadOptions{})
	if err != nil || skipped.Lines != 0 {
		t.Fatal(err, skipped)
	}
	want := []Request{
		{
			At: 1500 * time.Millisecond, PromptTokens: 680, OutputTokens: 25, Prefix: []PrefixRun{{640, 512}, {0x9e3779b97f4a7c15, 128}},
			N: 8, Logprobs: new(20), PromptLogprobs: new(AllLogprobs), CancelAfter: 7, CancelChunks: 10, Class: "fan", ID: "cli-1",
			Traceparent: "00-dedb9109618177ffd75d6769aa4c5c60-aba8b9b38185797c-01", StopAtEOS: true,
		},
		{At: 1500 * time.Millisecond, PromptTokens: 1, OutputTokens: 1, N: 1, Traceparent: TraceOn},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestReadRefuses(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, _, err := Read(strings.NewReader(text), ReadOptions{})
		var bad *FieldError
		if !errors.As(err, &bad) {
			t.Fatalf("%.100s: error %v, want a FieldError", text, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.100s:\n  error %v\n  lacks %q", text, err, w)
			}
		}
	}
	with := func(field string) string { return strings.TrimSuffix(plain, "}") + "," + field + "}" }

	// The line as a whole.
	f("[1]", "workload line 1: [1]: ", "not a JSON object")
	f("at_ns,prompt_tokens", "not a JSON object")
	f(plain+"\n"+plain+plain, "line 2", "something follows")
	f(plain[:len(plain)-1], "line 1", "cut")
	f(plain[:12], "ends in the middle")
	f("{\"at_ns\":0 \xff}", "not UTF-8")
	f(`{"class":"`+strings.Repeat("x", MaxLine)+`"}`, "line 1", "more than the limit of 1048576")

	// Keys.
	f(with(`"prompt":"secret"`), `"prompt"`, "not known", "prompt_tokens, output_tokens")
	f(with(`"n":1,"n":2`), "n: 2: it is given twice")
	f(`{"prompt_tokens":5,"output_tokens":2}`, "at_ns: it is missing; give a whole number of nanoseconds")
	f(`{"at_ns":0,"prompt_tokens":null,"output_tokens":2}`, "prompt_tokens: null: give a whole number from 1")

	// Values.
	f(`{"at_ns":NaN,"prompt_tokens":5,"output_tokens":2}`, "at_ns: ", "NaN")
	f(`{"at_ns":1.5e9,"prompt_tokens":5,"output_tokens":2}`, "at_ns: 1.5e9: give a whole number of nanoseconds")
	f(`{"at_ns":-1,"prompt_tokens":5,"output_tokens":2}`, "at_ns: -1: ")
	f(`{"at_ns":9223372036854775807,"prompt_tokens":5,"output_tokens":2}`, "at_ns: ", "146 years")
	f(`{"at_ns":99999999999999999999,"prompt_tokens":5,"output_tokens":2}`, "at_ns: 99999999999999999999: ")
	f(`{"at_ns":0,"prompt_tokens":-5,"output_tokens":2}`, "prompt_tokens: -5: give a whole number from 1 to 16777216")
	f(`{"at_ns":0,"prompt_tokens":0,"output_tokens":2}`, "prompt_tokens: 0: ")
	f(`{"at_ns":0,"prompt_tokens":"5","output_tokens":2}`, `prompt_tokens: "5": `)
	f(`{"at_ns":0,"prompt_tokens":5,"output_tokens":16777217}`, "output_tokens: 16777217: ")
	f(with(`"n":-1`), "n: -1: ", "or leave it out for 1")
	f(with(`"n":65536`), "n: 65536: ")
	f(with(`"logprobs":true`), "logprobs: true: ")
	f(with(`"logprobs":-2`), "logprobs: -2: ", "-1 for the whole vocabulary")
	f(with(`"prompt_logprobs":32767`), "prompt_logprobs: 32767: ")
	f(with(`"cancel_after_ns":-3`), "cancel_after_ns: -3: ")
	f(with(`"cancel_after_chunks":-3`), "cancel_after_chunks: -3: ")
	f(with(`"class":"a\nb"`), "class: ", "control characters")
	f(with(`"class":"`+strings.Repeat("é", 200)+`"`), "class: ", "at most 256 bytes")
	f(with(`"id":""`), `id: "": give a string`)
	f(with(`"id":"a b"`), `id: "a b": `, "X-Request-Id")
	f(with(`"id":"a\r\nEvil: 1"`), "id: ", "X-Request-Id")
	f(with(`"traceparent":"true"`), `traceparent: "true": `, "W3C")
	f(with(`"traceparent":"00-00000000000000000000000000000000-aba8b9b38185797c-01"`), "not all zero")
	f(with(`"traceparent":"00-DEDB9109618177FFD75D6769AA4C5C60-aba8b9b38185797c-01"`), "traceparent: ")
	f(with(`"ignore_eos":1`), "ignore_eos: 1: give true or false")

	// Prefixes.
	f(with(`"prefix":[[1]]`), "prefix: [[1]]: give a list of [hash, tokens]")
	f(with(`"prefix":[[1,2,3]]`), "prefix: ")
	f(with(`"prefix":[[-1,2]]`), "prefix: ")
	f(with(`"prefix":[["12",2]]`), "16 hexadecimal digits")
	f(with(`"prefix":[[1,null]]`), "prefix: ")
	f(with(`"prefix":[[1,0]]`), "prefix[0]: 0: ")
	f(with(`"prefix":[[1,4],[2,2]]`), "prefix: 6: ", "the prompt, which has 5")

	// The line among the others.
	f(`{"at_ns":9,"prompt_tokens":5,"output_tokens":2}`+"\n"+plain, "line 2: at_ns: 0: it is before that of the request above, 9; sort")
	f(with(`"id":"a"`)+"\n"+plain+"\n"+with(`"id":"a"`), `line 3: id: "a": line 1 has it too`)
}

func TestSkipBadAndSort(t *testing.T) {
	text := `{"at_ns":9,"prompt_tokens":1,"output_tokens":1}` + "\n" +
		`{"at_ns":-1,"prompt_tokens":1,"output_tokens":1}` + "\n" +
		strings.Repeat("x", 3*MaxLine) + "\n" +
		`{"at_ns":4,"prompt_tokens":2,"output_tokens":1}` + "\n" +
		`{"at_ns":9,"prompt_tokens":3,"output_tokens":1}` + "\n"
	lengths := func(o ReadOptions) (lengths []int, skipped Skipped) {
		all, skipped, err := Read(iotest.HalfReader(strings.NewReader(text)), o)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			lengths = append(lengths, r.PromptTokens)
		}
		return lengths, skipped
	}
	got, skipped := lengths(ReadOptions{SkipBad: true})
	if !reflect.DeepEqual(got, []int{1, 3}) || skipped.Lines != 3 || !strings.Contains(skipped.First.Error(), "line 2: at_ns: -1") {
		t.Errorf("skipping: %v, %+v", got, skipped)
	}
	got, skipped = lengths(ReadOptions{SkipBad: true, Sort: true})
	if !reflect.DeepEqual(got, []int{2, 1, 3}) || skipped.Lines != 2 {
		t.Errorf("sorting: %v, %+v", got, skipped)
	}
}

func TestReadNamesTheLineOfAFailingSource(t *testing.T) {
	broken := errors.New("disk on fire")
	_, _, err := Read(io.MultiReader(strings.NewReader(plain+"\n"), iotest.ErrReader(broken)), ReadOptions{SkipBad: true})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}

func TestRoundTrip(t *testing.T) {
	for _, name := range []string{"testdata/vllm-cpu.jsonl", "testdata/mooncake.jsonl"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		requests, _, err := Read(bytes.NewReader(text), ReadOptions{})
		if err != nil {
			t.Fatal(name, err)
		}
		var out bytes.Buffer
		if err := Write(&out, requests); err != nil {
			t.Fatal(name, err)
		}
		if !bytes.Equal(out.Bytes(), text) {
			t.Errorf("%s: written anew it differs", name)
		}
	}
}

func TestWriteRefusesWhatReadWould(t *testing.T) {
	f := func(want string, requests ...Request) {
		t.Helper()
		if err := Write(io.Discard, requests); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	good := Request{At: 5, PromptTokens: 1, OutputTokens: 1, ID: "a"}
	f("write request 1: workload: output_tokens: 0", Request{PromptTokens: 1})
	f("write request 2: workload: at_ns: 4: it is before", good, Request{At: 4, PromptTokens: 1, OutputTokens: 1})
	f(`write request 2: workload: id: "a": line 1 has it too`, good, good)
	f("class", Request{PromptTokens: 1, OutputTokens: 1, Class: "\xff"})
	broken := errors.New("disk full")
	if err := Write(failing{broken}, []Request{good}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

// FuzzRead holds that whatever can be read can be written, and reads back as the same requests.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"testdata/vllm-cpu.jsonl", "testdata/mooncake.jsonl"} {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		lines := bytes.SplitAfter(text, []byte("\n"))
		f.Add(bytes.Join(lines[:5], nil))
		f.Add(lines[20])
	}
	f.Add([]byte(plain + "\n" + plain[:20]))
	f.Add([]byte(`{"at_ns":0,"prompt_tokens":5,"output_tokens":2,"prefix":[["ffffffffffffffff",5]],"traceparent":false,"ignore_eos":false,"n":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range []ReadOptions{{}, {SkipBad: true, Sort: true}} {
			requests, _, err := Read(bytes.NewReader(text), o)
			if err != nil {
				var bad *FieldError
				if o.SkipBad || !errors.As(err, &bad) || bad.Line < 1 || bad.Advice == "" {
					t.Fatalf("error without a line or advice: %v", err)
				}
				continue
			}
			var out bytes.Buffer
			if err := Write(&out, requests); err != nil {
				t.Fatalf("read but not written: %v", err)
			}
			again, _, err := Read(&out, ReadOptions{})
			if err != nil || len(again) != len(requests) || len(again) > 0 && !reflect.DeepEqual(again, requests) {
				t.Fatalf("round trip: %v\ngot  %+v\nwant %+v", err, again, requests)
			}
		}
	})
}

// FuzzScan holds that what the fast way reads the strict way reads as well, and the same.
func FuzzScan(f *testing.F) {
	for _, line := range []string{
		plain, ` { "at_ns" : 0 ,	"prompt_tokens":5,"output_tokens":2 } `,
		`{"at_ns":1,"prompt_tokens":900,"output_tokens":2,"prefix":[["ffffffffffffffff",5],[17, 6]],"class":"a b","n":2,"cancel_after_ns":4,"cancel_after_chunks":1}`,
		`{"at_ns":01,"prompt_tokens":-5,"output_tokens":2,"prefix":[],"class":"\u0041","n":null}`, `{"at_ns":1,"at_ns":2,"prompt_tokens":5,"output_tokens":2}x`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var fast, strict Request
		if !fast.scan(line) {
			return
		}
		// The two may only differ in what validation says, which both ask for.
		err, wrong := strict.UnmarshalJSON(line), fast.Validate()
		if (err == nil) != (wrong == nil) || err != nil && err.Error() != wrong.Error() || err == nil && !reflect.DeepEqual(fast, strict) {
			t.Fatalf("%q\nfast   %+v, %v\nstrict %+v, %v", line, fast, wrong, strict, err)
		}
	})
}

// TestScanReadsOrdinaryLines: the fast way is of use only if it is taken.
func TestScanReadsOrdinaryLines(t *testing.T) {
	text, err := os.ReadFile("testdata/mooncake.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(text), []byte("\n")) {
		var r Request
		if !r.scan(line) {
			t.Errorf("line %d is left to the strict way: %s", i+1, line)
		}
	}
}

func TestRequestIsOrdinaryJSON(t *testing.T) {
	var batch struct{ Requests []Request }
	if err := json.Unmarshal([]byte(`{"Requests":[`+plain+`]}`), &batch); err != nil || batch.Requests[0].PromptTokens != 5 {
		t.Fatal(err, batch)
	}
	out, err := json.Marshal(batch)
	if err != nil || string(out) != `{"Requests":[`+plain+`]}` {
		t.Fatal(err, string(out))
	}
}

func BenchmarkRead(b *testing.B) {
	for _, name := range []string{"vllm-cpu", "mooncake"} {
		b.Run(name, func(b *testing.B) {
			text, err := os.ReadFile("testdata/" + name + ".jsonl")
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Read(bytes.NewReader(text), ReadOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
