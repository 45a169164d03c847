package client

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/whylate/whylate/api"
)

// Tell implements [api.Teller].
func (c *Client) Tell(ctx context.Context, change api.Change) (*api.Change, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	address := c.address("changes", nil)
	r, err := c.request(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.failed(ctx, address, err)
	}
	defer resp.Body.Close()
	if err := refused(address, resp); err != nil {
		return nil, err
	}
	kept := new(api.Change)
	if err := c.read(ctx, address, resp, kept); err != nil {
		return nil, err
	}
	return kept, nil
}
