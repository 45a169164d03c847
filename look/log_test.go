package look

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// logCases are logs of cases whose whole outcome needs more than a log: what the log alone makes certain is said, and nothing that is wrong.
var logCases = []fieldCase{
	{name: "C01", says: []string{
		`KV cache is 95 % full or more in 12 lines, 4 \(09:12:34\)`, `waiting requests went from 0 to 21 and running ones from 48 to 27, 48 in all both times`, `V1 writes no line when it preempts`, `vllm:num_preemptions_total`,
	}, never: []string{`no preemption`, `hit rate`, `BROKEN`}},
	{name: "C03", says: []string{`BROKEN .*33 requests run, and not one token came`, `33 running, 41 waiting`}, never: []string{`saturated`, `604`, `KV cache is`}},
	{name: "C04", says: []string{`decodes alone takes 31\.2 ms`, `3\.41 s on average, 109 times as long: 9 such steps`, `30\.7 s and 73,728 prompt tokens`, `describes neither`}, never: []string{`1\.4 s`, `waiting`}},
	{name: "C07", says: []string{
		`decode node .*queue \(0\) does not mean that nobody waits: prealloc \(for room\) 3 → 61`, `It has no room: token usage 0\.98`, `More prefill nodes do not help`,
		`prefill node .*\(bootstrap\) 2 → 55, .*\(inflight\) 1 → 24`, `11,811 tok/s → 6\d\d tok/s computed`,
	}, never: []string{`RDMA`}},
	{name: "C08", says: []string{`accept length 3\.08 → 1\.36`, `acceptance rate 52\.0 % → 9\.0 % = 1,865 / 20,712`}, never: []string{`BROKEN`, `136 %`}},
	{name: "C12", says: []string{`6 kernels were compiled or tuned .* by 2 processes .*08:00:21\) to \d+ \(08:00:41\)`, `left out of percentiles`}, never: []string{`12 kernels`, `regression`}},
	{name: "C15", says: []string{`up to 5 of 5 waiting requests are deferred, in 6 lines`, `0 wait for room \(KV 64\.\d %\)`}, never: []string{`BROKEN`, `more memory`}},
	{name: "C56", says: []string{`in 4 lines, .*: 50 times in all, the same request perhaps more than once`, `They did not fail`, `0\.4012 → 0\.9700`, `2,090 → 640 tok/s out, queue 0 → 44`, `max_running_requests`}, never: []string{`spike`, `50 requests`}},
	{name: "C71", says: []string{`room for 294,912 tokens`, `9\.00 requests of 32,768 tokens fit, a bound of memory and no number of users`}, never: []string{`9 users`}},
}

func TestLogs(t *testing.T) {
	for _, c := range logCases {
		t.Run(c.name, func(t *testing.T) {
			var inputs []Input
			for _, in := range inputsOf(t, c.name) {
				if strings.HasSuffix(in.Name, ".log") {
					inputs = append(inputs, in)
				}
			}
			text := strings.Join(strings.Fields(textOf(t, inputs, Options{})), " ")
			for _, want := range c.says {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("it does not say %q", want)
				}
			}
			for _, bad := range c.never {
				if m := regexp.MustCompile(bad).FindString(text); m != "" {
					t.Errorf("it says %q", m)
				}
			}
			if t.Failed() {
				t.Log(text)
			}
		})
	}
}

