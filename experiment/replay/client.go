package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/experiment"
)

// How the client treats a connection.
const (
	idleLimit   = 3 * time.Second // below the 5 s of uvicorn, which would otherwise close a connection as it is used again
	tailLimit   = time.Second     // how long the end of a body may take after [DONE] before the connection is given up
	tailBytes   = 64 << 10
	errorBytes  = 4 << 10 // how much of an error's body is read
	errorLength = 200     // bytes of a Result's Error
)

// Why the client ended an attempt.
var (
	errHungUp  = errors.New("the workload's client hangs up here")
	errTimeout = errors.New("no whole answer within the timeout")
)

// A job is one request, ready to be sent.
type job struct {
	index   int
	request *experiment.Request
	id      string
	body    []byte
	planned int64 // ns
}

// A client makes attempts over connections of its own.
type client struct {
	Options
	url       string
	transport *http.Transport
}

func newClient(o Options) *client {
	dial := o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	// No proxy of the environment, no compression, no HTTP/2: nothing between the engine and its client that batches or delays.
	transport := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     o.TLS.Clone(),
		Protocols:           new(http.Protocols),
		MaxIdleConnsPerHost: o.MaxInFlight,
		IdleConnTimeout:     idleLimit,
		DisableCompression:  true,
	}
	transport.Protocols.SetHTTP1(true)
	return &client{Options: o, url: o.endpoint(), transport: transport}
}

func (c *client) close() { c.transport.CloseIdleConnections() }

// attempt sends the job once and follows the answer to its end.
func (c *client) attempt(ctx context.Context, j *job, number int) Result {
	r := Result{
		Index: j.index, Attempt: number, Planned: j.planned, Sequences: j.request.Sequences(),
		PromptTokens: j.request.PromptTokens, RequestID: j.id, Class: j.request.Class,
		Traceparent: c.traceparent(j.request, j.index, number),
	}
	ctx, hangUp := context.WithCancelCause(ctx)
	defer hangUp(nil)
	var opened atomic.Bool
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(conn httptrace.GotConnInfo) { opened.Store(!conn.Reused) },
	}), http.MethodPost, c.url, bytes.NewReader(j.body))
	if err != nil {
		panic(fmt.Sprintf("BUG: request to %s: %v", c.url, err)) // withDefaults has parsed the URL
	}
	c.setHeader(request.Header, &r)

	r.Sent = c.Clock.Now()
	if after := j.request.CancelAfter; after > 0 && after < c.Timeout {
		go c.hangUpAt(ctx, r.Sent+int64(after), hangUp, errHungUp)
	} else {
		go c.hangUpAt(ctx, r.Sent+int64(c.Timeout), hangUp, errTimeout)
	}
	response, err := c.transport.RoundTrip(request)
	r.NewConnection = opened.Load()
	if err != nil {
		c.broken(ctx, &r, "no answer: "+err.Error())
		return r
	}
	defer response.Body.Close()
	r.Status = response.StatusCode
	if r.Status != http.StatusOK { // an error's text is not worth waiting for
		go c.hangUpAt(ctx, c.Clock.Now()+int64(tailLimit), hangUp, errTimeout)
	}
	want := "text/event-stream"
	if !streamed(j.request) {
		want = "application/json"
	}
	switch fault := refusal(response, want); {
	case fault != "":
		c.end(&r, HTTPError, fault, c.Clock.Now())
	case streamed(j.request):
		c.follow(ctx, hangUp, response.Body, j, &r)
	default:
		c.readWhole(ctx, response.Body, &r)
	}
	return r
}

func (c *client) setHeader(h http.Header, r *Result) {
	for key, values := range c.Header {
		h[http.CanonicalHeaderKey(key)] = slices.Clone(values)
	}
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "whylate-replay")
	h.Set("X-Request-Id", r.RequestID)
	if r.Traceparent != "" {
		h.Set("Traceparent", r.Traceparent)
	}
	if c.Token != "" {
		h.Set("Authorization", "Bearer "+c.Token)
	}
}

// hangUpAt hangs up for the given reason when the time has come, unless ctx ends first.
func (c *client) hangUpAt(ctx context.Context, at int64, hangUp context.CancelCauseFunc, why error) {
	if c.Clock.SleepUntil(ctx, at) == nil {
		hangUp(why)
	}
}

// refusal says why a response is not an answer of the wanted media type, or "".
func refusal(response *http.Response, want string) string {
	kind := response.Header.Get("Content-Type")
	media, _, _ := mime.ParseMediaType(kind)
	switch status := response.StatusCode; {
	case status >= 300 && status < 400:
		return fmt.Sprintf("%s to %s: give that as the base URL", response.Status, response.Header.Get("Location"))
	case status != http.StatusOK:
		body, _ := io.ReadAll(io.LimitReader(response.Body, errorBytes))
		return strings.TrimSuffix(response.Status+": "+errorText(body), ": ")
	case kind != "" && media != want:
		return fmt.Sprintf("%s of type %s, want %s: does the server heed \"stream\" in the request?", response.Status, excerpt([]byte(kind)), want)
	}
	return ""
}
