// Package client is an [api.Service] whose answers come from a server over HTTP. Answers and errors are the very types that the
// server's own service gave, so whoever asks cannot tell, and prints the same.
package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
)

// Options say how to reach a server. The zero value is right for one on this host.
type Options struct {
	Token   string        // sent as bearer token, "" = none
	TLS     *tls.Config   // for https; nil: the system's certificate authorities
	Timeout time.Duration // of one answer; 0 = 60 s. Event streams, imports and what is done to the store have none
	Agent   string        // User-Agent; "" = "whylate"
	HTTP    *http.Client  // to be used instead of one of the client's own; TLS is then not looked at
	// Wait waits before an event stream is opened again; nil: it sleeps. Tests put their own here.
	Wait func(context.Context, time.Duration) error
}

// Client asks a server. It may be used by many at once.
type Client struct {
	base *url.URL
	opts Options
	http *http.Client
}

var (
	_ api.Service  = (*Client)(nil)
	_ api.Importer = (*Client)(nil)
	_ api.Teller   = (*Client)(nil)
	_ api.Keeper   = (*Client)(nil)
)

// New makes a client of the server at address: http://HOST:PORT, https://HOST:PORT, or HOST:PORT, which means http. Nothing is sent yet.
func New(address string, opts Options) (*Client, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, &api.InvalidArgument{Argument: "server", Value: address, Problem: "give an address such as http://127.0.0.1:7411 or https://whylate.example"}
	}
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v1")
	if opts.Timeout == 0 {
		opts.Timeout = 60 * time.Second
	}
	if opts.Agent == "" {
		opts.Agent = "whylate"
	}
	if opts.Wait == nil {
		opts.Wait = sleep
	}
	c := &Client{base: u, opts: opts, http: &http.Client{Transport: &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:       opts.TLS,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: 2 * time.Second,
		IdleConnTimeout:       time.Minute,
		ForceAttemptHTTP2:     true,
	}}}
	if opts.HTTP != nil {
		own := *opts.HTTP
		c.http = &own
	}
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a token goes nowhere else
	return c, nil
}

// Address is the server's address.
func (c *Client) Address() string { return c.base.String() }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pageRows is how many rows the client asks for at once; the server gives no more than that.
const pageRows = 10_000

// Requests implements [api.Service]. A list longer than a page is fetched page by page.
func (c *Client) Requests(ctx context.Context, q api.RequestsQuery) (*api.RequestList, error) {
	var all *api.RequestList
	for {
		v := selection(q, "sort")
		put(v, "page", q.Page)
		got := 0
		if all != nil {
			got = len(all.Requests)
		}
		put(v, "limit", rowsOf(q.Limit, got))
		page, err := get[api.RequestList](ctx, c, "requests", v)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all.Requests, all.Next = append(all.Requests, page.Requests...), page.Next
		}
		if page.Next == "" || len(page.Requests) == 0 || q.Limit > 0 && len(all.Requests) >= q.Limit {
			return all, nil
		}
		q.Page = page.Next
	}
}

// rowsOf is how many rows to ask for next: limit is what is wanted in all, 0 = all there are.
func rowsOf(limit, got int) string {
	n := pageRows
	if limit > 0 {
		n = min(n, limit-got)
	}
	return fmt.Sprint(n)
}

// Explain implements [api.Service].
func (c *Client) Explain(ctx context.Context, q api.ExplainQuery) (*diagnose.Explanation, error) {
	if q.ID != "" {
		if strings.Trim(q.ID, "./") == "" { // in a path these mean something else
			return get[diagnose.Explanation](ctx, c, "explain", url.Values{"id": {q.ID}})
		}
		return get[diagnose.Explanation](ctx, c, "requests/"+url.PathEscape(q.ID), nil)
	}
	return get[diagnose.Explanation](ctx, c, "explain", selection(q.RequestsQuery, "slowest"))
}

// Iterations implements [api.Service]. A list longer than a page is fetched page by page.
func (c *Client) Iterations(ctx context.Context, q api.IterationsQuery) (*api.IterationList, error) {
	var all *api.IterationList
	for {
		v := url.Values{}
		put(v, "engine", q.Engine)
		put(v, "request", q.Request)
		put(v, "first", number(q.From))
		put(v, "last", number(q.To))
		got := 0
		if all != nil {
			got = len(all.Iterations)
		}
		put(v, "limit", rowsOf(q.Limit, got))
		page, err := get[api.IterationList](ctx, c, "iterations", v)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = page
		} else {
			all.Iterations, all.Next = append(all.Iterations, page.Iterations...), page.Next
		}
		if page.Next <= q.From || len(page.Iterations) == 0 || q.Limit > 0 && len(all.Iterations) >= q.Limit {
			return all, nil
		}
		q.From = page.Next
	}
}

// Iteration implements [api.Service].
func (c *Client) Iteration(ctx context.Context, q api.IterationQuery) (*api.IterationDetail, error) {
	v := url.Values{}
	put(v, "engine", q.Engine)
	return get[api.IterationDetail](ctx, c, fmt.Sprintf("iterations/%d", q.Number), v)
}

// Odd implements [api.Service].
func (c *Client) Odd(ctx context.Context) (*api.OddList, error) {
	return get[api.OddList](ctx, c, "odd", nil)
}

// Overview implements [api.Service].
func (c *Client) Overview(ctx context.Context) (*api.Overview, error) {
	return get[api.Overview](ctx, c, "overview", nil)
}

// Engines implements [api.Service].
func (c *Client) Engines(ctx context.Context) (*api.EngineList, error) {
	return get[api.EngineList](ctx, c, "engines", nil)
}

// Devices implements [api.Service].
func (c *Client) Devices(ctx context.Context) (*api.DeviceList, error) {
	return get[api.DeviceList](ctx, c, "devices", nil)
}

// Changes implements [api.Service].
func (c *Client) Changes(ctx context.Context, q api.ChangesQuery) (*api.ChangeList, error) {
	v := url.Values{}
	put(v, "from", moment(q.From))
	put(v, "to", moment(q.To))
	put(v, "limit", rowsOf(q.Limit, 0))
	return get[api.ChangeList](ctx, c, "changes", v)
}

// selection writes what selects requests; sort is the name of the argument that says what they are judged by.
func selection(q api.RequestsQuery, sort string) url.Values {
	v := url.Values{}
	put(v, sort, q.Sort)
	put(v, "class", q.Class)
	put(v, "tenant", q.Tenant)
	put(v, "route", q.Route)
	put(v, "at", moment(q.At))
	put(v, "from", moment(q.From))
	put(v, "to", moment(q.To))
	if q.Over > 0 {
		v.Set("over", q.Over.String())
	}
	return v
}

func put(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
