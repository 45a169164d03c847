package exposition

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

func cased(t testing.TB, name string) *Page {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../testdata/cases", name))
	if err != nil {
		t.Fatal(err)
	}
	return Read(b)
}

// C28: one "-nan" costs one sample.
func TestMinusNaNIsOneUnknownSample(t *testing.T) {
	p := cased(t, "C28-llamacpp-minus-nan.prom")
	if len(p.Problems) != 1 || p.Problems[0].Line != 18 || p.Problems[0].Text != "-nan" {
		t.Fatalf("%v", p.Problems)
	}
	f := p.Family("llamacpp:n_busy_slots_per_decode")
	if f == nil || len(f.Samples) != 0 || len(f.NaN) != 1 || f.NaN[0].Line != 18 {
		t.Errorf("%+v", f)
	}
	if f := p.Family("llamacpp:requests_deferred"); f == nil || len(f.Samples) != 1 || f.Type != Gauge {
		t.Errorf("%+v", f)
	}
}

func TestSpellings(t *testing.T) {
	for value, want := range map[string]float64{
		"nan": math.NaN(), "-nan": math.NaN(), "+nan": math.NaN(), "-nan(ind)": math.NaN(), "NaN": math.NaN(), "-NAN": math.NaN(), "1.#QNAN": math.NaN(), "-1.#IND": math.NaN(),
		"inf": math.Inf(1), "-inf": math.Inf(-1), "+Inf": math.Inf(1), "INF": math.Inf(1), "1.#INF": math.Inf(1), "-1.#INF": math.Inf(-1),
	} {
		p := Read([]byte("a 1\nx{y=\"{z} 3\"} " + value + "\nb 2\n"))
		f := p.Family("x")
		if f == nil || len(f.Samples)+len(f.NaN) != 1 || p.Family("a") == nil || p.Family("b") == nil {
			t.Errorf("%s: %+v, %v", value, f, p.Problems)
			continue
		}
		if math.IsNaN(want) != (len(f.NaN) == 1) || !math.IsNaN(want) && f.Samples[0].Value != want {
			t.Errorf("%s: %+v", value, f)
		}
	}
}

// C33: names are bytes, not paths.
func TestOddNames(t *testing.T) {
	p := cased(t, "C33-odd-model-names.prom")
	if len(p.Problems) > 0 {
		t.Error(p.Problems)
	}
	f, total, names := p.Family("vllm:num_requests_running"), 0.0, map[string]bool{}
	for _, s := range f.Samples {
		total += s.Value
		names[s.Labels.Get("model_name")] = true
	}
	if total != 78 || len(names) != 12 {
		t.Errorf("%v requests in %d models: %v", total, len(names), names)
	}
}

// C22: nothing is interpolated below the first bound and above the last one.
func TestFloorAndCap(t *testing.T) {
	queue := &cased(t, "C22-histogram-floor-and-cap.floor.prom").Family("vllm:request_queue_time_seconds").Histograms[0]
	if q := queue.Quantile(0.99); !q.Floor() || q.High != 0.3 || math.Abs(queue.Mean()-0.0021) > 1e-6 {
		t.Errorf("p99 %v, mean %v", q, queue.Mean())
	}
	e2e := &cased(t, "C22-histogram-floor-and-cap.cap.prom").Family("vllm:e2e_request_latency_seconds").Histograms[0]
	if q := e2e.Quantile(0.5); q != (Between{30, 40}) {
		t.Errorf("p50 %v", q)
	}
	if q := e2e.Quantile(0.8); q != (Between{50, 60}) {
		t.Errorf("p80 %v", q)
	}
	if q := e2e.Quantile(0.99); !q.Cap() || q.Low != 60 || e2e.Above() != 180 {
		t.Errorf("p99 %v, %v above", q, e2e.Above())
	}
	if low, high := e2e.AboveMean(); math.Round(low) != 115 || math.Round(high) != 152 {
		t.Errorf("mean above the cap: %v to %v", low, high)
	}
	if low, high := e2e.AtMost(45); low >= high {
		t.Errorf("at most 45 s: %v to %v", low, high)
	}
}

