package deploy

import (
	"bufio"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/proto"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/promapi"
	"github.com/whylate/whylate/metrics/rollup"
	"github.com/whylate/whylate/objective"
)

// fleet is a server's time series of a quarter of an hour, and its PromQL API.
type fleet struct {
	api        string
	from, till time.Time
	stored     map[string]bool // names of series in the store
	own        map[string]bool // families that whylate says of itself, those without a series too
	counters   map[string]bool // families that grow
	refused    []metrics.Refused
}

// page is what one target shows at the end; it has grown to that from a part of it.
type page struct {
	target   labels.Labels
	families []*dto.MetricFamily
}

const scrapes = 61

// stuck is an engine that runs requests and makes no token.
const stuck = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="stuck"} 3.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="stuck"} 0.0
`

// newFleet is a fleet of an engine, its GPUs, a gateway and a whylate, which was scraped every 15 seconds.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Detail: metrics.Keep{For: 24 * time.Hour}, Rollup: metrics.Keep{For: 24 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	f := &fleet{from: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), stored: map[string]bool{}, own: map[string]bool{}, counters: map[string]bool{}}
	f.till = f.from.Add((scrapes - 1) * scrapeInterval)
	pages := pages(t)
	for i := range scrapes {
		at := f.from.Add(time.Duration(i) * scrapeInterval)
		for _, p := range pages {
			if err := metrics.Record(t.Context(), db.Appendable("scrape"), p.at(float64(i+1)/scrapes), p.target, at); err != nil {
				t.Fatal(err)
			}
		}
		if at.Truncate(rollup.Every).Equal(at) {
			if _, err := rollup.Minute(t.Context(), db.Detail(), db.Signals("rollup"), at.Add(-rollup.Every), at); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, p := range pages {
		for _, family := range p.families {
			f.own[family.GetName()] = f.own[family.GetName()] || p.target.Get("job") == "whylate"
			f.counters[family.GetName()] = grows(family)
		}
	}
	f.refused = db.Refused()
	q, err := db.Queryable().Querier(f.from.UnixMilli(), f.till.UnixMilli())
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	names, _, err := q.LabelValues(t.Context(), model.MetricNameLabel, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		f.stored[strings.Clone(n)] = true
	}
	server := httptest.NewServer(promapi.New(db, promapi.Options{Version: "test", Started: f.from, Now: func() time.Time { return f.till }}))
	t.Cleanup(server.Close)
	f.api = server.URL + promapi.Prefix
	return f
}

// pages are what the fleet's targets show.
func pages(t *testing.T) []page {
	t.Helper()
	parse := func(text string, target ...string) page {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return page{labels.FromStrings(target...), slices.Collect(maps.Values(families))}
	}
	engine := read(t, "../look/testdata/vllm-0.32.0.prom") // of an engine that was idle just then
	for name, v := range map[string]string{"num_requests_running": "4.0", "num_requests_waiting": "2.0", "kv_cache_usage_perc": "0.41"} {
		engine = regexp.MustCompile(`(?m)^(vllm:`+name+`\{.*\}) 0\.0$`).ReplaceAllString(engine, "$1 "+v)
	}
	speculative := read(t, "../testdata/cases/C37-vllm-itl-is-per-step-under-spec.prom")
	requests, err := requestsOver().Gather()
	if err != nil {
		t.Fatal(err)
	}
	ps := []page{
		parse(engine, "job", "engines", "instance", "atlas-0:8000", "namespace", "serving", "pod", "atlas-0"),
		parse(speculative, "job", "engines", "instance", "atlas-1:8000", "namespace", "serving", "pod", "atlas-1"),
		parse(stuck, "job", "engines", "instance", "atlas-2:8000"),
		parse(read(t, "testdata/dcgm.prom"), "job", "gpus", "instance", "node-a:9400"),
		parse(read(t, "testdata/gateway.prom"), "job", "gateway", "instance", "gateway:4318"),
		parse(served(t), "job", "whylate", "instance", "whylate-0"),
		{labels.FromStrings("job", "whylate", "instance", "whylate-0"), requests},
	}
	for _, p := range slices.Clone(ps[:5]) {
		ps = append(ps, parse("# TYPE up gauge\nup 1\n# TYPE scrape_samples_scraped gauge\nscrape_samples_scraped 613\n", "job", p.target.Get("job"), "instance", p.target.Get("instance")))
	}
	return ps
}

// grows reports whether a family counts. DCGM's two of a window are declared counters and are none.
func grows(f *dto.MetricFamily) bool {
	return (f.GetType() == dto.MetricType_COUNTER || f.GetType() == dto.MetricType_HISTOGRAM) && !strings.HasPrefix(f.GetName(), "DCGM_EXP_")
}

// at is the page when what counts had come to a part of what it is at the end.
func (p page) at(part float64) prometheus.Gatherer {
	var families []*dto.MetricFamily
	for _, f := range p.families {
		if f = proto.Clone(f).(*dto.MetricFamily); grows(f) {
			for _, m := range f.GetMetric() {
				shrink(m, part)
			}
		}
		families = append(families, f)
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return families, nil })
}

func shrink(m *dto.Metric, part float64) {
	if c := m.GetCounter(); c != nil {
		c.Value = proto.Float64(c.GetValue() * part)
	}
	h := m.GetHistogram()
	if h == nil {
		return
	}
	part = 1000 * (1 + part) // it has run for long: near a counter's zero PromQL's rate of one bucket may exceed that of the next
	whole := func(n uint64) *uint64 { return proto.Uint64(uint64(float64(n) * part)) }
	h.SampleCount, h.SampleSum = whole(h.GetSampleCount()), proto.Float64(h.GetSampleSum()*part)
	for _, b := range h.GetBucket() {
		b.CumulativeCount = whole(b.GetCumulativeCount())
	}
}

// requestsOver are whylate's own histograms and counters of requests that were over.
func requestsOver() prometheus.Gatherer {
	m := objective.NewMeter(objective.Objectives{TTFT: time.Second, TPOT: 50 * time.Millisecond, E2E: 20 * time.Second})
	for i := range 600 {
		ttft, tpot := time.Duration(i+1)*3*time.Millisecond, time.Duration(i%70+5)*time.Millisecond
		a := &account.Account{Request: &ledger.Request{Status: 200, End: ledger.EndComplete}, TTFT: int64(ttft), TPOT: int64(tpot), Output: 100, TailOutput: uint32(100 + 4*i), To: int64(ttft + 99*tpot),
			Lines: []account.Line{{Part: account.Queue, NS: int64(ttft / 2)}, {Part: account.Prefill, NS: int64(ttft / 2)}, {Part: account.Decode, NS: int64(99 * tpot)}}}
		switch i % 50 {
		case 0:
			a.Request.End = ledger.EndDisconnect
		case 1:
			a.Request.End = ledger.EndError
		}
		m.Count("atlas", uint32(50*i), a)
	}
	r := prometheus.NewRegistry()
	m.Register(r)
	return r
}

// served is what 'whylate serve' says of itself under /metrics, after it has been asked and has refused.
func served(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, v := range map[string]string{"HOME": dir, "WHYLATE_DATA_DIR": dir, "WHYLATE_RINGS_FOLLOW": "false", "WHYLATE_LISTEN_HTTP": "127.0.0.1:0", "WHYLATE_LISTEN_AGENTS": "127.0.0.1:0",
		"WHYLATE_EXPORT_ENDPOINT": "http://127.0.0.1:9/v1/traces", "WHYLATE_OBJECTIVES_TTFT": "1s"} {
		t.Setenv(name, v)
	}
	lines, log := io.Pipe()
	over := make(chan int, 1)
	go func() { over <- cli.Main([]string{"serve"}, strings.NewReader(""), io.Discard, log); log.Close() }()
	address := ""
	scan := bufio.NewScanner(lines)
	for scan.Scan() {
		if m := regexp.MustCompile(`msg=answering address=(\S+)`).FindStringSubmatch(scan.Text()); m != nil {
			address = "http://" + m[1]
			break
		}
		t.Log(scan.Text())
	}
	if address == "" {
		t.Fatalf("it does not serve: status %d", <-over)
	}
	go io.Copy(io.Discard, lines)
	post := func(path, contentType, body string) {
		resp, err := http.Post(address+path, contentType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	post("/v1/traces", "application/json", `{"resourceSpans"`)
	post("/v1/metrics", "application/json", `{}`)
	post("/prometheus/api/v1/write", "text/plain", "up 1")
	resp, err := http.Get(address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil { // as whoever stops it does; the command has asked for the signal
		t.Fatal(err)
	}
	if status := <-over; status != cli.ExitOK {
		t.Errorf("serve ended with status %d", status)
	}
	return string(b)
}
