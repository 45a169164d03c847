package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/whylate/whylate/api"
)

// Import implements [api.Importer]. The body is sent once the server has said that it takes it.
func (c *Client) Import(ctx context.Context, q api.ImportQuery, body io.Reader) (*api.ImportResult, error) {
	v := url.Values{}
	put(v, "name", q.Name)
	address := c.address("import", v)
	file := &source{r: body}
	r, err := c.request(ctx, http.MethodPost, address, file)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/octet-stream")
	r.Header.Set("Expect", "100-continue")
	resp, err := c.http.Do(r)
	if failure := file.failure(); failure != nil { // the file, not the server
		if err == nil {
			resp.Body.Close()
		}
		return nil, failure
	}
	if err != nil {
		return nil, c.failed(ctx, address, err)
	}
	defer resp.Body.Close()
	if err := refused(address, resp); err != nil {
		return nil, err
	}
	result := new(api.ImportResult)
	if err := c.read(ctx, address, resp, result); err != nil {
		return nil, err
	}
	return result, nil
}
