package client

import (
	"context"
	"net/url"

	"github.com/whylate/whylate/api"
)

var _ api.Spanner = (*Client)(nil)

// Spans implements [api.Spanner].
func (c *Client) Spans(ctx context.Context, q api.SpansQuery) (*api.Spans, error) {
	v := url.Values{}
	if !q.IDs {
		put(v, "ids", "no")
	}
	return get[api.Spans](ctx, c, "requests/"+url.PathEscape(q.ID)+"/spans", v)
}
