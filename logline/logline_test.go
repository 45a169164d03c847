package logline

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
)

func linesOf(log string, o Options) (all []Line, err error) {
	for l, e := range Read(strings.NewReader(log), o) {
		if e != nil {
			return all, e
		}
		all = append(all, l)
	}
	return all, nil
}

func must(t *testing.T, log string, o Options) []Line {
	t.Helper()
	all, err := linesOf(log, o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

const stats = "INFO 03-11 09:12:34 [loggers.py:271] Engine 000: hello"

var told = time.Date(2026, 3, 11, 9, 12, 34, 0, time.UTC)

// Whatever a line is wrapped in, its text, level, source and date come out.
func TestWrappers(t *testing.T) {
	utc := Time{told, DateTold, ZoneTold}
	local := Time{told, DateTold, ZoneUnknown}
	guess := Time{told, YearGuessed, ZoneUnknown}
	for log, want := range map[string]struct {
		tags string
		time Time
	}{
		stats: {"[]", guess},
		"\x1b[1;36m(APIServer pid=41)\x1b[0;0m " + stats:                            {"[{process APIServer} {pid 41}]", guess},
		"[1;36m(APIServer pid=41)[0;0m " + stats:                                    {"[{process APIServer} {pid 41}]", guess},
		"(A pid=1) (B pid=2, ip=192.0.2.1) " + stats:                                {"[{process A} {pid 1} {process B} {pid 2} {ip 192.0.2.1}]", guess},
		"2026-03-11T09:12:34Z stderr F " + stats:                                    {"[{stream stderr}]", utc},
		"2026-03-11T09:12:34Z stdout F:x " + stats:                                  {"[{stream stdout}]", utc},
		"2026-03-11T09:12:34Z " + stats:                                             {"[]", utc},
		"\x1b[33mengine-1  | \x1b[0m" + stats:                                       {"[{from engine-1}]", guess},
		"[pod/engine-0/server] " + stats:                                            {"[{from pod/engine-0/server}]", guess},
		"[pod/engine-0/server] 2026-03-11T09:12:34Z " + stats:                       {"[{from pod/engine-0/server}]", utc},
		"[rank0]: " + stats:                                                         {"[{from rank0}]", guess},
		"Mar 11 09:12:33 host7 python3[812]: " + stats:                              {"[{host host7} {pid 812}]", guess},
		`{"log":"` + stats + `\n","stream":"stdout","time":"2026-03-11T09:12:34Z"}`: {"[{stream stdout}]", utc},
		`2026-03-11T10:00:00Z stderr F {"time":"2026-03-11T09:12:34Z","severity":"info","logger":"loggers.py:271","message":"` + stats + `"}`: {"[{stream stderr}]", utc},
		`{"log":"{\"asctime\":\"2026-03-11 09:12:34\",\"levelname\":\"INFO\",\"message\":\"` + stats + `\"}\n","stream":"stderr"}`:            {"[{stream stderr}]", local},
		`{"ts":1773220354,"level":"INFO","processName":"APIServer","process":41,"msg":"` + stats + `"}`:                                       {"[{process APIServer} {pid 41}]", utc},
		`{"ts":1773220354000,"level":"INFO","msg":"` + stats + `"}`:                                                                           {"[]", utc},
		`{"MESSAGE":"` + stats + `","__REALTIME_TIMESTAMP":"1773220354000000"}`:                                                               {"[]", utc},
		`{"line":"` + stats + `","timestamp":"2026-03-11T10:12:34+0100"}`:                                                                     {"[]", utc},
		`{"date":1773220354.0,"log":"` + stats + `"}`:                                                                                         {"[]", utc},
		"engine-0 server > " + stats:  {"[]", guess},
		"node-7: " + stats:            {"[]", guess},
		"[site]" + stats:              {"[]", guess},
		"\xef\xbb\xbf" + stats + "\r": {"[]", guess},
	} {
		all := must(t, log, Options{Near: told})
		if len(all) != 1 {
			t.Errorf("%q: %d lines", log, len(all))
			continue
		}
		l := all[0]
		if !l.Time.At.Equal(want.time.At) || l.Time.Date != want.time.Date || l.Time.Zone != want.time.Zone || fmt.Sprint(l.Tags) != want.tags {
			t.Errorf("%q: %+v", log, l)
		}
		if l.Text != "Engine 000: hello" || l.Level != "INFO" || l.Source != "loggers.py:271" || l.First != 1 || l.Last != 1 {
			t.Errorf("%q: %+v", log, l)
		}
	}
}

// The formats of other loggers.
func TestHeaders(t *testing.T) {
	for log, want := range map[string]string{
		"2026-03-11 09:12:34,250 - vllm.engine - INFO - hello":                   "INFO vllm.engine [] hello",
		"2026-03-11 09:12:34,250 INFO vllm.engine: hello":                        "INFO vllm.engine [] hello",
		"2026-03-11T09:12:34.250 [WARNING] hello":                                "WARNING  [] hello",
		"[2026-03-11 09:12:34.250 DP1 PP0 TP2 EP2] hello":                        "  [{DP 1} {PP 0} {TP 2} {EP 2}] hello",
		"(SGLangEngine pid=7, ip=192.0.2.1) [2026-03-11 09:12:34.250 TP0] hello": "  [{process SGLangEngine} {pid 7} {ip 192.0.2.1} {TP 0}] hello",
		"[2026-03-11 09:12:34,250] INFO engine.py:156: hello":                    "INFO engine.py:156 [] hello",
		"[2026-03-11 09:12:34.250] INFO:     hello":                              "INFO  [] hello",
		`{"asctime":"2026-03-11 09:12:34,250","message":"hello"}`:                "  [] hello",
	} {
		l := must(t, log, Options{})[0]
		if got := fmt.Sprintf("%s %s %v %s", l.Level, l.Source, l.Tags, l.Text); got != want {
			t.Errorf("%s: %q, want %q", log, got, want)
		}
		if !l.Time.At.Equal(told.Add(250*time.Millisecond)) || l.Time.Date != DateTold || l.Time.Zone != ZoneUnknown {
			t.Errorf("%s: %+v", log, l.Time)
		}
	}
}

// What looks like a wrapper and may be anybody's words is none.
func TestNoWrappers(t *testing.T) {
	for _, text := range []string{"Zebra | x", "[Zebra/x] y", "Zebra: hello", `{"zebra": "x"}`, `{"message": {"role": "Zebra"}}`, "[Zebra] x", "Mar 11 10:00:00 x"} {
		if l := must(t, text, Options{})[0]; l.Text != text || len(l.Tags) > 0 || l.Source+l.Level != "" {
			t.Errorf("%s: %+v", text, l)
		}
	}
	if l := must(t, `{"message": "a\r\nb\n"}`, Options{})[0]; l.Text != "a  b" {
		t.Errorf("%+v", l)
	}
	if l := must(t, `{"message": "x", "name": "Zebra"}`, Options{})[0]; l.Text != "x" || l.Source != "" {
		t.Errorf("%+v", l)
	}
}

// Pieces of one stream are joined, whatever comes between them; what never ends is said to be cut.
func TestParts(t *testing.T) {
	all := must(t, `2026-03-11T09:12:34.1Z stderr P one 
2026-03-11T09:12:34.2Z stdout P uno 
2026-03-11T09:12:34.3Z stdout F due
plain
2026-03-11T09:12:34.4Z stderr P two 
2026-03-11T09:12:34.5Z stderr F 2026-03-11T00:00:00Z three
2026-03-11T09:12:34.6Z stderr P lost`, Options{})
	want := []string{"2-3 uno due false", "4-4 plain false", "1-6 one two 2026-03-11T00:00:00Z three false", "7-7 lost true"}
	for i, l := range all {
		if got := fmt.Sprintf("%d-%d %s %v", l.First, l.Last, l.Text, l.Cut); i >= len(want) || got != want[i] {
			t.Errorf("%d: %s", i, got)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d lines", len(all))
	}

	long := strings.Repeat("x", dockerPart)
	all = must(t, `{"log":"`+long+`","stream":"stderr","time":"2026-03-11T09:12:34Z"}`+"\n"+`{"log":"end\n","stream":"stderr","time":"2026-03-11T09:12:35Z"}`+"\n"+
		`{"log":"no line end","stream":"stderr","time":"2026-03-11T09:12:36Z"}`, Options{})
	if len(all) != 2 || all[0].Text != long+"end" || !all[0].Time.At.Equal(told) || all[1].Text != "no line end" {
		t.Errorf("%d lines", len(all))
	}
}

// Two processes wrote into one line: both are kept, and what is quoted is not taken for a third.
func TestTornLines(t *testing.T) {
	for log, want := range map[string][]string{
		"(A pid=1) " + stats + "(B pid=2) " + stats:                                       {"A Engine 000: hello", "B Engine 000: hello"},
		`INFO:     192.0.2.1:5 - "GET / HTTP/1.1" 200 OK(B pid=2) ` + stats:               {` 192.0.2.1:5 - "GET / HTTP/1.1" 200 OK`, "B Engine 000: hello"},
		"Loading: 50% (B pid=2) " + stats:                                                 {" Loading: 50%", "B Engine 000: hello"},
		"(A pid=1) " + stats + " it's late " + stats:                                      {"A Engine 000: hello it's late", " Engine 000: hello"},
		"(A pid=1) " + stats + " prompt: 'x " + stats + "'":                               {"A Engine 000: hello prompt: 'x " + stats + "'"},
		"(A pid=1) " + stats + ` prompt: "x's ` + stats + `"`:                             {`A Engine 000: hello prompt: "x's ` + stats + `"`},
		"(A pid=1) " + stats + ` prompt: 'it\'s "x" ` + stats + `'`:                       {`A Engine 000: hello prompt: 'it\'s "x" ` + stats + `'`},
		"[2026-03-11 09:12:34 TP0] one[2026-03-11 09:12:34 TP1] two":                      {" one", " two"},
		"[2026-03-11 09:12:34 TP0] see 2026-03-11 09:12:34 and 10:11:12 and [10:11:12 ok": {" see 2026-03-11 09:12:34 and 10:11:12 and [10:11:12 ok"},
	} {
		var got []string
		for _, l := range must(t, log, Options{}) {
			got = append(got, l.Tags.Get("process")+" "+l.Text)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q", log, got)
		}
	}
}

func TestYears(t *testing.T) {
	at := func(log string, o Options) (got []string) {
		for _, l := range must(t, log, o) {
			got = append(got, fmt.Sprintf("%s %d", l.Time.At.Format("2006-01-02"), l.Time.Date))
		}
		return got
	}
	const newYear = "INFO 12-31 23:59:52 [a.py:1] a\nINFO 01-01 00:00:07 [a.py:1] b\nINFO 12-31 23:59:59 [a.py:1] late\nINFO 01-02 00:00:07 [a.py:1] c\n"
	for _, c := range []struct {
		what, log string
		o         Options
		want      string
	}{
		{"nothing says the year", newYear, Options{}, "[0000-12-31 3 0001-01-01 3 0000-12-31 3 0001-01-02 3]"},
		{"the file's time", newYear, Options{Near: told}, "[2025-12-31 2 2026-01-01 2 2025-12-31 2 2026-01-02 2]"},
		{"a file of the same evening", newYear, Options{Near: time.Date(2025, 12, 31, 23, 59, 0, 0, time.UTC)}, "[2025-12-31 2 2026-01-01 2 2025-12-31 2 2026-01-02 2]"},
		{"a wrapper, and a file that was copied", newYear + "2024-01-02T00:00:08Z d\n", Options{Near: told}, "[2023-12-31 2 2024-01-01 2 2023-12-31 2 2024-01-02 2 2024-01-02 1]"},
		{"a wrapper before", "2024-01-02T00:00:08Z d\n" + newYear, Options{}, "[2024-01-02 1 2023-12-31 2 2024-01-01 2 2023-12-31 2 2024-01-02 2]"},
		{"29 February", "INFO 02-29 10:00:00 [a.py:1] a\n", Options{Near: told}, "[2024-02-29 2]"},
		{"29 February, of no year", "INFO 02-29 10:00:00 [a.py:1] a\nINFO 03-01 10:00:00 [a.py:1] a\n", Options{}, "[0000-02-29 3 0000-03-01 3]"},
		{"midnight", "[23:59:59] a\n[00:00:01] b\n[23:59:59] late\n[00:00:02] c", Options{}, "[0000-01-01 4 0000-01-02 4 0000-01-01 4 0000-01-02 4]"},
		{"no time", "a\n\n", Options{Near: told}, "[0001-01-01 0 0001-01-01 0]"},
	} {
		if got := fmt.Sprint(at(c.log, c.o)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestZone(t *testing.T) {
	cet := time.FixedZone("CET", 3600)
	all := must(t, stats+"\n2026-03-11T09:12:34Z "+stats, Options{Zone: cet})
	if l := all[0].Time; l.Zone != ZoneGiven || !l.At.Equal(told.Add(-time.Hour)) {
		t.Errorf("%+v", l)
	}
	if l := all[1].Time; l.Zone != ZoneTold || !l.At.Equal(told) {
		t.Errorf("%+v", l)
	}
}

func TestLongLine(t *testing.T) {
	for _, extra := range []int{0, 1, 5 << 20} {
		all := must(t, "a\n"+strings.Repeat("x", MaxLine+extra)+"\nb", Options{})
		if len(all) != 3 || len(all[1].Text) != MaxLine || all[1].Skipped != int64(extra) || all[2].Text != "b" || all[2].Last != 3 {
			t.Errorf("%d too many: %d lines, %d skipped", extra, len(all), all[1].Skipped)
		}
	}
	part := "2026-03-11T09:12:34Z stderr P " + strings.Repeat("x", MaxLine/2) + "\n"
	all := must(t, strings.Repeat(part, 5)+"2026-03-11T09:12:34Z stderr F end", Options{})
	if len(all) != 1 || len(all[0].Text) != MaxLine || all[0].Skipped != 3*MaxLine/2+3 {
		t.Errorf("%d lines, %d skipped", len(all), all[0].Skipped)
	}
}

func TestInvalidUTF8(t *testing.T) {
	part := "2026-03-11T09:12:34Z stderr P " + strings.Repeat("\xffa", MaxLine/2-50) + "\n"
	if all := must(t, part+part+"2026-03-11T09:12:34Z stderr F end", Options{}); len(all) != 1 || all[0].Skipped == 0 || !utf8.ValidString(all[0].Text) {
		t.Errorf("%d lines", len(all))
	}
	all := must(t, "INFO 03-11 09:12:34 [a.py:1] a\xff\xfe\x00\x1b]0;title\ab\x1b[31mc\x1b", Options{})
	if len(all) != 1 || all[0].Text != "a\uFFFDbc" {
		t.Errorf("%+q", all[0].Text)
	}
}

func packed(t testing.TB, text []byte) map[string][]byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{"gzip": b.Bytes(), "zstd": e.EncodeAll(text, nil)}
}

// What stood before the end of a truncated file is read, and the end has a name.
func TestCompressed(t *testing.T) {
	var text bytes.Buffer
	for i := range 50_000 {
		fmt.Fprintf(&text, "line %d %x\n", i, i*2654435761)
	}
	for name, b := range packed(t, text.Bytes()) {
		all, err := linesOf(string(b), Options{})
		if len(all) != 50_000 || err != nil {
			t.Errorf("%s: %d lines, %v", name, len(all), err)
		}
		all, err = linesOf(string(b[:len(b)/2]), Options{})
		if len(all) < 10_000 || len(all) >= 50_000 || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), name+": the file is truncated") {
			t.Errorf("%s: %d lines, %v", name, len(all), err)
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("after line %d: ", len(all))) {
			t.Errorf("%s: %v after %d lines", name, err, len(all))
		}
		if all, err = linesOf(string(b), Options{Limit: 1000}); len(all) == 0 || err == nil || !strings.Contains(err.Error(), "limit") {
			t.Errorf("%s: %d lines, %v", name, len(all), err)
		}
		for _, n := range []int{4, 5, 12} {
			if _, err = linesOf(string(b[:n]), Options{}); err == nil {
				t.Errorf("%s: %d bytes of it are a whole file", name, n)
			}
		}
	}
	if _, err := linesOf("\xff\xfea\x00", Options{}); err == nil || !strings.Contains(err.Error(), "UTF-16") {
		t.Error(err)
	}
}

type failing struct{ r io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == io.EOF {
		err = errors.New("disk on fire")
	}
	return n, err
}

func TestReadError(t *testing.T) {
	n := 0
	var last error
	for _, err := range Read(failing{strings.NewReader("a\nb\nc")}, Options{}) {
		if last = err; err == nil {
			n++
		}
	}
	if n != 3 || last == nil || last.Error() != "after line 3: disk on fire" {
		t.Errorf("%d lines, %v", n, last)
	}
}

func TestAccess(t *testing.T) {
	for text, want := range map[string]Access{
		`192.0.2.4:50110 - "POST /generate HTTP/1.1" 200 OK`:  {"POST", "/generate", 200},
		`[2001:db8::1]:1 - "GET /v1/x?q=secret HTTP/1.1" 499`: {"GET", "/v1/x", 499},
		`192.0.2.4:1 - "POST /a b HTTP/1.1" 200 OK`:           {},
		`192.0.2.4:1 - "say hello" 200 OK`:                    {},
		`192.0.2.4:1 - "GET / HTTP/1.1" maybe`:                {},
	} {
		if got, ok := ParseAccess(text); got != want || ok != (want != Access{}) {
			t.Errorf("%s: %+v", text, got)
		}
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]string{
		`Namespace(a=1, b='x, y', c=[1, 2], d=None)`:                            "[{a 1 false} {b x, y false} {c [1, 2] false} {d None false}]",
		`{'a': 1, 'b': {'api_key': 'x'}, "c": "it's"}`:                          "[{a 1 false} {b  true} {c it's false}]",
		`a=1, proxy='http://user:pass@host:1/x', hf_token=abc, num_tokens=5`:    "[{a 1 false} {proxy http://host:1/x false} {hf_token  true} {num_tokens 5 false}]",
		`a='\n', b='` + strings.Repeat("x", 300) + `', c=Foo(key='\'', auth=1)`: "[{a  true} {b  true} {c  true}]",
		`a=(1, b=2`: "[{a (1, b=2 false}]",
		``:          "[]",
		`)`:         "[]",
	} {
		if got := fmt.Sprint(Settings(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// A torn line's other half, and words, are not kept; what is known is read beyond them.
func TestFill(t *testing.T) {
	type record struct {
		A, B Opt[int]
		C    Opt[float64]
	}
	keys := Keys[record]{
		"a": Int(func(r *record) *Opt[int] { return &r.A }),
		"b": Int(func(r *record) *Opt[int] { return &r.B }),
		"c": Share(func(r *record) *Opt[float64] { return &r.C }),
	}
	for text, want := range map[string]string{
		"a: 1, b: 294,912 tokens, c: 50.0%.":     "{{1 true} {294912 true} {0.5 true}} {[] 0}",
		"a: 1, new: 3 reqs, mode: eager, b: 2":   "{{1 true} {2 true} {0 false}} {[{new 3 reqs} {mode eager}] 0}",
		"a: 1, new: some words, pin: 1234, b: 2": "{{1 true} {2 true} {0 false}} {[] 2}",
		"a: 1Received it, pin: 1234, b: 2, a: 3": "{{1 true} {2 true} {0 false}} {[] 3}",
		"a: 1.5, b: x, c: nan%":                  "{{0 false} {0 false} {0 false}} {[] 2}",
		"words, a: 1":                            "{{1 true} {0 false} {0 false}} {[] 1}",
		", , a: 1, ":                             "{{1 true} {0 false} {0 false}} {[] 0}",
		"":                                       "{{0 false} {0 false} {0 false}} {[] 0}",
	} {
		var r record
		rest := Fill(&r, keys, text, Colon)
		if got := fmt.Sprint(r, rest); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// However broken a log is: every line is given, in valid UTF-8, in bounds; an error is the last.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("../testdata/cases/*.log")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		for _, b := range packed(f, b) {
			f.Add(b)
		}
	}
	f.Add([]byte("Mar 11 09:12:33 host7 python3[812]: x\n[23:59:59] a\nengine-1  | b\n[pod/a] c\n2026-03-11 09:12:34,250 - a.b - INFO - d\n{\"message\":\"e\",\"ts\":1e9}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		seen, failed := map[int]bool{}, false
		for l, err := range Read(bytes.NewReader(b), Options{Near: told, Limit: 1 << 24}) {
			if failed {
				t.Fatal("a line after an error")
			}
			if failed = err != nil; failed {
				continue
			}
			if !utf8.ValidString(l.Text) || len(l.Text) > 3*MaxLine || l.First < 1 || l.Last < l.First || l.Skipped < 0 || strings.ContainsAny(l.Text, "\x00\x1b\n\r") {
				t.Errorf("%+v", l.Mark)
			}
			for n := l.First; n <= l.Last; n++ {
				seen[n] = true
			}
		}
		if !failed && !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) && !bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
			b = bytes.TrimPrefix(b, bom)
			lines := bytes.Count(b, []byte("\n"))
			if len(b) > 0 && b[len(b)-1] != '\n' {
				lines++
			}
			if len(seen) != lines {
				t.Errorf("%d of %d lines", len(seen), lines)
			}
		}
	})
}

// What engines print of themselves is somebody's text too.
func FuzzSettings(f *testing.F) {
	f.Add("Namespace(a=1, b='x, y', c=[1, 2], d=None)")
	f.Add(`{'a': 1, 'b': {'api_key': 'x'}, "c": "it's"}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range Settings(text) {
			if s.Name == "" || len(s.Value) > maxSetting || s.Withheld && s.Value != "" {
				t.Errorf("%+v", s)
			}
		}
		if a, ok := ParseAccess(text); ok && (len(a.Path) > maxPath || a.Method == "") {
			t.Errorf("%+v", a)
		}
		Colon(text)
		Equals(text)
	})
}

// endless is a log of so many bytes that is nowhere whole.
type endless struct {
	page []byte
	left int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p, e.page[len(e.page)-1-(e.left-1)%len(e.page):])
	e.left -= n
	return n, nil
}

// BenchmarkGigabyte reads a log of 1 GB; its memory must not grow with it.
func BenchmarkGigabyte(b *testing.B) {
	page, err := os.ReadFile("../testdata/cases/C57-vllm-log-zoo.engine.log")
	if err != nil {
		b.Fatal(err)
	}
	const size = 1 << 30
	b.SetBytes(size)
	lines, most := 0, uint64(0)
	for b.Loop() {
		for _, err := range Read(&endless{page, size / len(page) * len(page)}, Options{}) {
			if err != nil {
				b.Fatal(err)
			}
			if lines++; lines%200_000 == 0 {
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
	}
	b.ReportMetric(float64(lines)/b.Elapsed().Seconds(), "lines/s")
	b.ReportMetric(float64(most)/(1<<20), "MiB-heap")
}
