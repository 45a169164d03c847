package web_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/web"
)

// Over TLS (and HTTP/2) everything is as without: answers, events, imports. A server that nobody vouches for is not asked.
func TestTLS(t *testing.T) {
	l := newLive(crowdBook(t))
	h := web.New(l, web.Options{Log: quiet, Tokens: tokens(t)})
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = h.Server(nil)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(func() {
		h.Close()
		srv.Close()
	})
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	c, err := client.New(srv.URL, client.Options{Token: operator, TLS: &tls.Config{RootCAs: pool}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := c.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	l.feed.Publish(api.Event{Kind: api.EventGap, Text: "x"})
	if e := <-events; e.Text != "x" {
		t.Errorf("%+v", e)
	}
	if _, err := c.Explain(ctx, api.ExplainQuery{ID: "short"}); err != nil {
		t.Error(err)
	}
	if r, err := c.Import(ctx, api.ImportQuery{Name: "x"}, strings.NewReader("abc")); err != nil || r.Bytes != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	resp, err := srv.Client().Get(srv.URL + "/healthz")
	if err != nil || resp.ProtoMajor != 2 || resp.Header.Get("Strict-Transport-Security") == "" {
		t.Errorf("%v %v", resp, err)
	}
	stranger, err := client.New(srv.URL, client.Options{Token: operator})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Engines(ctx); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate of nobody: %v", err)
	}
}
