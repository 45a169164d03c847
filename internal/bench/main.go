// Command bench runs the benchmarks and prints their figures with budgets (DESIGN §13). It is what 'make bench' runs. Budgets on
// speed are ratios inside one run wherever that is possible; absolute ones are those of the design.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/internal/figure"
)

func main() {
	long := flag.Bool("long", false, "the figures that take hours: 'make bench-long'")
	only := flag.String("only", "", "one section alone")
	keep := flag.String("keep", "", "directory in which the large stores stay, and are found again")
	flag.Parse()
	command := "make bench"
	sections := []section{
		{"codec", codec},
		{"ingest", assembling},
		{"account", accounts},
		{"export", exported},
		{"store", stored},
		{"scale", func(s *figure.Sheet) error { return scale(s, shortSizes, *keep) }},
		{"fleet", func(s *figure.Sheet) error { return fleet(s, shortFleet) }},
		{"spans", spans},
		{"agent", agents},
		{"metrics", timeSeries},
		{"scrape", scraping},
		{"workload", workloads},
		{"look", func(s *figure.Sheet) error { return looking(s, 100, time.Minute) }},
		{"simulate", simulated},
		{"timing", iterationTimes},
		{"probe", probe},
	}
	if *long {
		command = "make bench-long"
		sections = []section{{"scale", func(s *figure.Sheet) error { return scale(s, longSizes, *keep) }}, {"fleet", func(s *figure.Sheet) error { return fleet(s, longFleet) }}}
	}
	s := figure.New(os.Stdout, command)
	for _, k := range sections {
		if *only != "" && k.name != *only {
			continue
		}
		if err := k.run(s); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", k.name, err)
			os.Exit(1)
		}
	}
	if err := s.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if len(s.Over) > 0 {
		fmt.Printf("bench: over budget: %s\n", strings.Join(s.Over, ", "))
	}
}

// section is one area's figures.
type section struct {
	name string
	run  func(*figure.Sheet) error
}

func codec(s *figure.Sheet) error {
	wire, err := bench("./wire", "Scheduled|Done|Delivered|RingReadAndWrite|CaptureBytes")
	if err != nil {
		return err
	}
	for _, b := range []struct{ bench, name string }{
		{"EncodeScheduled/steady", "encode_scheduled_steady"}, {"EncodeScheduled/join64", "encode_scheduled_join64"},
		{"DecodeScheduled/steady", "decode_scheduled_steady"}, {"DecodeScheduled/join64", "decode_scheduled_join64"},
		{"EncodeDone", "encode_done"}, {"DecodeDone", "decode_done"}, {"EncodeDelivered", "encode_delivered_64"}, {"DecodeDelivered", "decode_delivered_64"},
		{"RingReadAndWrite", "ring_write_and_read"},
	} {
		s.Report("codec/"+b.name, wire.get(b.bench, "ns/op"), "ns")
		s.AtMost("codec/"+b.name+"_allocations", wire.get(b.bench, "allocs/op"), "count", 0)
	}
	for _, r := range wire {
		if rest, ok := strings.CutPrefix(r.name, "CaptureBytes/"); ok {
			name := strings.NewReplacer("members=", "members", "/churn=", "_churn", "%", "pct").Replace(rest)
			s.Report("capture/bytes_per_iteration_"+name, r.values["B/iter"], "B")
		}
	}
	return nil
}

func assembling(s *figure.Sheet) error {
	ingest, err := bench("./ingest", "Assemble")
	if err != nil {
		return err
	}
	s.AtLeast("ingest/assemble", ingest.get("Assemble", "iterations/s"), "iterations/s", 100_000)
	otlp, err := bench("./ingest/otlp", "DecodeAndMap")
	if err != nil {
		return err
	}
	// Three spans a call, eight attributes a span, as vLLM, its web server and a gateway make them; time of the processor, so one core's.
	s.AtLeast("ingest/otlp_protobuf", otlp.get("DecodeAndMap/protobuf", "spans/core-s"), "spans/s", 200_000)
	s.Report("ingest/otlp_protobuf_decode_alone", otlp.get("DecodeAndMap/protobuf-decode", "spans/core-s"), "spans/s")
	s.Report("ingest/otlp_json", otlp.get("DecodeAndMap/json", "spans/core-s"), "spans/s")
	// From the wire to the sink, with the sender in the same process; beside it the OpenTelemetry Collector's own receiver in the same run.
	received, err := bench("./ingest/otlp/receive", "Receivers")
	if err != nil {
		return err
	}
	for _, who := range []string{"ours", "ours-mapped", "collector"} {
		for _, how := range []string{"grpc-protobuf", "http-protobuf", "http-json"} {
			s.Report("ingest/otlp_received_"+strings.NewReplacer("-", "_").Replace(who+"_"+how), received.get("Receivers/"+who+"/"+how, "spans/core-s"), "spans/s")
		}
	}
	return nil
}

