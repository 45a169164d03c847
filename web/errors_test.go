package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/web"
)

// failing refuses every question with one error.
type failing struct {
	api.Service
	err error
}

func (f *failing) Requests(context.Context, api.RequestsQuery) (*api.RequestList, error) {
	return nil, f.err
}

func many(n int) (rs []*ledger.Request) {
	for i := range n {
		r := &ledger.Request{RequestID: fmt.Sprintf("r-%d", i)}
		switch i % 3 {
		case 1:
			r.TraceID = "4bf92f3577b34da6"
			r.Sequences = []*ledger.Sequence{{ID: "cmpl-x-0", External: "cmpl-x", Request: r}, {ID: "cmpl-x-1", External: "cmpl-x", Request: r}}
		case 2:
			r.ResponseID = "chatcmpl-7"
		}
		rs = append(rs, r)
	}
	return rs
}

// What a service says with an error, its client says with the same error: type, fields and text.
func TestErrorsComeBackAsThemselves(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		as     any // a pointer to the type, as errors.As takes it
		exact  bool
	}{
		{&query.NotFound{ID: "r-\x00\x1b[31m \"42\"", Count: 7}, 404, new(*query.NotFound), true},
		{&query.NotFound{ID: "", Count: 0}, 404, new(*query.NotFound), true},
		{&query.Ambiguous{ID: "r-", Matches: many(2)}, 409, new(*query.Ambiguous), false},
		{&query.Ambiguous{ID: "r-", Matches: many(10)}, 409, new(*query.Ambiguous), false},
		{&query.Ambiguous{ID: "r-", Matches: many(11)}, 409, new(*query.Ambiguous), false},
		{&query.Ambiguous{ID: "r-", Matches: many(3), More: 1_000_000}, 409, new(*query.Ambiguous), false},
		{&api.InvalidArgument{Argument: "sort", Value: "beauty", Problem: "choose one of ttft, tpot"}, 400, new(*api.InvalidArgument), true},
		{fmt.Errorf("period 7: %w", &api.InvalidArgument{Argument: "sort", Value: "beauty", Problem: "choose one of ttft, tpot"}), 400, new(*api.InvalidArgument), true},
		{&api.Overloaded{What: "64 questions are being answered already", After: 1500 * time.Millisecond}, 429, new(*api.Overloaded), true},
		{&api.Unavailable{What: "the log is being recovered", After: 3 * time.Second}, 503, new(*api.Unavailable), true},
		{&api.Unavailable{What: "the server is stopping"}, 503, new(*api.Unavailable), true},
		{&api.Unsupported{What: "period 9 has format 4", Remedy: "this version reads up to 3: update whylate"}, 501, new(*api.Unsupported), true},
		{&api.Damaged{What: "period 7 cannot be read", Remedy: "restore it"}, 500, new(*api.Damaged), true},
		{fmt.Errorf("explain r: %w", &api.Damaged{What: "period 7 cannot be read"}), 500, new(*api.Damaged), true},
		{&api.Unauthorised{What: "the server does not know this token", Remedy: "send another"}, 401, new(*api.Unauthorised), true},
		{&api.Forbidden{What: "not with this role"}, 403, new(*api.Forbidden), true},
		{errors.New("the disk is gone"), 500, new(*client.Refused), false},
		{fmt.Errorf("ask the store: %w", context.DeadlineExceeded), 504, new(*client.Refused), false},
	} {
		srv := serve(t, &failing{err: c.err}, web.Options{})
		remote, err := client.New(srv.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, got := remote.Requests(context.Background(), api.RequestsQuery{})
		if got == nil || got.Error() != c.err.Error() {
			t.Errorf("%T: says %q, over HTTP %q", c.err, c.err, got)
			continue
		}
		resp, body := fetch(t, "GET", srv.URL+"/api/v1/requests", nil)
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%v: %s %s", c.err, resp.Status, body)
		}
		if c.status == 429 && resp.Header.Get("Retry-After") != "2" {
			t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
		}
		if !errors.As(got, c.as) {
			t.Errorf("%T became %T", c.err, got)
			continue
		}
		if c.exact {
			want := reflect.New(reflect.TypeOf(c.as).Elem()).Interface()
			if !errors.As(c.err, want) || !reflect.DeepEqual(reflect.ValueOf(want).Elem().Interface(), reflect.ValueOf(c.as).Elem().Interface()) {
				t.Errorf("%#v came back as %#v", c.err, got)
			}
		}
	}
}

// A caller that goes away is nobody's error, but the log must say what it was.
func TestCancelledIsNoServerError(t *testing.T) {
	if status, p := web.ProblemOf(fmt.Errorf("x: %w", context.Canceled)); status != 499 || p.Code != api.CodeCancelled {
		t.Errorf("%d %v", status, p)
	}
	if status, _ := web.ProblemOf(&http.MaxBytesError{Limit: 3}); status != 413 {
		t.Errorf("%d", status)
	}
}
