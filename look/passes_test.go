package look

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// Made-up records of forward-pass metrics, in the form of Dynamo's traces and of SGLang's payloads.
func passLine(component, mode string, ms, rank, counter int, wall float64, prefills, decodes, waiting int) string {
	p := fmt.Sprintf(`{"version":1,"worker_id":"4192","dp_rank":%d,"counter_id":%d,"wall_time":%g,"scheduled_requests":{"num_prefill_requests":%d,"sum_prefill_tokens":%d,"sum_prefill_kv_tokens":%d,"num_decode_requests":%d,"sum_decode_kv_tokens":%d},"queued_requests":{"num_prefill_requests":%d,"sum_prefill_tokens":%d,"num_decode_requests":0,"sum_decode_kv_tokens":0}}`,
		rank, counter, wall, prefills, 128*prefills, 64*prefills, decodes, 1024*decodes, waiting, 512*waiting)
	if mode == "" {
		return p
	}
	return fmt.Sprintf(`{"timestamp":%d,"event":{"schema":"dynamo.fpm.trace.v1","source":{"namespace":"default","component":%q,"producer_id":"4192"},"capture_mode":%q,"observed_at_unix_ms":%d,"fpm":%s}}`, ms, component, mode, 1782777600000+ms, p)
}

func TestPasses(t *testing.T) {
	stuck := []string{passLine("vllm", "full", 0, 0, 0, 0.02, 0, 8, 3)}
	for i := 1; i <= 12; i++ {
		stuck = append(stuck, passLine("vllm", "full", 1000*i, 0, i, 0, 0, 0, 0))
	}
	for _, c := range []struct {
		name, file string
		lines      []string
		says       []string
		never      []string
	}{
		{"two ranks of vLLM", "dynamo-fpm.4192.000000.jsonl", []string{
			passLine("vllm", "full", 0, 0, 1, 0.02, 1, 3, 0), passLine("vllm", "full", 10, 1, 1, 0.03, 0, 3, 0), passLine("vllm", "full", 20, 0, 2, 0.04, 2, 3, 1), passLine("vllm", "full", 40, 1, 5, 0.03, 0, 30, 0)},
			[]string{`default/vllm/4192: 4 iterations seen in 40\.0 ms; in the last one rank 0: 2 prefills \(256 tokens, 128 in KV\), 3 decodes \(3,072 in KV\), 1 prefill queued \(512 tokens\), rank 1: 30 decodes \(30,720 in KV\), nobody queued\.`,
				`wall_time is 30\.0 ms on average, at most 40\.0 ms \(n 4\)\. Under vLLM it is the time between two results .* no GPU time`,
				`rank 1: 3 of 5 records are lost \(gaps of counter_id\)`, `those at which they were observed`, `1 waiting, 5 running \(Dynamo on default/vllm/4192 rank 0\)`},
			[]string{`sampled`, `BROKEN`, `heartbeat`}},
		{"sampled", "a.jsonl", []string{passLine("backend", "sampled", 0, 0, 1, 0.02, 1, 3, 0), passLine("backend", "sampled", 5000, 0, 210, 0.02, 0, 3, 0)},
			[]string{`The capture of default/backend/4192 is sampled`, `their rate, and whether anything was between two records is not known`, `Which engine wrote it is not told`}, []string{`lost`, `BROKEN`}},
		{"requests wait, and only heartbeats come", "a.jsonl", stuck,
			[]string{`BROKEN .*default/vllm/4192 rank 0: 3 requests waited, and no iteration ended in 12 records, 12\.0 s, without a gap in counter_id`, `12 heartbeats are no iterations, and their zeros are no empty queue`}, []string{`nobody queued`, `0 running`}},
		{"idle", "a.jsonl", append([]string{passLine("vllm", "full", 0, 0, 0, 0.02, 0, 8, 0)}, stuck[1:]...), []string{`1 iteration seen in 12\.0 s`}, []string{`BROKEN`, `not one token`}},
		{"SGLang's payloads", "a.jsonl", []string{passLine("", "", 0, 0, 1, 0.02, 1, 3, 0), "torn {", passLine("", "", 0, 0, 2, 0.02, 0, 0, 4)},
			[]string{`The records of a/4192 carry no time`, `line 2: no JSON object of forward-pass metrics`, `4 prefills queued`}, []string{`observed`}},
	} {
		text := strings.Join(c.lines, "\n") + "\n"
		for _, packed := range []bool{false, true} {
			inputs := texts(c.file, text)
			if packed {
				inputs = texts(c.file+".gz", gzipped(t, text))
				if inputs[0].Target = strings.TrimSuffix(inputs[0].Target, ".jsonl"); inputs[0].Target == "" {
					t.Fatal("no target")
				}
			}
			got := answered(t, inputs, 0)
			for _, want := range c.says {
				if !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("%s (packed %v): %s is not said in\n%s", c.name, packed, want, got)
				}
			}
			for _, no := range c.never {
				if regexp.MustCompile(no).MatchString(got) {
					t.Errorf("%s (packed %v): %s is said in\n%s", c.name, packed, no, got)
				}
			}
		}
	}
}

func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPassesOfAFileThatIsWrittenStill keeps what came before the end of a gzip file whose worker has died, or writes on.
func TestPassesOfAFileThatIsWrittenStill(t *testing.T) {
	var lines strings.Builder
	for i := range 4000 {
		lines.WriteString(passLine("backend", "full", 20*i, 0, i, 0.02+float64(i%97)/1e5, i%3, i%30, i%7) + "\n")
	}
	packed := gzipped(t, lines.String())
	got := answered(t, texts("a.jsonl.gz", packed[:len(packed)/2]), 0)
	if !regexp.MustCompile(`[12],\d{3} iterations seen`).MatchString(got) || !strings.Contains(got, "the file is truncated") {
		t.Error(got)
	}
}
