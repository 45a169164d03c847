package web_test

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/web"
)

// slow is a store whose verification lasts until it is told to end, and whose export is what it says.
type slow struct {
	*live
	begun chan struct{}
	ended chan error
	give  func(context.Context, store.Put) error
}

func (s *slow) VerifyStore(ctx context.Context) (*api.StoreVerified, error) {
	s.begun <- struct{}{}
	<-ctx.Done()
	s.ended <- context.Cause(ctx)
	return nil, ctx.Err()
}

func (s *slow) ExportStore(ctx context.Context, put store.Put) error { return s.give(ctx, put) }

func newSlow(t *testing.T) *slow {
	return &slow{live: newLive(crowdBook(t)), begun: make(chan struct{}), ended: make(chan error, 100)}
}

// Who hangs up ends what he asked for; so does a server that stops. More at once than is allowed are told to come later.
func TestCareEndsWithWhoAsked(t *testing.T) {
	s := newSlow(t)
	h := web.New(s, web.Options{Log: quiet})
	srv := newServer(t, h)
	c, err := client.New(srv.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 10)
	for range web.Cares {
		go func() { _, err := c.VerifyStore(ctx); failed <- err }()
		<-s.begun
	}
	if _, err := c.VerifyStore(context.Background()); !errors.As(err, new(*api.Overloaded)) {
		t.Errorf("one more: %v", err)
	}
	cancel()
	for range web.Cares {
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-s.ended
	}
	for { // the places are free again
		go func() { _, err := c.VerifyStore(context.Background()); failed <- err }()
		select {
		case <-s.begun:
		case err := <-failed:
			if !errors.As(err, new(*api.Overloaded)) {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	h.Close()
	if err := <-failed; !errors.As(err, new(*api.Unavailable)) || !strings.Contains(err.Error(), "stopping") {
		t.Errorf("the server stops: %v", err)
	}
}

func TestStoreNeedsAStoreAndTheRole(t *testing.T) {
	for _, c := range []struct {
		svc    api.Service
		token  string
		status int
	}{{newLive(crowdBook(t)), operator, 200}, {newLive(crowdBook(t)), viewer, 403}, {server.NewLocal(crowdBook(t)), operator, 501}} {
		srv := serve(t, c.svc, web.Options{Tokens: tokens(t)})
		for _, ask := range []string{"POST /api/v1/store/verify", "POST /api/v1/store/compact?rows=5", "GET /api/v1/store/export", "HEAD /api/v1/store/export", "GET /api/v1/store"} {
			method, path, _ := strings.Cut(ask, " ")
			want := c.status
			if path == "/api/v1/store" && want == 403 {
				want = 200
			}
			resp, body := fetch(t, method, srv.URL+path, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+c.token) })
			if resp.StatusCode != want {
				t.Errorf("%s: %s %s, want %d", ask, resp.Status, body, want)
			}
		}
	}
}

// What goes wrong before the archive has begun is an ordinary error; between files it is told by the last one; within a file the answer
// is cut off, so that nobody takes it for whole.
func TestExportTellsItsEnd(t *testing.T) {
	wrong := &api.Damaged{What: "p2 is damaged"}
	two := func(put store.Put) error {
		return errors.Join(put(store.TablesFile, 2, strings.NewReader("# ")), put("requests/p1.parquet", 4, strings.NewReader("rows")))
	}
	for name, c := range map[string]struct {
		give func(context.Context, store.Put) error
		want string
	}{
		"whole":   {func(_ context.Context, put store.Put) error { return two(put) }, `200 tables.md requests/p1.parquet export.json {"files":2,"bytes":6}`},
		"nothing": {func(context.Context, store.Put) error { return wrong }, "500"},
		"between": {func(_ context.Context, put store.Put) error { return errors.Join(two(put), wrong) }, `200 tables.md requests/p1.parquet export.json {"files":2,"bytes":6,"error":{"code":"damaged"`},
		"within a file": {func(_ context.Context, put store.Put) error {
			return put("requests/p1.parquet", 1<<20, strings.NewReader(strings.Repeat("rows", 50_000)))
		}, "200 requests/p1.parquet cut"},
	} {
		s := newSlow(t)
		s.give = c.give
		srv := serve(t, s, web.Options{})
		resp, err := http.Get(srv.URL + "/api/v1/store/export")
		if err != nil {
			t.Fatal(err)
		}
		got := resp.Status[:3]
		if resp.StatusCode == 200 {
			for a := tar.NewReader(resp.Body); ; {
				h, err := a.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					got += " cut"
					break
				}
				got += " " + h.Name
				if h.Name == api.ExportEndFile {
					var raw json.RawMessage
					if err := json.NewDecoder(a).Decode(&raw); err != nil {
						t.Error(err)
					}
					got += " " + string(raw)
				}
			}
		}
		resp.Body.Close()
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
