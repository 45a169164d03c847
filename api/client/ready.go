package client

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/whylate/whylate/api"
)

// Ready asks whether the server can do its work. It fails with *[Unreachable] where none runs, and with *[api.Unavailable] where it
// cannot work yet, and says why.
func (c *Client) Ready(ctx context.Context) error {
	inner, cancel := context.WithTimeout(ctx, c.opts.Timeout)
	defer cancel()
	address := c.base.String() + "/readyz"
	r, err := c.request(inner, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return c.failed(ctx, address, err)
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusServiceUnavailable && strings.HasPrefix(string(text), "not ready"):
		return &api.Unavailable{What: c.Address() + " is " + strings.TrimSpace(string(text))}
	}
	resp.Body = io.NopCloser(strings.NewReader(string(text)))
	return refused(address, resp)
}
