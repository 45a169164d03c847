package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// tenThousand is a book of so many requests that only a front end saw.
func tenThousand() *ledger.Book {
	b := &ledger.Book{Now: 1_800_000_100_000_000_000}
	for i := range int64(10_000) {
		at := 1_800_000_000_000_000_000 + i*1_000_000
		b.Requests = append(b.Requests, &ledger.Request{RequestID: fmt.Sprintf("request-%d", i), TraceID: fmt.Sprintf("%032x", i), Class: "chat",
			Received: at, FirstByte: at + 40_000_000 + i*37%1_000_000, LastByte: at + 900_000_000 + i*7919%5_000_000, Status: 200, End: ledger.EndComplete})
	}
	return b
}

// How long one page of 10⁴ requests takes: in the handler alone, and over a connection with the client's decoding.
func BenchmarkRequestPage(b *testing.B) {
	svc := server.NewLocal(tenThousand())
	h := web.New(svc, web.Options{Log: quiet})
	for _, rows := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("handler-%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", fmt.Sprintf("/api/v1/requests?sort=e2e&limit=%d", rows), nil)
				r.Host = "localhost"
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
				b.ReportMetric(float64(w.Body.Len()), "bytes")
			}
		})
		b.Run(fmt.Sprintf("client-%d", rows), func(b *testing.B) {
			srv := serve(b, svc, web.Options{})
			c, err := client.New(srv.URL, client.Options{})
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				l, err := c.Requests(context.Background(), api.RequestsQuery{Sort: "e2e", Limit: rows})
				if err != nil || len(l.Requests) != rows {
					b.Fatal(err)
				}
			}
		})
	}
}
