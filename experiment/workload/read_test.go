package workload

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

var update = flag.Bool("update", false, "accept what is read from the fixtures")

// fixtures are first rows of published traces (testdata/README.md).
func fixtures(t testing.TB) []string {
	t.Helper()
	csv, _ := filepath.Glob("testdata/*.csv")
	jsonl, _ := filepath.Glob("testdata/*.jsonl")
	if len(csv) != 3 || len(jsonl) != 1 {
		t.Fatal("fixtures", csv, jsonl)
	}
	return append(csv, jsonl...)
}

func read(t testing.TB, text string, o Options) ([]experiment.Request, *Reader, error) {
	t.Helper()
	r, err := Read(strings.NewReader(text), o)
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { r.Close() })
	all, err := experiment.ReadAll(r)
	return all, r, err
}

func TestFixtures(t *testing.T) {
	for _, name := range fixtures(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all, r, err := read(t, string(text), Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		var got bytes.Buffer
		if err := experiment.Write(&got, all); err != nil {
			t.Fatal(name, err)
		}
		s, err := Show(experiment.Requests(all))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s: %d requests in %v, %.3f a second, gaps vary by %.3f; prompt %+v, output %+v; shared %d (%.3f); classes %v\n",
			r.Format, s.Requests, time.Duration(s.SpanNs), s.Rate, s.GapCV, s.Prompt, s.Output, s.Shared, s.SharedPart, s.Classes)
		golden := name + ".golden"
		if *update {
			os.WriteFile(golden, got.Bytes(), 0o644)
		}
		want, err := os.ReadFile(golden)
		if err != nil || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: %v\ngot\n%swant\n%s", name, err, got.Bytes(), want)
		}
		// A reader gives the same whatever its own format has become: what is written reads back.
		again, r, err := read(t, string(got.Bytes()[:bytes.LastIndexByte(bytes.TrimSpace(got.Bytes()), '\n')]), Options{})
		if err != nil || r.Format != "whylate" || len(again) != len(all) {
			t.Errorf("%s: written and read again: %d requests, %v", name, len(again), err)
		}
	}
}

const (
	azureText = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8"
	burstText = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5.5,a-b,43,GPT-4,906,446,1352,Conversation log\n45,\"x,y\",2,ChatGPT,36,29,65,API log\n"
	moonText  = `{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [7, 8]}` + "\n" + `{"timestamp": 27, "input_length": 512, "output_length": 6, "hash_ids": [7]}` + "\n"
	ownText   = `{"at_ns":3,"prompt_tokens":5,"output_tokens":2}` + "\n" + `{"at_ns":3,"prompt_tokens":6,"output_tokens":2}` + "\n"
)

func TestReadAnyFormat(t *testing.T) {
	f := func(text, format string, want ...experiment.Request) {
		t.Helper()
		for _, text := range []string{text, "\ufeff" + text, "\r\n\n" + text, strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")} {
			for _, o := range []Options{{}, {Sort: true}} {
				got, r, err := read(t, text, o)
				if err != nil || r.Format != format || len(got) != len(want) {
					t.Fatalf("%q: %v, %+v", text, err, got)
				}
				for i := range want {
					if got[i].N = 0; fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
						t.Errorf("%q: request %d\ngot  %+v\nwant %+v", text, i, got[i], want[i])
					}
				}
			}
		}
	}
	f(azureText, "Azure", experiment.Request{PromptTokens: 4808, OutputTokens: 10}, experiment.Request{At: 52 * time.Millisecond, PromptTokens: 3180, OutputTokens: 8})
	f("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 01:00:01.00993+01:00,1,1\n", "Azure",
		experiment.Request{PromptTokens: 2162, OutputTokens: 5}, experiment.Request{At: time.Second, PromptTokens: 1, OutputTokens: 1})
	f(burstText, "BurstGPT", experiment.Request{At: 5500 * time.Millisecond, PromptTokens: 906, OutputTokens: 446, Class: "Conversation log"},
		experiment.Request{At: 45 * time.Second, PromptTokens: 36, OutputTokens: 29, Class: "API log"})
	f(moonText, "Mooncake", experiment.Request{PromptTokens: 1000, OutputTokens: 5, Prefix: []experiment.PrefixRun{{Hash: 7, Tokens: 512}, {Hash: 8, Tokens: 488}}},
		experiment.Request{At: 27 * time.Millisecond, PromptTokens: 512, OutputTokens: 6, Prefix: []experiment.PrefixRun{{Hash: 7, Tokens: 512}}})
	f(ownText, "whylate", experiment.Request{At: 3, PromptTokens: 5, OutputTokens: 2}, experiment.Request{At: 3, PromptTokens: 6, OutputTokens: 2})
}