func accounts(s *figure.Sheet) error {
	account, err := bench("./account", "Account")
	if err != nil {
		return err
	}
	for _, n := range []int{100, 1000, 10000} {
		s.Report(fmt.Sprintf("account/%d_tokens", n), account.get(fmt.Sprintf("Account/tokens=%d", n), "ns/op"), "ns")
	}
	for _, n := range []int{2, 8, 32} {
		s.Report(fmt.Sprintf("account/%d_stints", n), account.get(fmt.Sprintf("Account/stints=%d", n), "ns/op"), "ns")
	}
	// Flat in the length of the answer: a hundred times the tokens may not cost half again as much.
	s.AtMost("account/growth_100_to_10000_tokens", account.get("Account/tokens=10000", "ns/op")/account.get("Account/tokens=100", "ns/op"), "ratio", 1.5)
	return nil
}

// exported is what it costs to let requests leave as spans: passed over by sampling, explained, built, and sent.
func exported(s *figure.Sheet) error {
	r, err := bench("./export", "Export")
	if err != nil {
		return err
	}
	s.Report("export/passed_over", r.get("Export/passed-over", "ns/request"), "ns")
	s.Report("export/explained", r.get("Export/explained", "ns/request"), "ns")
	s.Report("export/built", r.get("Export/built", "ns/request"), "ns")
	s.Report("export/spans_built", r.get("Export/built", "spans/core-s"), "spans/s")
	s.Report("export/spans_built_and_sent", r.get("Export/sent-none", "spans/core-s"), "spans/s")
	s.Report("export/spans_built_and_sent_gzip", r.get("Export/sent-gzip", "spans/core-s"), "spans/s")
	s.Report("export/request_built_and_sent_gzip", r.get("Export/sent-gzip", "ns/request"), "ns")
	return nil
}

// stored are the figures of what lies on the disk, and how it comes there and back.
func stored(s *figure.Sheet) error {
	rs, err := bench("./store/embedded", "SealedBytes|Seal$|Append|Recovery|Rows")
	if err != nil {
		return err
	}
	for _, kind := range []string{"demo", "random", "batch16", "batch64", "batch256"} {
		s.AtMost("store/bytes_per_iteration_"+kind, rs.get("SealedBytes/"+kind, "B/iteration"), "B", 20)
		s.AtMost("store/bytes_per_request_"+kind, rs.get("SealedBytes/"+kind, "B/request"), "B", 300)
	}
	s.Report("store/bytes_per_client_view", rs.get("SealedBytes/demo", "B/client"), "B")
	// Batch 64 at 100 iterations a second, where 0.256 requests end in each.
	perIteration := rs.get("SealedBytes/batch64", "B/iteration") + 0.256*rs.get("SealedBytes/batch64", "B/request")
	s.Report("store/per_day_of_100_engines_at_100_Hz", 100*100*86400*perIteration/1e9, "GB")
	s.Report("store/seal", rs.get("Seal", "iterations/s"), "iterations/s")
	s.Report("store/300_rows_p50", rs.get("Rows", "rows300_p50_ms"), "ms")
	s.Report("store/300_rows_p99", rs.get("Rows", "rows300_p99_ms"), "ms")
	for _, n := range []int{1, 16} {
		for _, q := range []string{"p50", "p99"} {
			s.Report(fmt.Sprintf("store/acknowledged_%d_callers_%s", n, q), rs.get(fmt.Sprintf("Append/callers=%d", n), "acknowledged_"+q+"_ms"), "ms")
		}
	}
	s.Report("store/recovery_open_per_MB", rs.get("Recovery", "open_ms/MB"), "ms")
	s.Report("store/recovery_replay_per_MB", rs.get("Recovery", "replay_ms/MB"), "ms")
	return nil
}

// workloads are what it takes to read a workload to its end and sum it up: ten million rows in the memory of a hundred thousand.
func workloads(s *figure.Sheet) error {
	rs, err := bench("./experiment/workload", "Show|Make")
	if err != nil {
		return err
	}
	for _, kind := range []string{"azure", "own"} {
		s.Report("workload/read_"+kind+"_10M", rs.get("Show/"+kind+"-10M", "rows/s"), "rows/s")
		s.Report("workload/read_"+kind+"_10M_peak_heap", rs.get("Show/"+kind+"-10M", "peak-MB"), "MB")
		s.Report("workload/read_"+kind+"_100k_peak_heap", rs.get("Show/"+kind+"-100k", "peak-MB"), "MB")
	}
	for _, kind := range []string{"mooncake", "sort-own"} {
		name := strings.ReplaceAll(kind, "-", "_")
		s.Report("workload/read_"+name+"_1M", rs.get("Show/"+kind+"-1M", "rows/s"), "rows/s")
		s.Report("workload/read_"+name+"_1M_peak_heap", rs.get("Show/"+kind+"-1M", "peak-MB"), "MB")
	}
	s.Report("workload/make_and_write", rs.get("Make", "rows/s"), "rows/s")
	return nil
}