// C20: a sum that no durations can have has no mean.
func TestImpossibleSum(t *testing.T) {
	h := cased(t, "C20-vllm-ttft-tiny-and-negative.b-negative.prom").Family("vllm:time_to_first_token_seconds").Histograms[0]
	if !math.IsNaN(h.Mean()) || h.Sum != -212.5 {
		t.Errorf("mean %v of %v", h.Mean(), h.Sum)
	}
}

// C32: hostile label values arrive whole.
func TestScanner(t *testing.T) {
	p := cased(t, "C32-gateway-route-cardinality.prom")
	if len(p.Problems) > 0 {
		t.Error(p.Problems)
	}
	total, longest := 0.0, 0
	for _, f := range p.Families {
		for _, s := range f.Samples {
			total += s.Value
			longest = max(longest, len(s.Labels.Get("route")))
		}
	}
	if total != 1900 || longest < 2048 {
		t.Errorf("%v in all, longest route %d", total, longest)
	}
}

// C47: above 2⁵³ the text tells apart what the number cannot.
func TestLargeNumbersKeepTheirText(t *testing.T) {
	p := Read([]byte("a{x=\"1\"} 9223372036854775792\nb 9223372036854775795 1700000000000\nc{} 7\n"))
	for name, want := range map[string]string{"a": "9223372036854775792", "b": "9223372036854775795", "c": ""} {
		if f := p.Family(name); f == nil || f.Samples[0].Text != want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestOpenMetrics(t *testing.T) {
	p := Read([]byte("# TYPE a counter\n# HELP a Things.\na_total{x=\"1\"} 3 # {trace_id=\"t\"} 1\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_count 2\nh_sum 5\n# TYPE v info\nv_info{version=\"1\"} 1\n# EOF\n"))
	if len(p.Problems) > 0 {
		t.Fatal(p.Problems)
	}
	if f := p.Family("a_total"); f == nil || f.Type != Counter || f.Help != "Things." || len(f.Samples) != 1 {
		t.Errorf("%+v", f)
	}
	if f := p.Family("h"); f == nil || len(f.Histograms) != 1 || f.Histograms[0].Count != 2 || f.Histograms[0].Above() != 1 {
		t.Errorf("%+v", f)
	}
	if f := p.Family("v_info"); f == nil || f.Type != Info {
		t.Errorf("%+v", f)
	}
}

func TestHistogramWithoutADeclaration(t *testing.T) {
	p := Read([]byte("h_bucket{le=\"5\"} 2\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 3\nh_sum 9\nh_count 3\n"))
	f := p.Family("h")
	if f == nil || len(f.Histograms) != 1 || len(p.Families) != 1 {
		t.Fatalf("%+v", p.Families)
	}
	if h := f.Histograms[0]; h.Bounds[0] != 1 || h.Counts[1] != 2 || h.Count != 3 || h.Sum != 9 {
		t.Errorf("%+v", h)
	}
}

// Buckets that stand alike are of one histogram; whatever else looks so is not.
func TestBucketsThatLookAlike(t *testing.T) {
	p := Read([]byte(`# TYPE h histogram
h_bucket{a=",le=",b="1",le="1"} 1
h_bucket{a=",le=",b="1",le="2"} 2
h_bucket{a=",le=",b="2",le="2"} 3
h_bucket{a=",le=",b="2",le="+Inf"} 4
h_bucket{le="1",a="x"} 5
h_bucket{le="1",a="y"} 6
h_bucket{le="2",a="y"} 7
h_bucket{a="y", le="3"} 8
h_bucket{a="\\\",le=\"",le="1"} 9
h_count{a="y"} 8
# TYPE h gauge
h_bucket{le="2",a="y"} 7
`))
	got := map[string]string{}
	for _, h := range p.Family("h").Histograms {
		got[h.Labels.Key()] = fmt.Sprint(h.Bounds, h.Counts)
	}
	want := map[string]string{
		"a\xff,le=\xffb\xff1\xff": "[1 2] [1 2]", "a\xff,le=\xffb\xff2\xff": "[2] [3]", "a\xffx\xff": "[1] [5]", "a\xffy\xff": "[1 2 3] [6 7 8]",
		"a\xff\\\",le=\"\xff": "[1] [9]"}
	if len(got) != len(want) {
		t.Errorf("%q", got)
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%q is %s, want %s", k, got[k], v)
		}
	}
}

// A restart between two scrapes: what is counted now is all there was since.
func TestSince(t *testing.T) {
	older, newer := Hist{Bounds: []float64{1, 2}, Counts: []float64{3, 5}, Count: 6, Sum: 10}, Hist{Bounds: []float64{1, 2}, Counts: []float64{4, 7}, Count: 9, Sum: 16}
	d, restarted := newer.Since(&older)
	if restarted || d.Count != 3 || d.Sum != 6 || d.Counts[0] != 1 || d.Counts[1] != 2 {
		t.Errorf("%+v", d)
	}
	if d, restarted = older.Since(&newer); !restarted || d.Count != 6 {
		t.Errorf("%+v", d)
	}
}

// However broken a page is, what is whole on it is read, and nothing panics.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("../testdata/cases/*.prom")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		if len(b) < 20_000 {
			f.Add(b)
		}
	}
	f.Add([]byte("# TYPE h histogram\nh_bucket{le=\"x\"} 1\n\xff\nh 2\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Read(b)
		for _, family := range p.Families {
			for _, s := range family.Samples {
				if math.IsNaN(s.Value) {
					t.Errorf("%s is NaN", family.Name)
				}
			}
			for i := range family.Histograms {
				h := &family.Histograms[i]
				for _, q := range []float64{0.01, 0.5, 0.99, 1} {
					if b := h.Quantile(q); !(b.Low < b.High) {
						t.Errorf("%s: p%v is %v", family.Name, 100*q, b)
					}
				}
			}
		}
		for _, problem := range p.Problems {
			if strings.ContainsAny(problem.String(), "\x00\x1b\n") {
				t.Errorf("%q is no text for a terminal", problem.String())
			}
		}
	})
}

