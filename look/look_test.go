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
	{name: "C25", interval: 900 * time.Second, says: []string{
		`51 of 60 samples are 0`, `neither its mean nor its maximum is a hit rate`, `must not be added up over pods`, `7,100,000 of 10,000,000 prompt tokens came from the cache, 71\.0 %`,
	}, never: []string{`10\.5 %`, `94\.0 %`, `collapsed`}},
	{name: "C26", interval: time.Minute, says: []string{
		`5,000 tok/s a second|prompts of 5,000 tok/s`, `400 tok/s were taken up \(75\.0 % of them cached\)`, `100 tok/s were really computed`, `All three are right`,
		`line 2 \(Prompt throughput\) calls the prompts of requests that ended`, `line 4 \(Prefill tokens/s\) calls`,
	}, never: []string{`line 6`, `corrupt`}},
	{name: "C28", says: []string{`line 18: -nan: not a number`, `unknown, not 0`, `llama\.cpp`}, never: []string{`NaN`, `busy slots`}},
	{name: "C30", interval: 30 * time.Second, says: []string{
		`gets 31\.9 tok/s \(380 tokens in 11\.9 s of generating`, `between 30\.8 and 33\.1`, `predicted_tokens_seconds = 0 while 2 requests run`, `fewer than about 100 new prompt tokens`,
		`does not export llamacpp:kv_cache_usage_ratio in this version: its KV usage is not seen, neither 0 nor empty`, `41\.0 %`, `n_tokens_max .* running maximum`,
	}, never: []string{`idle`, ` 0 tok/s`, `no prompt traffic`}},
	{name: "C31", says: []string{
		`Mixed versions of vLLM`, `vllm:gpu_cache_usage_perc is vllm:kv_cache_usage_perc`, `pod-old: KV 62\.0 %, hit rate 45\.0 %, gap between outputs 24\.1 ms`, `pod-new: KV 58\.0 %, hit rate 46\.0 %, gap between outputs 23\.8 ms`,
		`4 of 6 queries find nothing on a part of the fleet`, `Replace it by: avg\(vllm:kv_cache_usage_perc\)`, `vllm:prefix_cache_hits_total`, `vllm:inter_token_latency_seconds_bucket`,
	}, never: []string{`KV 0`, `KV cache 0`}},
	{name: "C32", says: []string{
		`has 320 series`, `label route`, `319 values, 316 of them seen once`, `All 1,900 are counted: 1,584 in 4 series of known values, 316 under values seen once`, `exception_status \(3 values\)`, `Drop or normalise the label route`,
	}, never: []string{"\n\n\n", `A{200}`}},
	{name: "C33", says: []string{`12 models`, `in all 78 running`, `294,912 tokens`, `8 more`}, never: []string{`[\x00-\x08\x0b-\x1f]`}},
	{name: "C34", says: []string{
		`no new iterations since the last read`, `neither an error nor a load of zero`, `6 requests active, 2 queued, KV 1,792 of 8,192 blocks of 32 tokens \(21\.9 %\)`,
		`41\.9 ms, 42\.3 ms, 41\.7 ms`, `no step time: the host takes 4\.00 ms a step, the device 20\.5 ms`, `times have no zone`, `model that the server does not know`,
	}, never: []string{`undefined`, `KV cache 0`, `malformed`}},
	{name: "C37", says: []string{
		`the time of a step \(42\.0 ms on average, 138,194 observations\)`, `2\.88 tokens on average \(1 \+ 259,806 accepted / 138,194 drafts\)`, `A token took 14\.6 ms on average`, `the two agree`,
	}, never: []string{`regress`, `42\.0 ms between outputs`}},
	{name: "C38", says: []string{
		`worker-0 is no measurement: 5,000 of 5,000 observations lie in the first bucket, and their sum is exactly 0`, `clock is behind the sender's`,
		`worker-1 cannot be: 350 ms on average, all of 5,000 between 100 ms and 500 ms`, `TTFT of 231 ms make 581 ms, more than the 412 ms`, `ahead, by at least 169 ms`, `lie 181 ms that nothing measured: they are unattributed, not network`, `clocks are kept in step`,
	}, never: []string{`excellent`, `175 ms`}},
	{name: "C69", says: []string{
		`does not export TTFT`, `validation \(2\.00 ms\) and queue \(31\.0 ms\), and within the inference of 1\.84 s`, `Estimate, no measurement: .* about 245 ms`, `no time per output token`, `A decode step takes 38\.1 ms`, `20 of 1,000 failed`,
	}, never: []string{`TPOT = 76`, `TTFT = 0`, `TTFT p99`}},
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
