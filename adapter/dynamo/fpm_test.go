package dynamo

import (
	"bufio"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// The lines here are made up; their form is that of Dynamo's trace reference and of SGLang's payload.

func payloadOf(rank, counter int, wall float64, prefills, decodes, queued int) string {
	return fmt.Sprintf(`{"version":1,"worker_id":"4192","dp_rank":%d,"counter_id":%d,"wall_time":%g,"scheduled_requests":{"num_prefill_requests":%d,"sum_prefill_tokens":%d,"var_prefill_length":100.0,"sum_prefill_kv_tokens":%d,"num_decode_requests":%d,"sum_decode_kv_tokens":%d,"var_decode_kv_tokens":50.0},"queued_requests":{"num_prefill_requests":%d,"sum_prefill_tokens":%d,"var_prefill_length":0.0,"num_decode_requests":0,"sum_decode_kv_tokens":0,"var_decode_kv_tokens":0.0}}`,
		rank, counter, wall, prefills, 128*prefills, 64*prefills, decodes, 1024*decodes, queued, 128*queued)
}

func traced(component, mode string, ms int, payload string) string {
	return fmt.Sprintf(`{"timestamp":%d,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"default","component":%q,"producer_id":"4192"},"capture_mode":%q,"observed_at_unix_ms":%d,"fpm":%s}}`, ms, component, mode, 1782777600000+ms, payload)
}

const beat = `{"version":1,"worker_id":"4192","dp_rank":0,"counter_id":%d,"wall_time":0.0,"scheduled_requests":{"num_prefill_requests":0,"sum_prefill_tokens":0,"sum_prefill_kv_tokens":0,"num_decode_requests":0,"sum_decode_kv_tokens":0},"queued_requests":{"num_prefill_requests":0,"sum_prefill_tokens":0,"num_decode_requests":0,"sum_decode_kv_tokens":0}}`

func readLines(t *testing.T, lines ...string) (*Passes, []string) {
	t.Helper()
	var ps Passes
	problems := ps.Read("file", bufio.NewReader(strings.NewReader(strings.Join(lines, "\n"))))
	return &ps, problems
}

func only(t *testing.T, lines ...string) *Stream {
	t.Helper()
	ps, problems := readLines(t, lines...)
	if len(problems) > 0 || len(ps.Streams) != 1 {
		t.Fatalf("%d streams, problems %q", len(ps.Streams), problems)
	}
	return ps.Streams[0]
}

func TestPassesOfATrace(t *testing.T) {
	s := only(t, traced("vllm-decode", "full", 0, payloadOf(0, 7, 0, 2, 3, 1)), traced("vllm-decode", "full", 1250, payloadOf(0, 8, 0.025, 0, 5, 4)), traced("vllm-decode", "full", 2300, fmt.Sprintf(beat, 9)))
	if s.Target != "default/vllm-decode/4192" || s.Engine != "vllm" || s.Rank != "0" || s.Sampled {
		t.Errorf("it is %+v", s)
	}
	if s.Records != 3 || s.Iterations != 2 || s.Heartbeats != 1 || s.Lost != 0 || s.Timed != 1 || s.Wall != 0.025 || s.MostQueued.Value != 4 {
		t.Errorf("counted %+v", s)
	}
	if time.Duration(s.Last-s.First) != 2300*time.Millisecond || s.Newest.Counter != 8 || s.Newest.Scheduled.DecodeKV.Value != 5120 || !s.Newest.Scheduled.Prefills.Known {
		t.Errorf("newest %+v", s.Newest)
	}
	for i, want := range []int{2, 2, 1} { // scheduled, queued, time: a heartbeat is no state, and 0 s no time
		if got := s.tracks[i].Points; len(got) != want {
			t.Errorf("%s has points %v", s.tracks[i].Family, got)
		}
	}
}

func TestPassesThatAreMissing(t *testing.T) {
	line := func(counter int) string {
		return traced("backend", "full", counter, payloadOf(0, counter, 0.02, 0, 1, 0))
	}
	s := only(t, line(1), line(2), line(5), line(5), line(3), line(4))
	if s.Lost != 2 || s.Repeated != 1 || s.Back != 1 || s.Records != 5 || s.Engine != "" {
		t.Errorf("counted %+v", s)
	}
	sampled := only(t, traced("backend", "sampled", 0, payloadOf(0, 1, 0.02, 0, 1, 0)), traced("backend", "sampled", 5000, payloadOf(0, 200, 0.02, 0, 1, 0)))
	if sampled.Lost != 0 || !sampled.Sampled {
		t.Errorf("what is sampled is not lost: %+v", sampled)
	}
}

func TestPassesGoOnInTheNextFile(t *testing.T) {
	var ps Passes
	for i, name := range []string{"dynamo-fpm.4192.000000", "dynamo-fpm.4192.000001"} {
		ps.Read(name, bufio.NewReader(strings.NewReader(traced("backend", "full", i, payloadOf(0, i, 0.02, 0, 1, 0)))))
	}
	if len(ps.Streams) != 1 || ps.Streams[0].Records != 2 || ps.Streams[0].Lost != 0 {
		t.Errorf("%d streams, the first %+v", len(ps.Streams), ps.Streams[0])
	}
}

func TestAbsentIsNotZero(t *testing.T) {
	s := only(t, `{"dp_rank":0,"counter_id":1,"scheduled_requests":{"num_decode_requests":3}}`, `{"dp_rank":0,"counter_id":2,"scheduled_requests":{}}`,
		`{"dp_rank":0,"counter_id":3,"wall_time":-1,"scheduled_requests":{"num_prefill_requests":-4,"num_decode_requests":1e300},"queued_requests":{"num_prefill_requests":2}}`)
	if s.Target != "file" || s.First != 0 || s.Records != 3 || s.Iterations != 1 || s.Heartbeats != 0 || s.MostQueued.Known || s.Timed != 0 {
		t.Errorf("counted %+v", s)
	}
	for i := range s.tracks {
		if len(s.tracks[i].Points) > 0 {
			t.Errorf("%s has points %v", s.tracks[i].Family, s.tracks[i].Points)
		}
	}
}

func TestStalls(t *testing.T) {
	beats := func(from, n int) (lines []string) {
		for i := range n {
			lines = append(lines, traced("backend", "full", 1000*(from+i), fmt.Sprintf(beat, from+i)))
		}
		return lines
	}
	waiting := traced("backend", "full", 0, payloadOf(0, 0, 0.02, 0, 8, 3))
	for _, c := range []struct {
		name  string
		lines []string
		want  Stall
	}{
		{"heartbeats behind an iteration with a queue", append([]string{waiting}, beats(1, 12)...), Stall{Queued: 3, Records: 12, From: 1782777600000e6, To: 1782777612000e6}},
		{"it goes on", append(append([]string{waiting}, beats(1, 12)...), traced("backend", "full", 13000, payloadOf(0, 13, 12.5, 0, 8, 0))), Stall{Queued: 3, Records: 12, From: 1782777600000e6, To: 1782777612000e6, Ended: true}},
		{"nobody waits: idle", append([]string{traced("backend", "full", 0, payloadOf(0, 0, 0.02, 0, 8, 0))}, beats(1, 12)...), Stall{}},
		{"records are lost: not certain", append([]string{waiting}, beats(3, 12)...), Stall{}},
		{"queued, and nothing scheduled", []string{payloadOf(0, 0, 0, 0, 0, 5), payloadOf(0, 1, 0, 0, 0, 6)}, Stall{Queued: 5, Records: 2}},
		{"what is scheduled is not told", []string{`{"dp_rank":0,"counter_id":1,"scheduled_requests":{},"queued_requests":{"num_prefill_requests":2,"num_decode_requests":0}}`}, Stall{}},
	} {
		if got := only(t, c.lines...).Stalled(); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestBadLinesCostALine(t *testing.T) {
	good := traced("backend", "full", 0, payloadOf(0, 1, 0.02, 0, 1, 0))
	ps, problems := readLines(t, good[200:], good, `{"event":{"schema":"dynamo.fpm.trace.v2","fpm":{}}}`, `[1]`, `null`, `{"event":{"schema":"dynamo.fpm.trace.v1"}}`, "", "\x00\xff", strings.Repeat("[", 1<<18),
		`{"dp_rank":0,"counter_id":18446744073709551616,"scheduled_requests":{}}`, `{"dp_rank":-1,"counter_id":1,"scheduled_requests":{}}`, `{"version":9,"dp_rank":0,"counter_id":1,"scheduled_requests":{}}`,
		`{"dp_rank":0,"counter_id":1,"scheduled_requests":{"num_decode_requests":1e999}}`, traced("backend", "full", 0, payloadOf(0, math.MaxInt64, 0.02, 0, 1, 0)))
	if len(ps.Streams) != 1 || ps.Streams[0].Records != 2 || ps.Streams[0].Lost != float64(math.MaxInt64-2) {
		t.Errorf("%+v", ps.Streams[0])
	}
	said := strings.Join(problems, "\n")
	for _, want := range []string{"line 1: no JSON object", "6 such lines", "line 3: a schema or version", "2 such lines", "line 11: a negative", "line 5: a record without"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said in\n%s", want, said)
		}
	}
}

func TestManyWorkersAreBounded(t *testing.T) {
	var lines []string
	for i := range mostStreams + 5 {
		lines = append(lines, payloadOf(i, 1, 0.02, 0, 1, 0))
	}
	ps, problems := readLines(t, lines...)
	if len(ps.Streams) != mostStreams || len(problems) != 1 || !strings.Contains(problems[0], "5 such lines") {
		t.Errorf("%d streams, %q", len(ps.Streams), problems)
	}
}

func TestArePasses(t *testing.T) {
	good := traced("backend", "full", 0, payloadOf(0, 1, 0.02, 0, 1, 0))
	for text, want := range map[string]bool{good: true, payloadOf(0, 1, 0.02, 0, 1, 0) + "\n{": true, good[300:] + "\n" + good + "\n": true, `{"iter":1,"scheduled_requests":3}`: false, "": false, good[:len(good)-1]: false, strings.ReplaceAll(good, "trace.v1", "trace.v9"): true} {
		if got := ArePasses([]byte(text)); got != want {
			t.Errorf("%.80s…: %v", text, got)
		}
	}
}

func FuzzPasses(f *testing.F) {
	f.Add([]byte(traced("backend", "full", 0, payloadOf(0, 1, 0.02, 2, 3, 1)) + "\n" + payloadOf(0, 2, 0, 0, 0, 2)))
	f.Add([]byte(fmt.Sprintf(beat, 3) + "\n" + `{"dp_rank":0,"counter_id":1,"scheduled_requests":{"num_decode_requests":-1e308}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		ArePasses(b)
		var ps Passes
		ps.Read("file", bufio.NewReader(strings.NewReader(string(b))))
		for _, s := range ps.InOrder() {
			if s.Records != s.Iterations+s.Heartbeats && s.Newest == nil || s.Lost < 0 || s.First > s.Last || s.Stalled().To < 0 || math.IsNaN(s.Wall) {
				t.Fatalf("%+v", s)
			}
			for _, tr := range ps.Tracks() {
				for _, p := range tr.Points {
					if !(p.Value >= 0 && p.Value <= 2*maxCount) {
						t.Fatalf("%s is %v", tr.Family, p.Value)
					}
				}
			}
		}
	})
}

// A million records of two ranks: what is kept of them does not grow with them.
func BenchmarkPasses(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		text.WriteString(traced("backend", "full", 20*i, payloadOf(i%2, i/2, 0.02, 1, 30, 2)) + "\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		var ps Passes
		if problems := ps.Read("file", bufio.NewReader(strings.NewReader(text.String()))); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