// agents are the figures of the agent: the program on one engine at 100 Hz, and what one core forwards.
func scraping(s *figure.Sheet) error {
	parsing, err := bench("./exposition", "AgainstPrometheus")
	if err != nil {
		return err
	}
	s.AtMost("scrape/parsing_vllm_0.32_of_prometheus", parsing.get("AgainstPrometheus/vllm-0.32.0.prom", "x"), "x", 1.2)
	s.AtMost("scrape/parsing_short_page_of_prometheus", parsing.get("AgainstPrometheus/C31-vllm-renames-mixed-fleet.pod-new.prom", "x"), "x", 1.2)
	whole, err := bench("./metrics/scrape", "HundredTargets")
	if err != nil {
		return err
	}
	s.Report("scrape/cpu_per_page_of_400_series", whole.get("HundredTargets", "µs/page"), "µs")
	s.Report("scrape/cpu_share_100_targets_every_15s", whole.get("HundredTargets", "%"), "%")
	return nil
}

func agents(s *figure.Sheet) error {
	rs, err := bench("./agent", "Forward|Paced")
	if err != nil {
		return err
	}
	s.AtMost("agent/core_at_100_Hz", rs.get("Paced", "%core"), "%", 1)
	s.AtMost("agent/memory_at_100_Hz", rs.get("Paced", "MB"), "MB", 64)
	s.Report("agent/forward", rs.get("Forward", "frames/s"), "frames/s")
	s.Report("agent/forward_cpu", rs.get("Forward", "cpu-ns/frame"), "ns")
	return nil
}

// timeSeries are the figures of the guard beside a bare TSDB in the same run, and of a panel over a day of 100 engines (4,000 series at 15 s).
func timeSeries(s *figure.Sheet) error {
	rs, err := bench("./metrics", "Append|Memory|Query")
	if err != nil {
		return err
	}
	for _, kind := range []string{"references", "labels"} {
		s.Report("metrics/append_by_"+kind, rs.get("Append/"+kind, "guarded/s"), "samples/s")
		s.Report("metrics/append_by_"+kind+"_bare", rs.get("Append/"+kind, "bare/s"), "samples/s")
		s.AtMost("metrics/append_by_"+kind+"_guard", rs.get("Append/"+kind, "ratio"), "ratio", 1.25)
	}
	s.Report("metrics/memory_per_series", rs.get("Memory", "B/series"), "B")
	for _, panel := range []string{"rate", "quantile"} {
		s.AtMost("metrics/day_of_100_engines_"+panel, rs.get("Query/"+panel, "ns/op")/1e6, "ms", 1000)
	}
	return nil
}

type result struct {
	name   string
	values map[string]float64 // by unit
}

type results []result

// get is the value of a benchmark; one that did not run is an error of ours.
func (rs results) get(name, unit string) float64 {
	for _, r := range rs {
		if r.name == name {
			if v, ok := r.values[unit]; ok {
				return v
			}
		}
	}
	panic(fmt.Sprintf("benchmark %s gave no %s", name, unit))
}

var benchLine = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)

func bench(pkg, pattern string) (results, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", pattern, "-benchmem", pkg)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	var rs results
	for _, line := range strings.Split(string(out), "\n") {
		m := benchLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		r := result{m[1], map[string]float64{}}
		f := strings.Fields(m[2])
		for i := 0; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				r.values[f[i+1]] = v
			}
		}
		rs = append(rs, r)
	}
	return rs, nil
}

// probe runs the probe's own benchmark, which prints figure lines.
func probe(s *figure.Sheet) error {
	cmd := exec.Command("python3", "probes/vllm/tests/bench_hot_path.py")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	for _, line := range strings.Split(string(out), "\n") {
		f := strings.Fields(line)
		if len(f) < 6 || f[0] != "figure" {
			continue
		}
		v, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return fmt.Errorf("figure line %q: %w", line, err)
		}
		if f[4] == "report" {
			s.Report(f[1], v, f[3])
			continue
		}
		budget, err := strconv.ParseFloat(f[5], 64)
		if err != nil {
			return fmt.Errorf("figure line %q: %w", line, err)
		}
		if f[4] == ">=" {
			s.AtLeast(f[1], v, f[3], budget)
		} else {
			s.AtMost(f[1], v, f[3], budget)
		}
	}
	return nil
}
