package client

import (
	"context"

	"github.com/whylate/whylate/api"
)

var _ api.Observer = (*Client)(nil)

// Signals implements [api.Observer].
func (c *Client) Signals(ctx context.Context) (*api.SignalList, error) {
	return get[api.SignalList](ctx, c, "signals", nil)
}

// Identities implements [api.Observer].
func (c *Client) Identities(ctx context.Context) (*api.Identities, error) {
	return get[api.Identities](ctx, c, "identities", nil)
}