func textOf(t testing.TB, inputs []Input, o Options) string {
	t.Helper()
	scene, err := Read(context.Background(), inputs, o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Judge(scene).Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func logInput(name, text string) Input {
	return Input{Name: name, Target: name, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// The rows of C57: what each line told, in the shape that scripts rely on.
func TestLogRows(t *testing.T) {
	scene, err := Read(context.Background(), inputsOf(t, "C57"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(Judge(scene).Logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"lines":15,"entries":14,"kinds":{"hitrate":{"count":1,"first":2,"last":2}`,
		`{"line":1,"time":"2025-12-31T23:59:52","year_inferred":true,"level":"INFO","source":"metrics.py:345","kind":"stats","fields":{"device":"GPU","generation_rate":402.1,"kv_usage":0.973,"prompt_rate":812.4,"running":14,"swap_usage":0.12,"swapped":2,"waiting":6}}`,
		`"kind":"hitrate","fields":{"cpu":0,"gpu":0.412}`,
		`"deferred":5,"device":"GPU","engine":0,"external_hits":0.183,`,
		`{"line":13,"last_line":14,"time":"2026-03-11T09:12:34.000000001Z"`,
		`"transfers":40`, `"mean_mib":466`, `"rows_left_out":0`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
}

const statLine = "(APIServer pid=41) INFO 03-11 %s [loggers.py:271] Engine %03d: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: %d.0 tokens/s, Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: %d.0%%, Prefix cache hit rate: 4.1%%\n"

// Engines of one server add up, a sum is not added to them, and one that writes no more is not counted.
func TestLogLoad(t *testing.T) {
	line := func(clock string, engine, waiting int) string {
		return fmt.Sprintf(statLine, clock, engine, 10, 3, waiting, 20+engine)
	}
	sum := strings.ReplaceAll(line("10:00:00", 0, 7), "Engine 000", "2 Engines Aggregated")
	for _, c := range []struct{ log, says string }{
		{line("10:00:00", 0, 1) + line("10:00:00", 1, 2), `6 running, 3 waiting over 2 engines`},
		{line("10:00:00", 0, 1) + line("10:00:10", 0, 2), ` 3 running, 2 waiting\n`},
		{line("10:00:00", 0, 1) + line("10:02:00", 1, 2), ` 3 running, 2 waiting\n`},
		{line("09:59:50", 0, 1) + sum, `3 running, 7 waiting over 2 engines\n`},
		{sum + line("10:00:10", 1, 2), ` 3 running, 2 waiting\n`},
		{line("10:00:00", 0, 1) + line("10:00:00", 1, 2), `KV cache 21\.0 %, the fullest of 2 engines`},
		{sum, `20\.0 % on average of 2 engines`},
	} {
		if text := textOf(t, []Input{logInput("engine", c.log)}, Options{}); !regexp.MustCompile(c.says).MatchString(text) {
			t.Errorf("it does not say %q:\n%s", c.says, text)
		}
	}
}

// How old a log's word is, is said where its zone and year are known; one in the future is asked about.
func TestLogAge(t *testing.T) {
	in := logInput("engine", fmt.Sprintf(statLine, "10:00:00", 0, 1, 1, 0, 5))
	in.Modified = time.Date(2026, 3, 11, 10, 0, 1, 0, time.UTC)
	berlin := time.FixedZone("+01", 3600)
	for _, c := range []struct {
		o    Options
		says string
	}{
		{Options{}, `line 1 \(2026-03-11 10:00:00\): 1 running`},
		{Options{Now: in.Modified}, `line 1 \(2026-03-11 10:00:00\): 1 running`},
		{Options{Now: in.Modified, Zone: time.UTC}, `line 1 \(2026-03-11 10:00:00 UTC\), 1 s old: 1 running`},
		{Options{Now: in.Modified, Zone: berlin}, `line 1 \(2026-03-11 09:00:00 UTC\), 60 min old: 1 running`},
		{Options{Now: in.Modified.Add(-time.Hour), Zone: time.UTC}, `is the zone right\?`},
	} {
		if text := textOf(t, []Input{in}, c.o); !regexp.MustCompile(c.says).MatchString(text) {
			t.Errorf("it does not say %q:\n%s", c.says, text)
		}
	}
}

// What an engine says of itself when it starts.
func TestLogStart(t *testing.T) {
	text := textOf(t, []Input{logInput("engine", `(APIServer pid=41) INFO 03-11 09:12:04 [api_server.py:1] vLLM API server version 0.32.0
(APIServer pid=41) INFO 03-11 09:12:04 [utils.py:1] non-default args: {'model': 'acme/atlas', 'max_num_seqs': 64, 'block_size': 16, 'api_key': 'sk-geheim'}
(EngineCore_DP0 pid=77) INFO 03-11 09:12:44 [kv_cache_utils.py:1087] GPU KV cache size: 294,912 tokens
`)}, Options{})
	for _, want := range []string{`found     vLLM 0\.32\.0: acme/atlas, 1 log`, `max_num_seqs 64; block_size 16; room for 294,912\s+tokens`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "geheim") {
		t.Errorf("it tells a secret:\n%s", text)
	}
}

// A long log is one screen, and packed ones are read too. Metrics with words of a log in their HELP are no log.
func TestLogOfManyLines(t *testing.T) {
	n := 20_000
	if !testing.Short() {
		n = 100_000
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range n {
		fmt.Fprintf(z, "(APIServer pid=41) INFO %s [loggers.py:271] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 9 reqs, Waiting: %d reqs, Deferred: 1 reqs, GPU KV cache usage: 99.0%%\n", at.Add(time.Duration(i)*time.Second).Format("01-02 15:04:05"), 1+i%7)
		fmt.Fprintf(z, "(APIServer pid=41) what nobody knows %d\n", i)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	scene, err := Read(context.Background(), []Input{logInput("engine.log.gz", b.String())}, Options{Most: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	r := Judge(scene)
	var text bytes.Buffer
	if err := r.Text(&text, 110); err != nil {
		t.Fatal(err)
	}
	if rows := bytes.Count(text.Bytes(), []byte("\n")); rows > 24 {
		t.Errorf("%d rows:\n%s", rows, text.String())
	}
	l := r.Logs[0]
	if l.Lines != 2*n || l.Kinds["stats"] != (Kind{n, 1, 2*n - 1}) || len(l.Rows) != 2*mostRows || l.LeftOut != 2*n-2*mostRows || l.Rows[2*mostRows-1].Line != 2*n-1 {
		t.Errorf("%d lines, %v, %d rows and %d left out, the last of line %d", l.Lines, l.Kinds, len(l.Rows), l.LeftOut, l.Rows[len(l.Rows)-1].Line)
	}

	page := "# HELP vllm:x Decode batch and Avg prompt throughput: 1\n# TYPE vllm:x gauge\nvllm:x 1\n"
	scene, err = Read(context.Background(), []Input{logInput("page", page)}, Options{})
	if err != nil || len(scene.Logs) != 0 || scene.Sources[0].Kind != "metrics" {
		t.Errorf("%v, %+v", err, scene.Sources)
	}
}

func TestThinned(t *testing.T) {
	var s thinned
	for i := range 5 * mostValues {
		s.add(float64(i))
	}
	m, _ := s.median()
	if want := 2.5 * mostValues; len(s.kept) >= mostValues || m < 0.99*want || m > 1.01*want || s.n != 5*mostValues {
		t.Errorf("%d kept of %d, median %v, want about %v", len(s.kept), s.n, m, want)
	}
}

func TestSnake(t *testing.T) {
	for name, want := range map[string]string{"KVUsage": "kv_usage", "P90Ms": "p90_ms", "TFLOPS": "tflops", "GBs": "gbs", "ReadGBs": "read_gbs", "KVGiB": "kv_gib", "MiBPerSecond": "mib_per_second", "ID": "id", "MMHits": "mm_hits", "PostP90Ms": "post_p90_ms"} {
		if got := snake(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func BenchmarkReadLog(b *testing.B) {
	text := strings.Repeat(fmt.Sprintf(statLine, "10:00:00", 0, 1, 1, 0, 5), 10_000)
	for b.Loop() {
		textOf(b, []Input{logInput("engine", text)}, Options{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10_000, "ns/line")
}
