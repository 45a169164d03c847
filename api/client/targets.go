package client

import (
	"context"

	"github.com/whylate/whylate/api"
)

// Targets implements [api.Scraper].
func (c *Client) Targets(ctx context.Context) (*api.TargetList, error) {
	return get[api.TargetList](ctx, c, "targets", nil)
}
