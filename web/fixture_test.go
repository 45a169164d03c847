package web_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/web"
)

// crowd is a scenario with what an answer may hold: a full KV pool, a head of the line, holders, a preemption, a request that the
// client left, one that has not ended.
const crowd = `
engine vllm depth=1 max_num_seqs=16 num_gpu_blocks=20
0ms       http big-1
0ms       submit big-1 prompt=64
0ms       http big-2
0ms       submit big-2 prompt=64
0ms       queue big-1 prompt=64 max=200
0ms       queue big-2 prompt=64 max=200
1..40ms   iter big-1:64 big-2:64
41ms      x60 9ms iter big-1 big-2
590ms     http head
590ms     submit head prompt=320
590ms     arrive head
591ms     queue head prompt=320 max=4
592ms     http short
592ms     labels short tenant=5f0c1a2b3c4d5e6f class=a1b2c3d4e5f60718 route=18f6e5d4c3b2a190
592ms     submit short prompt=16
592ms     arrive short
593ms     queue short prompt=16 max=3
594..603ms step 62 rank=0 device=7ms padded=8 graph=full peak=1024
595ms     x40 9ms iter big-1 big-2 stop=kv head=head need=10 free=4 waiting=2 running=2 hold=big-1:9,big-2:7
955ms     x10 9ms iter big-1 big-2 stop=kv head=head need=10 free=3 waiting=2 running=2 end=big-2:length
1046..1090ms iter big-1 head:320 short:16 evict=big-2:6,-:1
1091ms    x2 9ms iter big-1 head short end=short:length
1109ms    x1 9ms iter big-1 head end=head:length
1118ms    first short
1119ms    last short
1119ms    last head end=disconnect
590..1121ms client short first=1119ms class=chat
1120ms    x5 9ms iter big-1:4 draft=big-1:3:1
1170ms    http late
1170ms    submit late prompt=16
1170ms    arrive late
`

func crowdBook(t testing.TB) *ledger.Book {
	t.Helper()
	run, err := scenario.Parse(crowd)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	b.Gaps = append(b.Gaps, ledger.Gap{Producer: "ring engine-scheduler", From: 7, To: 9, Count: 3, At: scenario.Epoch, Why: "overrun: the reader was away", Remedy: "give the ring more room"})
	b.Devices = append(b.Devices, &ledger.Device{ID: ledger.DeviceID{Host: "node-a", UUID: "GPU-11111111-2222-3333-4444-555555555555"}, Name: "NVIDIA H100 80GB HBM3", PCI: "00000000:1B:00.0", Driver: "580.65.06", Through: "nvml",
		Every: time.Second, First: scenario.Epoch, At: scenario.Epoch + 1e9, Samples: 2, State: ledger.DeviceAnswers, Since: scenario.Epoch,
		Signals: map[string]*ledger.DeviceSignal{"hw.gpu.utilization": {At: scenario.Epoch + 1e9, Value: 0.97, Over: 166667 * time.Microsecond, Least: 0.9, Most: 0.97, Sum: 1.87, Count: 2},
			"gpu.clock_events": {At: scenario.Epoch + 1e9, Value: 32, Most: 32, Sum: 32, Count: 2}, "gpu.memory_temperature": {Absent: "not supported by the device"}},
		Held:   []ledger.DeviceHold{{Bit: 32, Since: scenario.Epoch + 1e9, Samples: 1, Last: scenario.Epoch + 1e9}},
		Errors: []ledger.DeviceError{{XID: 94, At: scenario.Epoch + 5e8}}, Processes: []ledger.DeviceProcess{{PID: 4242, Busy: 0.6, Used: 73 << 30, Known: true, Instance: -1}}})
	return b
}

var demo = sync.OnceValue(func() *ledger.Book {
	b, err := os.ReadFile("../cli/demo.wlc")
	if err != nil {
		panic(err)
	}
	a := ingest.New()
	if err := ingest.ReadCapture(bytes.NewReader(b), "demo.wlc", a); err != nil {
		panic(err)
	}
	return a.Book()
})

// live is a recording that also has events, takes imports and keeps a store.
type live struct {
	api.Service
	feed *api.Feed
}

func (l *live) Watch(ctx context.Context, since string) (<-chan api.Event, error) {
	return l.feed.Watch(ctx, since)
}

func (l *live) Spans(ctx context.Context, q api.SpansQuery) (*api.Spans, error) {
	return l.Service.(api.Spanner).Spans(ctx, q)
}

func (l *live) Import(_ context.Context, q api.ImportQuery, r io.Reader) (*api.ImportResult, error) {
	n, err := io.Copy(io.Discard, r)
	return &api.ImportResult{Name: q.Name, Bytes: n, Sources: 1, Frames: 7, New: 7}, err
}

// Targets implements [api.Scraper].
func (l *live) Targets(context.Context) (*api.TargetList, error) {
	labels := map[string]string{"job": "vllm", "instance": "10.0.0.7:8000"}
	return &api.TargetList{
		Targets: []api.Target{{Job: "vllm", URL: "http://10.0.0.7:8000/metrics", Labels: labels, Health: api.TargetDown, LastAt: scenario.Epoch, TookNs: 2_000_000, Interval: 15e9, Error: "nobody answers there: connection refused", Remedy: "is it running, and are address and port right, as seen from here?"},
			{Job: "vllm", URL: "http://10.0.0.8:8000/metrics", Labels: labels, Health: api.TargetUp, LastAt: scenario.Epoch, TookNs: 7_000_000, Interval: 15e9, Samples: 512, LeftOut: 3, Problems: []string{"line 18: -nan: not a number"}, Discovered: map[string]string{"__address__": "10.0.0.8:8000"}}},
		NotTaken: []api.NotTaken{{Job: "job pods", What: "kubernetes_sd_configs", Remedy: "list its targets under static_configs"}}}, nil
}