func TestReadRefuses(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		_, _, err := read(t, text, Options{})
		var bad *experiment.FieldError
		if !errors.As(err, &bad) || bad.Advice == "" {
			t.Fatalf("%.100q: error %v, want a FieldError", text, err)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.100q:\n  error %v\n  lacks %q", text, err, w)
			}
		}
	}
	azureRow := func(row string) string { return "TIMESTAMP,ContextTokens,GeneratedTokens\n" + row + "\n" }
	burstRow := func(row string) string { return burst.header + "\n" + row + "\n" }
	const at = "2023-11-16 18:17:03.97"

	// What it is.
	f("", "it is empty")
	f("\n \r\n", "it is empty")
	f("\ufeff", "it is empty")
	f("\x1f\x8b\x08\x00", "line 1", "compressed", "gzip -dc")
	f("hello world\n", "line 1: format: hello world: ", "no workload that is known", azure.header)
	f("2023-11-16 18:17:03,1,2\n", "the header is missing", azure.header)
	f("TIMESTAMP,ContextTokens\n", "lacks the column GeneratedTokens")
	f("Timestamp,Model,Request tokens\n", "lacks the column Response tokens")

	// Azure.
	f(azureRow("2023-11-16,1,2"), "line 2: TIMESTAMP: 2023-11-16: give a time such as")
	f(azureRow("1969-12-31 23:59:59,1,2"), "line 2: TIMESTAMP", "1970")
	f(azureRow("9999-12-31 23:59:59,1,2"), "TIMESTAMP")
	f(azureRow(at+",-5,2"), "line 2: ContextTokens: -5: give a whole number from 1", "--skip-bad")
	f(azureRow(at+",5,NaN"), "GeneratedTokens: NaN: ")
	f(azureRow(at+",99999999999999999999,2"), "ContextTokens: 99999999999999999999: ")
	f(azureRow(at+",16777217,2"), "ContextTokens: 16777217: ")
	f(azureRow(at+",5.0,2"), "ContextTokens: 5.0: ")
	f(azureRow(at+",,2"), "ContextTokens: give a whole")
	f(azureRow(at+",5,0"), "GeneratedTokens: 0: nothing was generated")
	f(azureRow(at+",5"), "line 2: "+at+",5: the row has 2 fields, the header 3; is the line cut?")
	f(azureRow(at+",5,\"2"), "it is not CSV")
	f(azureRow(at+",5,2\n2023-11-16 18:17:03.96,5,2"), "line 3: TIMESTAMP: 2023-11-16 18:17:03.96,5,2: the time of this line is before", "--sort")

	// BurstGPT.
	for _, bad := range []string{"NaN", "-1", "Inf", "1e300", "", "soon"} {
		f(burstRow(bad+",ChatGPT,1,2,3,API log"), "line 2: Timestamp: ", "give seconds")
	}
	f(burstRow("5,ChatGPT,1,0,1,API log"), "line 2: Response tokens: 0: the request failed", "--skip-bad")
	f(burstRow("5,ChatGPT,1,2,3,API\x01log"), "class: ", "control characters")
	f(burstRow("5,ChatGPT,1,2,3,API log\n4,ChatGPT,1,2,3,API log"), "line 3: Timestamp: 4,ChatGPT", "--sort")

	// Mooncake.
	moon := func(text string) string { return strings.TrimSuffix(moonText, "\n") + "\n" + text + "\n" }
	f(moon(`{"timestamp": 30, "input_length": -4, "output_length": 6, "hash_ids": []}`), "line 3: input_length: -4: ")
	f(moon(`{"timestamp": 30, "input_length": 4, "output_length": 0, "hash_ids": []}`), "line 3: output_length: 0: ")
	f(moon(`{"timestamp": 30, "input_length": 4}`), "line 3: output_length: it is missing")
	f(moon(`{"timestamp": 30.5, "input_length": 4, "output_length": 6}`), "line 3: timestamp: number 30.5: give whole numbers")
	f(moon(`{"timestamp": -1, "input_length": 4, "output_length": 6}`), "line 3: timestamp: -1: ")
	f(moon(`{"timestamp": 9000000000000000000, "input_length": 4, "output_length": 6}`), "timestamp: 9000000000000000000: ")
	f(moon(`{"timestamp": 30, "input_length": 99999999999999999999, "output_length": 6}`), "line 3: input_length: ")
	f(moon(`{"timestamp": NaN, "input_length": 4, "output_length": 6}`), "line 3", "no NaN")
	f(moon(`{"timestamp": 30, "input_length": 4, "output_length": 6, "hash_ids": [-1]}`), "line 3: hash_ids: number -1")
	f(moon(`{"timestamp": 30, "input_length": 4, "output_length": 6, "hash_ids": [1, 2]}`), "hash_ids: 2 ids: an input of 4 tokens has 1 blocks of 512")
	f(moon(`{"timestamp": 30, "input_length": 4, "out`), "line 3", "is the line cut?")
	f(moon(`{"timestamp": 30, "input_length": 4, "output_length": 6}{}`), "line 3", "something follows")
	f(moon(`[1]`), "line 3: [1]: it is not a JSON object")
	f(moon(`{"timestamp": 26, "input_length": 4, "output_length": 6}`), "line 3: timestamp: ", "--sort")

	// Ours.
	f(ownText+`{"at_ns":2,"prompt_tokens":5,"output_tokens":2}`, "line 3: at_ns: 2: it is before that of the request above, 3", "--sort")
	f(`{"x":1}`, "line 1: ", "this key is not known")
}

