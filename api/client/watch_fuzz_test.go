package client

import (
	"context"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
)

// Whatever a stream holds, reading it ends, and gives only what a blank line completed.
func FuzzEvents(f *testing.F) {
	f.Add("retry: 2000\n\nid: run:1\nevent: gap\ndata: {\"id\":\"run:1\",\"kind\":\"gap\"}\n\n: quiet\n\ndata: {}\n")
	f.Add("data: {\r\ndata: \"id\": \"x\"}\r\n\r\n")
	f.Add("data:nothing\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		out := make(chan api.Event, len(text)+1)
		closed := false
		last, _ := events(ctx, &stream{strings.NewReader(text), func() { closed = true }}, out)
		close(out)
		want := ""
		for e := range out {
			if e.ID != "" {
				want = e.ID
			}
		}
		if last != want || !closed {
			t.Errorf("the last id is %q, want %q; closed %v", last, want, closed)
		}
	})
}