// Signals implements [api.Observer].
func (l *live) Signals(context.Context) (*api.SignalList, error) {
	const every = 15e9
	return &api.SignalList{Now: scenario.Epoch + every, Window: 600e9, Inventory: look.Inventory{
		Arrives: []look.Arrival{{Signal: "request.running", Path: "request", Unit: "{request}", Producer: "vllm", Native: "vllm:num_requests_running", Targets: 1, Series: 1, Newest: scenario.Epoch, Every: every, Came: []string{"scrape"}}},
		Missing: []look.Missing{{Signal: "request.queue_time", Producer: "vllm", Native: "vllm:request_queue_time_seconds", Question: "How long do requests wait to be scheduled first?"}},
		Unused:  []look.Unused{{Family: "python_gc_collections_total", Targets: 1, Series: 3, PerSecond: 0.2, BytesPerDay: 34_560, Came: []string{"scrape"}}},
		Facts: []look.Fact{{ID: "objective-unseen", Weight: look.Wrong, Path: "token", About: "vLLM", Text: "objectives.ttft 300ms cannot be seen in vllm:time_to_first_token_seconds of 10.0.0.8:8000: it lies between two of its buckets, 250 ms and 500 ms. Which share keeps it is not known from there.",
			Do: "Set objectives.ttft: 250ms or 500ms; or put the probe into the engine: whylate's own histogram has each objective as a bound."}}},
		Records: []api.Records{{Came: "probe", Name: "test/0@01234567", Count: 118, Newest: scenario.Epoch}},
		Refused: []api.RefusedSeries{{Store: "detail", Metric: "app_requests_total", Label: "request_id", Why: "is no label that is kept", Count: 40, Example: "aaa-9999", Last: scenario.Epoch}}}, nil
}

// Identities implements [api.Observer].
func (l *live) Identities(context.Context) (*api.Identities, error) {
	host := identity.Said{Attr: identity.Host, Value: "gpu-7", From: "hello: host"}
	j := identity.Join([]identity.Thing{{Kind: identity.Engine, Source: "probe", Name: "chat/0", Says: []identity.Said{host}},
		{Kind: identity.Engine, Source: "metrics", Name: "vLLM at 10.0.0.8:8000", Target: "10.0.0.8:8000", Says: []identity.Said{{Attr: identity.Host, Value: "gpu-7", From: "label node"}}},
		{Kind: identity.Gateway, Source: "traces", Name: "gateway", Says: []identity.Said{}}})
	return &api.Identities{Joined: *j, Clocks: []api.ClockShift{{Clock: "host gpu-7", From: "host edge", Low: 48e6, High: 52e6, Pairs: 12, Since: scenario.Epoch}}}, nil
}

// aPeriod is what a store may list.
var aPeriod = store.PeriodInfo{ID: "20270115T080000-5f0c1a2b-1-118", Engine: ledger.EngineID{Deployment: "test", Replica: "test", Incarnation: "0123456789abcdef"},
	First: 1, Last: 118, From: scenario.Epoch, To: scenario.Epoch + 1e9, Rows: map[string]int64{"iterations": 118}, Bytes: map[string]int64{"iterations": 2_006}, Detail: true, Format: 1, Requests: 4}

func (l *live) StoreState(context.Context) (*api.StoreState, error) {
	return &api.StoreState{Periods: []store.PeriodInfo{aPeriod}, Log: api.StoreLog{Files: 1, Bytes: 65_536, First: store.Position{Segment: 3}, Last: store.Position{Segment: 3, Offset: 65_536}}}, nil
}

func (l *live) VerifyStore(context.Context) (*api.StoreVerified, error) {
	damaged := aPeriod
	damaged.Damaged = "stints.parquet: its checksum is not the one that was written"
	return &api.StoreVerified{Periods: []store.PeriodInfo{aPeriod, damaged}, Damaged: 1}, nil
}

func (l *live) CompactStore(context.Context, api.CompactQuery) (*api.StoreCompacted, error) {
	return &api.StoreCompacted{Fewer: 7}, nil
}

func (l *live) ExportStore(_ context.Context, put store.Put) error {
	return put(store.TablesFile, 5, strings.NewReader("# The"))
}

func newLive(b *ledger.Book) *live {
	return &live{server.NewLocal(b), api.NewFeed("run", 100, 10)}
}

var quiet = slog.New(slog.DiscardHandler)

// serve starts a server of svc and returns it with its address.
func serve(t testing.TB, svc api.Service, o web.Options) *httptest.Server {
	t.Helper()
	if o.Log == nil {
		o.Log = quiet
	}
	return newServer(t, web.New(svc, o))
}

// newServer serves h until the test ends.
func newServer(t testing.TB, h *web.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config = h.Server(nil)
	s.Start()
	t.Cleanup(func() {
		h.Close()
		s.Close()
	})
	return s
}

// fetch gets an address and returns the answer with its body read.
func fetch(t testing.TB, method, url string, edit func(*http.Request)) (*http.Response, []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(fmt.Errorf("%s %s: %w", method, url, err))
	}
	return resp, b
}
