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
		`5,000 tok/s a second|prompts of 5,000 tok/s`, `400 tok/s were taken up \(75\.0 % of them cached\)`, `100 tok/s were really computed`, `All three are right`, `100 tok/s were really computed: .* equal to the log's 100\.0 tok/s`, `no year|inferred from the file's time`,
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
		`request 1,900 failed \(RateLimitError 1,410, BadRequestError 380, InternalServerError 110\)`,
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
	{name: "C47", says: []string{
		`26 samples of GPUs are no values; none is used`, `SM clock blank`, `memory temperature not supported`, `power not supported`, `XID not found`, `clock event reasons not permitted`, `energy blank`,
		`memory blank, its reason lost in rounding \(3 times\) and not supported`, `utilisation corrupt \(outside 0 to 100\)`, `Unknown clock event reasons do not mean that nothing is throttled`,
		`GPU 1 of gpu-node-c: utilisation 97\.0 %, SM active 88\.1 %, temperature 61 °C, power 512\.4 W, memory 71,022 MiB`, `GPU 0 of gpu-node-c: memory 71,001 MiB`,
		`GPU 0 in \S+smi: utilisation unknown error, memory N/A, power not supported, clock event reasons N/A, memory temperature read error \(ERR!\)`, `GPU 0 in \S+dmon: engine active N/A`,
	}, never: []string{`9,?223,?372`, `e\+18`, `2,?147,?483`, `131,?072`, `4,?294`, `140,?737`, `utilisation 0`, `memory 0 MiB`, `NaN`}},
	{name: "C48", says: []string{
		`PROF data of GPU 0 of gpu-node-d are invalid, not idle: from 10:04:00 UTC SM active, tensor active, DRAM active are exactly 0 in 25 consecutive samples \(a sample every 15\.0 s\)`,
		`GPU_UTIL is 99\.0 % to 100\.0 %, power is 588\.3 W to 610\.5 W and the engine generates 2,29\d tok/s`, `coincides with XID 31 \(GPU memory page fault.*first seen at 10:04:00 UTC; the workload kept running`,
		`SM active 88\.2 % \(mean of 16 samples\)`, `Use power and tokens in their place: no SM activity and no MFU`, `Restart the DCGM host engine and its exporter`,
	}, never: []string{`GPU idle`, `host-bound`, `low tensor`, `3[2-6]\.\d %`, `SM active 0`}},
	{name: "C50", says: []string{
		`GPU 2 of gpu-node-e is the straggler of the 4 GPUs of serving/atlas-tp4-0: SM clock 1,095 MHz, the others 1,980 MHz: 1\.81 times slower`,
		`136 = 0x88: hardware slowdown \(0x8\) \+ power brake.* \(0x80\); 318\.1 W`, `each step waits for the slowest`, `rose 1\.74 times, from 22\.1 ms .* to 38\.4 ms .*, which fits`,
		`The others spin in collectives: utilisation 100\.0 % and SM active 96\.9 % to 97\.1 % with tensor active 21\.0 % to 21\.1 % is waiting, not work`,
		`Not the fault: GPU 0: 4 = 0x4: power cap, normal at high load`, `Check on GPU 2 of gpu-node-e: the power feed`, `Do not lower the load of the model first`,
	}, never: []string{`1,?759`, `136 °C`, `thermal`}},
	{name: "C51", says: []string{
		`GPU 0 of gpu-node-f \(GPU-000001fe-\S+\) is partitioned into 3 instances`, `3g\.40gb id 2 \(serving/atlas-mig-0\): engine active 94\.2 %, SM active 88\.0 %, memory 36,210 MiB`,
		`2g\.20gb id 3 \(serving/embed-0\): engine active 11\.0 %, SM active 8\.0 %, memory unknown`, `1g\.10gb id 9 \(no owner named\): engine active 0\.0 %, SM active 0\.0 %, memory 6,102 MiB`,
		`weighted by their slices \(3:2:1\): engine active 50\.8 %`, `draws 401\.2 W, once, though 3 lines repeat it; the GPUs of gpu-node-f together 401\.2 \+ 502\.7 = 903\.9 W`,
		`GPU_UTIL is not measured for instances: unknown, not 0`, `An instance is its GPU's UUID and GPU_I_ID`,
	}, never: []string{`1,?706`, `utilisation 0`}},
	{name: "C52", says: []string{
		`serving/atlas-0 \(acme/atlas-32b-instruct on 192\.0\.2\.41:8000\) on GPU 0 of gpu-node-g \(GPU-00000208-`, `serving/atlas-1 \(acme/atlas-32b-instruct on 192\.0\.2\.42:8000\) on GPU 0 of gpu-node-h \(GPU-00000209-`,
		`serving/atlas-2 \(acme/atlas-32b-instruct on 192\.0\.2\.43:8000\) on GPU 0 of gpu-node-i \(GPU-0000020a-`, `3 different GPUs are called gpu="0": they are told apart by UUID`,
		`joined by namespace and pod`, `gpu_uuid is that of GPU 0 of gpu-node-i, its model_name \(NVIDIA H100 80GB HBM3\) is the board's, no language model's`, `DCGM: 3 targets, 3 GPUs`,
	}, never: []string{`gpu-operator`, `exporter-x7k2p`, `found [^:]*: NVIDIA`}},
	{name: "C54", says: []string{
		`Each is one series across the change`, `GPU 0 of gpu-node-k: temperature 64 °C, power 611\.2 W, utilisation 97\.0 %, share of memory used 89\.0 %`, `GPU 1 of gpu-node-k: .*utilisation 1\.0 %`,
		`DEV_GPU_UTIL is DEV_GPU_UTIL_RATIO`, `DEV_POWER_USAGE is DEV_BOARD_POWER_WATTS`, `DEV_GPU_TEMP is DEV_GPU_TEMP_CELSIUS`, `DEV_XID_ERRORS is DEV_XID_ERROR`, `PROF_GR_ENGINE_ACTIVE is PROF_GR_ENGINE_UTIL_RATIO`,
		`PROF_SM_ACTIVE is PROF_SM_UTIL_RATIO`, `PROF_PIPE_TENSOR_ACTIVE is PROF_TENSOR_UTIL_RATIO`, `PROF_DRAM_ACTIVE is PROF_DRAM_UTIL_RATIO`, `CLOCK_THROTTLE_REASONS is DEV_CLOCKS_EVENT_REASONS`,
		`GPU_UTIL_RATIO counts from 0 to 100, PROF_\*_RATIO and FB_USED_RATIO from 0 to 1; here all are in %`, `2 targets, 2 GPUs`,
	}, never: []string{`9,?700`, `100\.0 %`, `missing`, `\d \S+ → `}},
	{name: "C70", says: []string{
		`DCGM_FI_PROF_PCIE_TX_BYTES is a rate in bytes/s already, a gauge, and declared counter, which is wrong: .* between 1\.15 GB/s and 2\.40 GB/s, 1\.75 GB/s on average`, `never rate\(\)`,
		`At 10:02:00 UTC \(sample 8\) it reads 0 J: a bad read, not a reset`, `1\.26e\+08 J in 15\.0 s would be 8\.4\d MW, a board's 1,000 W make 15\.0 kJ`,
		`At 10:05:00 UTC \(sample 20\) it starts again at 4\.0 kJ .*a true reset.*counted on from there`, `285\.0 kJ over samples 0 to 19`, `285,000 J / 570,000 tokens = 0\.50 J per token`,
	}, never: []string{`-[\d.,]+ k?[JW]`, `126,?420`}},
	{name: "C38", says: []string{
		`worker-0 is no measurement: 5,000 of 5,000 observations lie in the first bucket, and their sum is exactly 0`, `clock is behind the sender's`,
		`worker-1 cannot be: 350 ms on average, all of 5,000 between 100 ms and 500 ms`, `TTFT of 231 ms make 581 ms, more than the 412 ms`, `ahead, by at least 169 ms`, `lie 181 ms that nothing measured: they are unattributed, not network`, `clocks are kept in step`,
	}, never: []string{`excellent`, `175 ms`}},
	{name: "C39", says: []string{`1 request in traces: 1 complete`, `queue 12\.0 ms`, `prefill 371\.0 ms`, `decode 1,940\.0 ms`, `inferred`, `40 'http send' spans are one a streamed chunk`}, never: []string{`-2\.36`, `4\.76`}},
	{name: "C41", says: []string{`3 requests in traces: 0 complete, 1 aborted, 0 failed, 2 incomplete; usable client durations 0|usable client durations 0`, `2,130 ms`, `left open after abort`, `under a missing parent`}, never: []string{`3,601`, `-[0-9]+ ms`}},
	{name: "C42", says: []string{`60\.0 ms ± 10\.0 ms behind`, `48\.0 ms outside the server`, `24\.0 ms`, `36\.0 ms`, `29\.0 ms`, `original ones are kept`}, never: []string{`-[0-9.]+ ms`}},
	{name: "C44", says: []string{`tokens: 812 in, 96 out, 512 cached`, `512 \+ 300 = 812`, `first: 231 ms`}, never: []string{`4,?160`}},
	{name: "C45", says: []string{`tokens: 9120 in, 340 out`, `system 1, user 2, assistant 1`, `1 value truncated`}, never: []string{`@`, `data:image`, `[+]?[0-9]{3}[- ][0-9]{3}[- ][0-9]{4}`}},
	{name: "C46", interval: time.Minute, says: []string{`tokenize`, `waiting`, `prefill 212\.0 ms`, `decode 1,702\.0 ms`, `scheduler telemetry missing`, `queue time mean 4,020 ms over 40 requests; so waiting is the likely part`}, never: []string{`tokenize 6`}},
	{name: "C55", says: []string{
		`17 lines, 18 records \(12 decode batches, 4 prefill batches, 2 web server lines\)`, `line 17 \(09:00:16\) holds several records, all kept`, `no zone in 17 lines: give it with --zone|times carry no zone: give it with --zone`,
		`swa pool is 97 % full in line 10 \(09:00:06\)\. It limits admission \(0\.97\), however much room the others have \(full 0\.42\)`, `mamba pool is 97 % full in line 11 .*\(full 0\.31\)`,
		`graph is off and throughput falls in line 9 \(09:00:04\): .* 8\.4 times slower`, `throughput of exactly 0 while 5 requests ran, in line 15 \(09:00:14\): a stall`,
		`decode node of a prefill/decode pair, in line 13 \(09:00:12\): its queue \(0\) does not mean that nobody waits: prealloc \(for room\) 2, transfer \(for their KV\) 1`,
		`accept length 2\.71 → 3\.10 tokens a step, which includes the bonus token`, `acceptance rate 70\.0 % = \(3\.10 − 1\) / 3 drafts`, `1 ended with 499, its client had gone, in line 16`,
		`7 running, 0 waiting`, `350 tok/s out`, `token pool 2\.0 %`,
	}, never: []string{`271`, `310 %`, `BROKEN`, ` UTC`}},
	{name: "C57", says: []string{
		`15 lines, 14 records \(8 stat records, 2 preemption warnings, 1 hit-rate line, 1 speculation line, 1 transfer line, 1 other\)`, `lines 13 to 14 are one that its runtime had cut, joined`,
		`no year in the timestamps of \d+ lines: inferred from the container runtime's times`, `New Year before line 4 \(00:00:07\)`, `Times 2025-12-31 23:59:52 to 2026-03-11 09:12:44`, `no zone in 11 lines`,
		`preemption in 2 lines, 3 .*\+50 preemptions in 9\.00 s between warnings, by their cumulative count \(51 at first, 101 at last\)`, `rate-limited: not every preemption is printed`,
		`KV cache is 97\.3 % full in line 1`, `up to 5 of 5 waiting requests are deferred, in line 7 \(09:12:04\): deferred is contained in waiting`, `aggregated over 4 engines in line 8 .*running 62, waiting 83, KV 49\.8 %.* average and hides imbalance`,
		`not added to the lines of single engines`, `acceptance rate 61\.2 % = 1,210 / 1,978 drafted tokens`, `40 succeeded, 0 failed`, `28\.7 ms on average, p90 41\.0 ms`,
		`2 running, 0 waiting`, `70 tok/s out, 7 tok/s of prompts computed`, `KV cache 1\.2 %`,
	}, never: []string{`2024`, `10 waiting`, `64 running`, `97 running`, `2025-03`, `BROKEN`}},
	{name: "C69", says: []string{
		`does not export TTFT`, `validation \(2\.00 ms\) and queue \(31\.0 ms\), and within the inference of 1\.84 s`, `Estimate, no measurement: .* about 245 ms`, `no time per output token`, `A decode step takes 38\.1 ms`, `20 of 1,000 failed or were aborted, 2\.0 % \(overloaded 14, validation 6\)`, `a decode step takes 38\.1 ms \(TGI`,
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
	for i := range inputs {
		inputs[i].Modified = time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC) // not that of a checkout
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