func TestSkipBadCountsByReason(t *testing.T) {
	text := burst.header + "\n" + strings.Join([]string{
		"5,ChatGPT,10,2,12,API log", "6,ChatGPT,10,0,10,API log", "7,ChatGPT,10,0,10,API log", "NaN,ChatGPT,10,1,11,API log",
		"8,ChatGPT,-1,1,11,API log", "9,ChatGPT,1", "4,ChatGPT,10,1,11,API log", "11,ChatGPT,3,4,7,API log", strings.Repeat("x", experiment.MaxLine+10),
	}, "\n")
	got, r, err := read(t, text, Options{SkipBad: true})
	if err != nil || len(got) != 2 || got[1].PromptTokens != 3 {
		t.Fatal(err, got)
	}
	s := r.Skipped()
	if want := "map[Request tokens:1 Response tokens 0:2 Timestamp:1 line too long:1 not a row:1 out of order:1]"; s.Lines != 7 || fmt.Sprint(s.Reasons) != want || !strings.Contains(s.First.Error(), "line 3") {
		t.Errorf("%d lines, %v, first %v", s.Lines, s.Reasons, s.First)
	}
	got, r, err = read(t, text, Options{SkipBad: true, Sort: true})
	if err != nil || len(got) != 3 || got[0].At != 4*time.Second || r.Skipped().Lines != 6 {
		t.Error(err, got, r.Skipped())
	}
}

func TestReadNamesTheLineOfAFailingSource(t *testing.T) {
	broken := errors.New("disk on fire")
	r, err := Read(io.MultiReader(strings.NewReader(strings.Repeat(moonText, 1)), failing{broken}), Options{})
	if err == nil {
		_, err = experiment.ReadAll(r)
	}
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "line ") {
		t.Errorf("got %v", err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestSortThroughFiles(t *testing.T) {
	var all []experiment.Request
	for i := range 1000 {
		r := experiment.Request{At: time.Duration(mixed(1, uint64(i))%97) * time.Second, PromptTokens: i + 1, OutputTokens: 1, N: 1}
		if i%3 == 0 {
			r.Prefix = []experiment.PrefixRun{{Hash: experiment.Hash(mixed(2, uint64(i))), Tokens: 1}}
			r.ID = fmt.Sprint("r", i)
		}
		all = append(all, r)
	}
	dir := t.TempDir()
	s := sorter{dir: dir, requests: 64}
	sorted, err := s.sort(experiment.Requests(all))
	if err != nil || len(s.files) != 16 {
		t.Fatal(err, len(s.files))
	}
	got, err := experiment.ReadAll(sorted)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortStableFunc(all, func(a, b experiment.Request) int { return int(a.At - b.At) })
	if fmt.Sprint(got) != fmt.Sprint(all) {
		t.Error("not sorted as in memory")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("files left behind: %v", left)
	}
	for _, f := range s.files {
		f.Close()
	}
	if _, err := (&sorter{dir: filepath.Join(dir, "absent"), requests: 1}).sort(experiment.Requests(all)); err == nil || !strings.Contains(err.Error(), "sort the workload") {
		t.Errorf("no place for files: %v", err)
	}
}

// fuzzed holds that whatever is read can be written and reads back the same, and that every error names line and remedy.
func fuzzed(f *testing.F, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
		f.Add([]byte(s[:len(s)*2/3]))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, o := range []Options{{}, {SkipBad: true, Sort: true}} {
			r, err := Read(bytes.NewReader(text), o)
			var all []experiment.Request
			if err == nil {
				defer r.Close()
				all, err = experiment.ReadAll(r)
			}
			if err != nil {
				var bad *experiment.FieldError
				if !errors.As(err, &bad) || bad.Advice == "" || o.SkipBad && r != nil {
					t.Fatalf("error without advice, or in spite of skipping: %v", err)
				}
				continue
			}
			var out bytes.Buffer
			if err := experiment.Write(&out, all); err != nil {
				t.Fatalf("read but not written: %v", err)
			}
			again, _, err := experiment.Read(&out, experiment.ReadOptions{})
			if err != nil || len(again) != len(all) {
				t.Fatalf("written but not read: %v", err)
			}
			if _, err := Show(experiment.Requests(all)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzAzure(f *testing.F) {
	fuzzed(f, azureText, "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n")
}
func FuzzBurstGPT(f *testing.F) {
	fuzzed(f, burstText, burst.header+"\n5,ChatGPT,472,18,490,Conversation log\n4,GPT-4,1,0,1,API log\n")
}
func FuzzMooncake(f *testing.F) {
	fuzzed(f, moonText, `{"timestamp": 5, "input_length": 1, "output_length": 1}`+"\n"+moonText)
}
func FuzzOwn(f *testing.F) { fuzzed(f, ownText) }