// BenchmarkAgainstPrometheus reads a page in turn with Prometheus's own parser, labels included, which is what a scrape costs at least.
func BenchmarkAgainstPrometheus(b *testing.B) {
	for _, name := range []string{"../testdata/cases/C31-vllm-renames-mixed-fleet.pod-new.prom", "../look/testdata/vllm-0.32.0.prom"} {
		b.Run(filepath.Base(name), func(b *testing.B) {
			page, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			var ours, theirs []time.Duration // medians: whatever else runs on the machine hits one of the two now and then
			for b.Loop() {
				began := time.Now()
				if len(Read(page).Problems) > 0 {
					b.Fatal("a problem")
				}
				between := time.Now()
				prometheus(b, page)
				ours, theirs = append(ours, between.Sub(began)), append(theirs, time.Since(between))
			}
			own, other := median(ours), median(theirs)
			b.ReportMetric(own.Seconds()/other.Seconds(), "x")
			b.ReportMetric(float64(len(page))/1e6/own.Seconds(), "MB/s")
		})
	}
}

func median(ds []time.Duration) time.Duration {
	slices.Sort(ds)
	return ds[len(ds)/2]
}

func prometheus(b *testing.B, page []byte) {
	p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			b.Fatal(err)
		}
		if entry == textparse.EntrySeries {
			var ls labels.Labels
			p.Labels(&ls)
			p.Series()
		}
	}
}
