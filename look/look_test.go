package look

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "accept what is printed now")

// A case is a field situation with its right outcome (testdata/cases/*.expected.md).
type fieldCase struct {
	name     string
	interval time.Duration
	says     []string // each must be found, as a regular expression over words (line breaks are blanks)
	never    []string // none may be found
}

var cases = []fieldCase{
	{name: "C20", says: []string{
		`412 of 412 observations are at most 1\.00 ms, 7\.52 µs on average, while prompts average 1,800 tokens and requests take 2\.31 s`,
		`TTFT is unknown`, `End-to-end latency can be used: 2\.31 s`, `sum of 300 durations is -212\.5 s`, `at least one of them is negative`, `61 stand in the first bucket`, `step of the host's clock`,
	}, never: []string{`TTFT p99`, `-0\.708`, `500 µs`, `0\.5 ms`}},
	{name: "C22", says: []string{
		`5,000 of 5,000 are below 300 ms, the floor of its buckets; mean 2\.10 ms`, `180 of 1,000 are above 60\.0 s`, `p99 is over 60\.0 s`, `p50 30\.0 s to 40\.0 s, p80 50\.0 s to 60\.0 s`,
		`between 115 s and 152 s on average`, `Do not compare this quantile`,
	}, never: []string{`297 ms`, `150 ms`, `p99 60`}},
	{name: "C23", says: []string{
		`4 data-parallel ranks`, `ranks 0 \(KV 97 %\), 3 \(KV 95 %\) of 4 hold 60 of 62 running and 83 of 83 waiting`, `ranks 1 \(KV 1 %\), 2 \(KV 6 %\) are nearly empty`,
		`rank 0 9\.40 s, rank 1 110 ms, rank 2 120 ms, rank 3 8\.80 s; over all 2,140 requests 8\.52 s`, `not their capacity`,
	}, never: []string{`199`, `4\.61`, `49\.7`, `4 replicas`}},
	{name: "C26", interval: time.Minute, says: []string{
		`5,000 tok/s a second|prompts of 5,000 tok/s`, `400 tok/s were taken up \(75\.0 % of them cached\)`, `100 tok/s were really computed`, `All three are right`,
		`line 2 \(Prompt throughput\) calls the prompts of requests that ended`, `line 4 \(Prefill tokens/s\) calls`,
	}, never: []string{`line 6`, `corrupt`}},
	{name: "C31", says: []string{
		`Mixed versions of vLLM`, `vllm:gpu_cache_usage_perc is vllm:kv_cache_usage_perc`, `pod-old: KV 62\.0 %, hit rate 45\.0 %, gap between outputs 24\.1 ms`, `pod-new: KV 58\.0 %, hit rate 46\.0 %, gap between outputs 23\.8 ms`,
		`4 of 6 queries find nothing on a part of the fleet`, `Replace it by: avg\(vllm:kv_cache_usage_perc\)`, `vllm:prefix_cache_hits_total`, `vllm:inter_token_latency_seconds_bucket`,
	}, never: []string{`KV 0`, `KV cache 0`}},
	{name: "C37", says: []string{
		`the time of a step \(42\.0 ms on average, 138,194 observations\)`, `2\.88 tokens on average \(1 \+ 259,806 accepted / 138,194 drafts\)`, `A token took 14\.6 ms on average`, `the two agree`,
	}, never: []string{`regress`, `42\.0 ms between outputs`}},
}

func inputsOf(t testing.TB, name string) []Input {
	t.Helper()
	files, err := filepath.Glob("../testdata/cases/" + name + "-*")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files: %v", name, err)
	}
	inputs, err := Files(slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, ".expected.md") })...)
	if err != nil {
		t.Fatal(err)
	}
	return inputs
}

func TestCases(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			scene, err := Read(context.Background(), inputsOf(t, c.name), Options{Interval: c.interval})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := Judge(scene).Text(&b, 110); err != nil {
				t.Fatal(err)
			}
			text := strings.Join(strings.Fields(b.String()), " ")
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
			golden := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, b.Bytes()) {
				t.Errorf("not as accepted in %s ('go test ./look -update' accepts):\n%s", golden, b.String())
			}
		})
	}
}
