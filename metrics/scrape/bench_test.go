package scrape

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// BenchmarkHundredTargets scrapes a hundred targets with a real vLLM's page, each of their own name, into a TSDB, every second instead of every
// 15 to be done sooner, and says what a page costs the process and what share of one core that is at 15 s. Serving the pages is in it.
func BenchmarkHundredTargets(b *testing.B) {
	page, err := os.ReadFile("../../look/testdata/vllm-0.32.0.prom")
	if err != nil {
		b.Fatal(err)
	}
	const targets, rounds = 100, 10
	pages := make(chan struct{}, targets*rounds)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(page)
		select {
		case pages <- struct{}{}:
		default:
		}
	}))
	defer srv.Close()
	var list []string
	for i := range targets {
		list = append(list, fmt.Sprintf("{targets: [%q], labels: {instance: e%d}}", strings.TrimPrefix(srv.URL, "http://"), i))
	}
	for b.Loop() {
		k := open(b)
		s, err := New(Settings{Interval: time.Second, Jobs: "[{job_name: vllm, static_configs: [" + strings.Join(list, ", ") + "]}]"}, k, nil, slog.New(slog.DiscardHandler), Options{Settle: 5 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		wait := func(n int) {
			for range n {
				<-pages
			}
		}
		wait(2 * targets) // the first time each series is made
		before := cpu(b)
		wait((rounds - 2) * targets)
		perPage := (cpu(b) - before) / ((rounds - 2) * targets)
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(perPage.Nanoseconds())/1e3, "µs/page")
		b.ReportMetric(100*perPage.Seconds()*targets/15, "%")
	}
}

// cpu is the processor time of this process so far.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
