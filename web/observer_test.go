package web_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// What arrives and who is one comes through HTTP as it was; a service that reads files refuses, and says whom to ask.
func TestWhatArrivesComesThrough(t *testing.T) {
	svc := newLive(crowdBook(t))
	c, err := client.New(serve(t, svc, web.Options{}).URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	want, _ := svc.Signals(ctx)
	if got, err := c.Signals(ctx); err != nil || cmp.Diff(want, got) != "" {
		t.Error(err, cmp.Diff(want, got))
	}
	who, _ := svc.Identities(ctx)
	if got, err := c.Identities(ctx); err != nil || cmp.Diff(who, got) != "" {
		t.Error(err, cmp.Diff(who, got))
	}
	if c, err = client.New(serve(t, server.NewLocal(crowdBook(t)), web.Options{}).URL, client.Options{}); err != nil {
		t.Fatal(err)
	}
	var not *api.Unsupported
	if _, err := c.Signals(ctx); !errors.As(err, &not) || not.Remedy == "" {
		t.Errorf("%v", err)
	}
	if _, err := c.Identities(ctx); !errors.As(err, &not) {
		t.Errorf("%v", err)
	}
}
