package server

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Every request is offered once when it is over, and not again by a run that comes after.
func TestOutletIsToldOnce(t *testing.T) {
	book, raw := demo(t)
	disk := vfs.NewMemory()
	told := map[string]int{}
	var ends []int64
	outlet := &Outlet{Offer: func(l *query.Ledger, r *ledger.Request, end int64) {
		told[r.Name()]++
		ends = append(ends, end)
		if a := l.Account(r); a.State != account.Finished && a.From != 0 {
			t.Errorf("%s is %s", r.Name(), a.State)
		}
	}}
	now := time.Unix(0, book.Newest).Add(time.Minute)
	run := func(want func(*ledger.Request) bool) {
		t.Helper()
		clear(told)
		s := start(t, disk, now)
		defer s.stop()
		o := offering{outlet: outlet}
		o.begin(s.Server)
		if len(o.done) == 0 {
			if _, err := s.Import(t.Context(), api.ImportQuery{Name: "demo"}, bytes.NewReader(raw)); err != nil {
				t.Fatal(err)
			}
		}
		o.offer(t.Context(), s.Server)
		o.offer(t.Context(), s.Server)
		defer s.hot.lock()()
		expected := 0
		for _, r := range s.hot.l.Book.Requests {
			if overAt(r, now.UnixNano()) != 0 && want(r) {
				expected++
				if told[r.Name()] != 1 {
					t.Errorf("%s was offered %d times", r.Name(), told[r.Name()])
				}
			}
		}
		if expected != len(told) {
			t.Errorf("%d were offered, want %d", len(told), expected)
		}
	}
	run(func(*ledger.Request) bool { return true })
	if len(told) < 200 {
		t.Fatalf("only %d requests are over", len(told))
	}
	slices.Sort(ends)
	outlet.After = ends[len(ends)/2]
	run(func(r *ledger.Request) bool { return endOf(r) > outlet.After })
}

// An outlet is served by a running server, too.
func TestOutletOfARunningServer(t *testing.T) {
	book, raw := demo(t)
	now := time.Unix(0, book.Newest).Add(time.Minute)
	offered := make(chan string, 1000)
	s := startWith(t, vfs.NewMemory(), Settings{Now: func() time.Time { return now }, Outlets: []*Outlet{{Offer: func(_ *query.Ledger, r *ledger.Request, _ int64) { offered <- r.Name() }}}})
	if _, err := s.Import(context.Background(), api.ImportQuery{Name: "demo"}, bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
	<-offered
	s.stop()
}
