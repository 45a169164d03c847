package web_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/web"
)

// watch opens an event stream and returns its lines.
func watch(t *testing.T, address string, edit func(*http.Request)) (*http.Response, *bufio.Scanner) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	return resp, lines
}

// until reads lines up to one that begins so.
func until(t *testing.T, lines *bufio.Scanner, begins string) string {
	t.Helper()
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), begins) {
			return lines.Text()
		}
	}
	t.Fatalf("the stream ended before a line %q: %v", begins, lines.Err())
	return ""
}

func TestEventsAreStreamedAndResumed(t *testing.T) {
	l := newLive(crowdBook(t))
	srv := serve(t, l, web.Options{Heartbeat: 5 * time.Millisecond})
	resp, lines := watch(t, srv.URL+"/api/v1/events", nil)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	until(t, lines, "retry: ")
	until(t, lines, ": quiet") // nothing happens, and the stream says that it lives
	l.feed.Publish(api.Event{Kind: api.EventOdd, Text: "one\ntwo", Iteration: 7})
	id := strings.TrimPrefix(until(t, lines, "id: "), "id: ")
	if kind := until(t, lines, "event: "); kind != "event: odd" {
		t.Errorf("got %s", kind)
	}
	if data := until(t, lines, "data: "); !strings.Contains(data, `"text":"one\ntwo"`) || !strings.Contains(data, `"iteration":7`) {
		t.Errorf("got %s", data)
	}
	l.feed.Publish(api.Event{Kind: api.EventGap, Text: "missed"})
	for _, how := range []func() *bufio.Scanner{
		func() *bufio.Scanner {
			_, lines := watch(t, srv.URL+"/api/v1/events", func(r *http.Request) { r.Header.Set("Last-Event-ID", id) })
			return lines
		},
		func() *bufio.Scanner { _, lines := watch(t, srv.URL+"/api/v1/events?since="+id, nil); return lines },
	} {
		if data := until(t, how(), "data: "); !strings.Contains(data, "missed") {
			t.Errorf("resumed with %s", data)
		}
	}
	if resp, body := fetch(t, "GET", srv.URL+"/api/v1/events", func(r *http.Request) { r.Header.Set("Last-Event-ID", "no id of ours") }); resp.StatusCode != 400 {
		t.Errorf("a wrong id: %s %s", resp.Status, body)
	}
}

func TestARecordingHasNoEvents(t *testing.T) {
	srv := serve(t, server.NewLocal(crowdBook(t)), web.Options{})
	if resp, body := fetch(t, "GET", srv.URL+"/api/v1/events", nil); resp.StatusCode != 501 || !strings.Contains(string(body), "whylate serve") {
		t.Errorf("%s %s", resp.Status, body)
	}
}

// A watcher that takes nothing is let go; the others, and whoever publishes, do not notice.
func TestASlowWatcherHoldsUpNobody(t *testing.T) {
	l := newLive(crowdBook(t))
	srv := serve(t, l, web.Options{WriteTimeout: time.Second})
	_, slow := conversation(t, srv.URL, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n") // and never reads
	_ = slow
	_, lines := watch(t, srv.URL+"/api/v1/events", nil)
	until(t, lines, "retry: ")
	for l.feed.Watchers() < 2 {
		runtime.Gosched()
	}
	last := make(chan error, 1)
	go func() {
		for lines.Scan() {
			if strings.Contains(lines.Text(), "the last") {
				last <- nil
				return
			}
		}
		last <- fmt.Errorf("the stream ended: %w", cmp.Or(lines.Err(), io.EOF))
	}()
	text := strings.Repeat("x", 50_000)
	for l.feed.Watchers() > 1 { // until the slow one's connection is full and its time is over
		l.feed.Publish(api.Event{Kind: api.EventGap, Text: text})
		runtime.Gosched()
	}
	l.feed.Publish(api.Event{Kind: api.EventGap, Text: "the last"})
	if err := <-last; err != nil {
		t.Errorf("the fast watcher did not see the last event: %v", err)
	}
}

// Watchers that hang up leave nothing behind.
func TestWatchersThatHangUpAreForgotten(t *testing.T) {
	l := newLive(crowdBook(t))
	srv := serve(t, l, web.Options{Streams: 3})
	for range 3 {
		var open []net.Conn
		for len(open) < 3 {
			r, c := conversation(t, srv.URL, "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
			switch line := statusLine(r); {
			case strings.Contains(line, "200"):
				open = append(open, c)
			case strings.Contains(line, "429"): // one of before has been forgotten, and is about to give its place back
				c.Close()
			default:
				t.Fatalf("answered %q", line)
			}
		}
		if resp, body := fetch(t, "GET", srv.URL+"/api/v1/events", nil); resp.StatusCode != 429 {
			t.Errorf("a fourth stream of three: %s %s", resp.Status, body)
		}
		for _, c := range open {
			c.Close()
		}
		for l.feed.Watchers() > 0 {
			runtime.Gosched()
		}
	}
}

// Shutting down ends the streams, and does not wait for watchers to go.
func TestShutdownEndsStreams(t *testing.T) {
	l := newLive(crowdBook(t))
	srv := serve(t, l, web.Options{})
	_, lines := watch(t, srv.URL+"/api/v1/events", nil)
	until(t, lines, "retry: ")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Config.Shutdown(ctx); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil && err != io.ErrUnexpectedEOF {
		t.Errorf("the stream broke instead of ending: %v", err)
	}
}

// The client's own watching: events arrive, a broken stream is opened again where it was, and what was missed is told.
func TestTheClientWatchesOn(t *testing.T) {
	l := newLive(crowdBook(t))
	h := web.New(l, web.Options{Log: quiet})
	streams := make(chan func(), 10) // ends one stream each
	srv := serve(t, l, web.Options{})
	srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		streams <- cancel
		h.ServeHTTP(w, r.WithContext(ctx))
	})
	waits := make(chan time.Duration, 100)
	c, err := client.New(srv.URL, client.Options{Wait: func(ctx context.Context, d time.Duration) error {
		waits <- d
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	events, err := c.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	cut := <-streams
	l.feed.Publish(api.Event{Kind: api.EventOdd, Text: "one"})
	if e := <-events; e.Text != "one" || e.Kind != api.EventOdd {
		t.Fatalf("%+v", e)
	}
	cut()
	if e := <-events; e.Kind != api.EventOffline || !strings.Contains(e.Text, srv.URL) {
		t.Errorf("after the stream broke: %+v", e)
	}
	if d := <-waits; d <= 0 || d > time.Second {
		t.Errorf("waited %s", d)
	}
	<-streams
	l.feed.Publish(api.Event{Kind: api.EventGap, Text: "two"})
	if e := <-events; e.Text != "two" {
		t.Errorf("%+v", e)
	}
	cancel()
	for range events {
	}
}
