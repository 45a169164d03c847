package client

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
)

// silence is how long a stream may send nothing, not even a comment, before it counts as broken. The server comments every 15 s.
const silence = time.Minute

// Watch implements [api.Service]. A stream that breaks is opened again, after the last event that came, until the context ends or the
// server refuses; an event of the kind offline says so. What was missed meanwhile is told by the server as lost.
func (c *Client) Watch(ctx context.Context, since string) (<-chan api.Event, error) {
	body, err := c.open(ctx, since)
	if err != nil {
		return nil, err
	}
	out := make(chan api.Event)
	go func() {
		defer close(out)
		pause := time.Duration(0)
		for {
			if body != nil {
				last, err := events(ctx, body, out)
				if last != "" {
					since, pause = last, 0
				}
				if ctx.Err() != nil || !tell(ctx, out, c.offline(err)) {
					return
				}
			}
			pause = min(max(2*pause, 500*time.Millisecond), 15*time.Second)
			if c.opts.Wait(ctx, pause) != nil {
				return
			}
			if body, err = c.open(ctx, since); err != nil {
				body = nil
				if ctx.Err() != nil || !tell(ctx, out, c.offline(err)) {
					return
				}
			}
		}
	}()
	return out, nil
}

func (c *Client) offline(err error) api.Event {
	if err == nil {
		err = io.EOF
	}
	return api.Event{Kind: api.EventOffline, Text: fmt.Sprintf("the event stream of %s broke (%v); trying again", c.Address(), err)}
}

func tell(ctx context.Context, out chan<- api.Event, e api.Event) bool {
	select {
	case out <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// stream is the body of an open event stream. Closing it ends reading.
type stream struct {
	io.Reader
	close func()
}

// open opens an event stream after the event since.
func (c *Client) open(ctx context.Context, since string) (*stream, error) {
	v := url.Values{}
	put(v, "since", since)
	address := c.address("events", v)
	inner, cancel := context.WithCancel(ctx)
	r, err := c.request(inner, http.MethodGet, address, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header.Set("Accept", "text/event-stream")
	late := time.AfterFunc(c.opts.Timeout, cancel)
	resp, err := c.http.Do(r)
	if !late.Stop() {
		if err == nil {
			resp.Body.Close()
		}
		cancel()
		return nil, &Timeout{URL: address, After: c.opts.Timeout}
	}
	if err != nil {
		cancel()
		return nil, c.failed(ctx, address, err)
	}
	if err := refused(address, resp); err != nil {
		resp.Body.Close()
		cancel()
		return nil, err
	}
	quiet := time.AfterFunc(silence, cancel)
	return &stream{&noted{resp.Body, func() { quiet.Reset(silence) }}, func() {
		quiet.Stop()
		resp.Body.Close()
		cancel()
	}}, nil
}

// noted tells of each piece that is read.
type noted struct {
	r    io.Reader
	note func()
}

func (n *noted) Read(b []byte) (int, error) {
	k, err := n.r.Read(b)
	if k > 0 {
		n.note()
	}
	return k, err
}

// longestLine is the longest line of a stream that is read.
const longestLine = 1 << 20

// events sends the events of a stream until it ends, and returns the id of the last one.
func events(ctx context.Context, s *stream, out chan<- api.Event) (last string, err error) {
	defer s.close()
	lines := bufio.NewScanner(s)
	lines.Buffer(nil, longestLine)
	var data []string
	for lines.Scan() {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			if len(data) == 0 {
				continue
			}
			var e api.Event
			if err := json.Unmarshal([]byte(strings.Join(data, "\n")), &e); err != nil {
				return last, fmt.Errorf("an event cannot be read: %w", err)
			}
			data = nil
			if !tell(ctx, out, e) {
				return last, ctx.Err()
			}
			if e.ID != "" {
				last = e.ID
			}
			continue
		}
		if text, ok := strings.CutPrefix(line, "data:"); ok { // id and kind stand in the data too
			data = append(data, strings.TrimPrefix(text, " "))
		}
	}
	return last, lines.Err()
}
