package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/api"
)

// mostAnswer is how many bytes of an answer are read: more is no answer of whylate's.
const mostAnswer = 1 << 30

// address is the whole address of a path below /api/v1. The path is escaped already.
func (c *Client) address(path string, v url.Values) string {
	s := c.base.String() + "/api/v1/" + path
	if len(v) > 0 {
		s += "?" + v.Encode()
	}
	return s
}

// request makes a request with what every one of them has.
func (c *Client) request(ctx context.Context, method, address string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", address, err)
	}
	r.Header.Set("User-Agent", c.opts.Agent)
	if c.opts.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	return r, nil
}

// get asks for an answer of type A.
func get[A any](ctx context.Context, c *Client, path string, v url.Values) (*A, error) {
	inner, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	address := c.address(path, v)
	r, err := c.request(inner, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.failed(ctx, address, err)
	}
	defer resp.Body.Close()
	if err := refused(address, resp); err != nil {
		return nil, err
	}
	answer := new(A)
	if err := c.read(ctx, address, resp, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// read reads the JSON of an answer.
func (c *Client) read(ctx context.Context, address string, resp *http.Response, v any) error {
	body := &source{r: io.LimitReader(resp.Body, mostAnswer)}
	err := api.ReadJSON(body, v)
	if failure := body.failure(); failure != nil {
		return c.failed(ctx, address, failure)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%s broke off its answer; ask again, and see the server's log if it happens again", address)
	}
	if err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w; is that a whylate server, and not newer than this program?", address, err)
	}
	return nil
}

// source remembers what went wrong with what is read, so that it is not taken for a fault of what was read.
type source struct {
	r   io.Reader
	mu  sync.Mutex // the transport may still read a body when the answer is there
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *source) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Unreachable says that nothing answers at an address: no whylate server runs there, or none can be reached.
type Unreachable struct {
	URL string
	Err error
}

func (e *Unreachable) Error() string {
	return fmt.Sprintf("no whylate server answers at %s: %v; start one ('whylate serve'), give the address of one that runs, or read files (--from)", e.URL, e.Err)
}

func (e *Unreachable) Unwrap() error { return e.Err }

// Timeout says that a server was reached and its answer did not come in time.
type Timeout struct {
	URL   string
	After time.Duration
}

func (e *Timeout) Error() string {
	return fmt.Sprintf("%s gave no answer within %s; ask for less (a lower limit, a shorter time), allow more time, or look whether the server is overloaded (GET /readyz)", e.URL, e.After)
}

// Timeout reports that this is a time-out, as net.Error does.
func (e *Timeout) Timeout() bool { return true }

// failed says what went wrong on the way. ctx is the caller's own: if that ended, the caller knows why.
func (c *Client) failed(ctx context.Context, address string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask %s: %w", address, ctx.Err())
	}
	var dial *net.OpError
	if errors.As(err, &dial) && (dial.Op == "dial" || dial.Op == "proxyconnect") {
		return &Unreachable{URL: c.Address(), Err: bare(err)}
	}
	var late net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
		return &Timeout{URL: address, After: c.opts.Timeout}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("%s broke off its answer: %w; ask again, and see the server's log if it happens again", address, bare(err))
	}
	return fmt.Errorf("ask %s: %w; check the address, and whether it is http or https", address, bare(err))
}

// bare takes the address off an error of net/http: the message has it already.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// refused is the error that an answer carries, nil if it is a success.
func refused(address string, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "text/event-stream") && !strings.HasPrefix(kind, "application/x-tar") {
			return fmt.Errorf("%s answers with %q, which is no answer of whylate's: check the address", address, kind)
		}
		return nil
	}
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var body api.ProblemBody
	if err := api.ReadJSON(strings.NewReader(string(head)), &body); err == nil && body.Error.Code != "" {
		return errorOf(body.Error)
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		return fmt.Errorf("%s sends on to %q: give the address of the server itself", address, to)
	}
	text := strings.Join(strings.Fields(string(head[:min(len(head), 120)])), " ")
	return fmt.Errorf("%s answers %s, which is no answer of whylate's (%q): check the address, and the proxy before it", address, resp.Status, text)
}
