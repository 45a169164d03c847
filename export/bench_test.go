package export

import (
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
)

// processor is the time that the process has had a processor: what one core would take, whoever else uses the machine.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Requests of the demo as spans: chosen alone, made, and made and sent to a receiver on the same host that throws them away, whose time is in it.
func BenchmarkExport(b *testing.B) {
	l := ledgers(b)["demo"]
	var over []*ledger.Request
	for _, r := range l.Book.Requests {
		if l.Account(r).State == account.Finished {
			over = append(over, r)
		}
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	defer receiver.Close()
	report := func(b *testing.B, began time.Duration, spans int) {
		took := processor(b) - began
		b.ReportMetric(float64(took.Nanoseconds())/float64(b.N*len(over)), "ns/request")
		if spans > 0 {
			b.ReportMetric(float64(spans)/took.Seconds(), "spans/core-s")
		}
	}
	b.Run("passed-over", func(b *testing.B) {
		e := New(Settings{})
		began := processor(b)
		for b.Loop() {
			for _, r := range over {
				e.Offer(l, r, 1)
			}
		}
		report(b, began, 0)
	})
	b.Run("explained", func(b *testing.B) {
		began := processor(b)
		for b.Loop() {
			for _, r := range over {
				diagnose.Explain(l, r)
			}
		}
		report(b, began, 0)
	})
	b.Run("built", func(b *testing.B) {
		var xs []*diagnose.Explanation
		for _, r := range over {
			xs = append(xs, diagnose.Explain(l, r))
		}
		began, spans := processor(b), 0
		for b.Loop() {
			for _, x := range xs {
				t, err := Spans(x, Options{IDs: true})
				if err != nil {
					b.Fatal(err)
				}
				spans += len(t.Spans)
			}
		}
		report(b, began, spans)
	})
	for _, compression := range []string{"none", "gzip"} {
		b.Run("sent-"+compression, func(b *testing.B) {
			c, err := Dial(b.Context(), Target{Endpoint: receiver.URL, Compression: compression})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			e := New(Settings{Options: Options{IDs: true}, Sampling: Sampling{OneIn: 1}, Send: c.Send})
			began := processor(b)
			for b.Loop() {
				for _, r := range over {
					e.Offer(l, r, 1)
				}
				e.Flush(b.Context())
			}
			s := e.Stats()
			if int(s.Sent) != b.N*len(over) {
				b.Fatalf("%+v", s)
			}
			report(b, began, int(s.SentSpans))
		})
	}
}
