package cli

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/web"
)

// both is the built-in demo asked in this process and over HTTP.
func both(t *testing.T) (local, remote api.Service) {
	t.Helper()
	e := &env{in: bytes.NewReader(nil), out: io.Discard, err: io.Discard}
	local, err := (&source{e: e, from: []string{demoName}}).open()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(web.New(local, web.Options{Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(srv.Close)
	remote, err = client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return local, remote
}

// same asks both, and compares what the command line prints, as a table and as JSON.
func same[A any](t *testing.T, what string, local, remote api.Service, ask func(api.Service) (A, error), show func(*env, A)) A {
	t.Helper()
	var texts, jsons [2]string
	var answers [2]A
	for i, svc := range []api.Service{local, remote} {
		a, err := ask(svc)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		answers[i] = a
		var b bytes.Buffer
		e := &env{out: &b}
		show(e, a)
		texts[i] = b.String()
		b.Reset()
		if err := (&output{format: "json"}).print(e, a, nil); err != nil {
			t.Fatal(err)
		}
		jsons[i] = b.String()
	}
	if d := cmp.Diff(texts[0], texts[1]); d != "" {
		t.Errorf("%s prints otherwise over HTTP (-local +remote):\n%s", what, d)
	}
	if d := cmp.Diff(jsons[0], jsons[1]); d != "" {
		t.Errorf("%s is other JSON over HTTP (-local +remote):\n%s", what, d)
	}
	return answers[0]
}

// Every answer on the built-in demo is the same, byte by byte, whether a file is read or a server asked.
func TestRemoteAnswersAreTheSame(t *testing.T) {
	local, remote := both(t)
	ctx := context.Background()
	list := same(t, "requests", local, remote, func(s api.Service) (*api.RequestList, error) { return s.Requests(ctx, api.RequestsQuery{}) },
		func(e *env, l *api.RequestList) { e.printRequests(l, "", false) })
	if len(list.Requests) < 20 {
		t.Fatalf("the demo has only %d requests", len(list.Requests))
	}
	middle := time.Unix(0, list.Requests[len(list.Requests)/2].Received)
	for _, sort := range query.Keys() {
		for _, q := range []api.RequestsQuery{{Sort: sort, Limit: 7}, {Sort: sort, At: middle}, {Sort: sort, Over: 2 * time.Second}, {Sort: sort, From: middle, Limit: 3}, {Sort: sort, To: middle}, {Sort: sort, Class: "steady"}} {
			same(t, "requests by "+sort, local, remote, func(s api.Service) (*api.RequestList, error) { return s.Requests(ctx, q) },
				func(e *env, l *api.RequestList) { e.printRequests(l, sort, false) })
		}
		same(t, "the worst by "+sort, local, remote, func(s api.Service) (*diagnose.Explanation, error) {
			return s.Explain(ctx, api.ExplainQuery{RequestsQuery: api.RequestsQuery{Sort: sort}})
		}, (*env).printExplanation)
	}
	for _, r := range list.Requests {
		same(t, "explain "+r.Name, local, remote, func(s api.Service) (*diagnose.Explanation, error) {
			return s.Explain(ctx, api.ExplainQuery{ID: r.Name})
		}, (*env).printExplanation)
		same(t, "life of "+r.Name, local, remote, func(s api.Service) (*api.IterationList, error) {
			return s.Iterations(ctx, api.IterationsQuery{Request: r.Name, Limit: 40})
		}, (*env).printIterations)
	}
	its := same(t, "iterations", local, remote, func(s api.Service) (*api.IterationList, error) { return s.Iterations(ctx, api.IterationsQuery{}) }, (*env).printIterations)
	for i := 0; i < len(its.Iterations); i += 37 {
		n := its.Iterations[i].Number
		same(t, "iteration", local, remote, func(s api.Service) (*api.IterationDetail, error) {
			return s.Iteration(ctx, api.IterationQuery{Number: n})
		}, (*env).printIteration)
	}
	same(t, "odd", local, remote, func(s api.Service) (*api.OddList, error) { return s.Odd(ctx) }, (*env).printOdd)
	same(t, "overview", local, remote, func(s api.Service) (*api.Overview, error) { return s.Overview(ctx) }, func(*env, *api.Overview) {})
	same(t, "engines", local, remote, func(s api.Service) (*api.EngineList, error) { return s.Engines(ctx) }, func(*env, *api.EngineList) {})
	same(t, "devices", local, remote, func(s api.Service) (*api.DeviceList, error) { return s.Devices(ctx) }, (*env).printDevices)
	same(t, "changes", local, remote, func(s api.Service) (*api.ChangeList, error) { return s.Changes(ctx, api.ChangesQuery{}) }, (*env).printChanges)
}

// A question that is refused ends the command with the same words and the same exit status.
func TestRemoteRefusalsAreTheSame(t *testing.T) {
	local, remote := both(t)
	ctx := context.Background()
	for name, c := range map[string]struct {
		ask    func(api.Service) error
		status int
	}{
		"no such request": {func(s api.Service) error {
			_, err := s.Explain(ctx, api.ExplainQuery{ID: "no such id / ../ %2e?#"})
			return err
		}, ExitNotFound},
		"dots":             {func(s api.Service) error { _, err := s.Explain(ctx, api.ExplainQuery{ID: ".."}); return err }, ExitNotFound},
		"a slash":          {func(s api.Service) error { _, err := s.Explain(ctx, api.ExplainQuery{ID: "/"}); return err }, ExitNotFound},
		"several requests": {func(s api.Service) error { _, err := s.Explain(ctx, api.ExplainQuery{ID: "grow"}); return err }, ExitNotFound},
		"very many":        {func(s api.Service) error { _, err := s.Explain(ctx, api.ExplainQuery{ID: "c"}); return err }, ExitNotFound},
		"wrong sort":       {func(s api.Service) error { _, err := s.Requests(ctx, api.RequestsQuery{Sort: "beauty"}); return err }, ExitUsage},
		"wrong worst": {func(s api.Service) error {
			_, err := s.Explain(ctx, api.ExplainQuery{RequestsQuery: api.RequestsQuery{Sort: "beauty"}})
			return err
		}, ExitUsage},
		"a tenant's name": {func(s api.Service) error { _, err := s.Requests(ctx, api.RequestsQuery{Tenant: "acme"}); return err }, ExitUsage},
		"a route's name": {func(s api.Service) error {
			_, err := s.Explain(ctx, api.ExplainQuery{RequestsQuery: api.RequestsQuery{Route: "/v1"}})
			return err
		}, ExitUsage},
		"wrong page": {func(s api.Service) error { _, err := s.Requests(ctx, api.RequestsQuery{Page: "x"}); return err }, ExitUsage},
		"nobody matches": {func(s api.Service) error {
			_, err := s.Explain(ctx, api.ExplainQuery{RequestsQuery: api.RequestsQuery{Class: "none"}})
			return err
		}, ExitNotFound},
		"no such engine": {func(s api.Service) error {
			_, err := s.Iterations(ctx, api.IterationsQuery{Engine: "other"})
			return err
		}, ExitUsage},
		"no such iteration": {func(s api.Service) error { _, err := s.Iteration(ctx, api.IterationQuery{Number: 1 << 60}); return err }, ExitUsage},
		"nothing live":      {func(s api.Service) error { _, err := s.Watch(ctx, ""); return err }, ExitFailed},
	} {
		l, r := c.ask(local), c.ask(remote)
		if l == nil || r == nil || l.Error() != r.Error() {
			t.Errorf("%s: local: %v\nremote: %v", name, l, r)
			continue
		}
		if status(l) != c.status || status(r) != c.status {
			t.Errorf("%s: exit %d from a file, %d over HTTP, want %d", name, status(l), status(r), c.status)
		}
	}
}
