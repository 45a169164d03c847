package client

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/store"
)

// StoreState implements [api.Keeper].
func (c *Client) StoreState(ctx context.Context) (*api.StoreState, error) {
	return get[api.StoreState](ctx, c, "store", nil)
}

// VerifyStore implements [api.Keeper]. It has no limit of time but the context's.
func (c *Client) VerifyStore(ctx context.Context) (*api.StoreVerified, error) {
	return post[api.StoreVerified](ctx, c, "store/verify", nil)
}

// CompactStore implements [api.Keeper]. It has no limit of time but the context's.
func (c *Client) CompactStore(ctx context.Context, q api.CompactQuery) (*api.StoreCompacted, error) {
	v := url.Values{}
	put(v, "rows", number(uint64(max(q.Rows, 0))))
	return post[api.StoreCompacted](ctx, c, "store/compact", v)
}

// post has something done that may last, and reads the answer.
func post[A any](ctx context.Context, c *Client, path string, v url.Values) (*A, error) {
	address := c.address(path, v)
	resp, err := c.ask(ctx, http.MethodPost, address)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer := new(A)
	if err := c.read(ctx, address, resp, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// ask asks, and returns an answer that is a success, with its body still to be read.
func (c *Client) ask(ctx context.Context, method, address string) (*http.Response, error) {
	r, err := c.request(ctx, method, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.failed(ctx, address, err)
	}
	if err := refused(address, resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// ExportStore implements [api.Keeper]. It has no limit of time but the context's. The server is not trusted with names: put gets those of an
// export only.
func (c *Client) ExportStore(ctx context.Context, put store.Put) error {
	address := c.address("store/export", nil)
	resp, err := c.ask(ctx, http.MethodGet, address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &source{r: resp.Body}
	strange := func(what string) error {
		return fmt.Errorf("%s sends no export: %s; is that a whylate server, and not newer than this program?", address, what)
	}
	broken := func(err error) error {
		if failure := body.failure(); failure != nil || errors.Is(err, io.ErrUnexpectedEOF) {
			return c.failed(ctx, address, cmp.Or(failure, err))
		}
		return strange(err.Error())
	}
	archive := tar.NewReader(body)
	var end *api.ExportEnd
	for files := 0; ; files++ {
		h, err := archive.Next()
		if err == io.EOF && end != nil {
			return nil
		}
		if err == io.EOF {
			return c.failed(ctx, address, io.ErrUnexpectedEOF)
		}
		if err != nil {
			return broken(err)
		}
		switch {
		case end != nil || h.Typeflag != tar.TypeReg:
			return strange(fmt.Sprintf("%.100q is no file, or comes behind the end", h.Name))
		case h.Name == api.ExportEndFile:
			end = new(api.ExportEnd)
			if err := api.ReadJSON(io.LimitReader(archive, 1<<20), end); err != nil {
				return strange(fmt.Sprintf("%s: %v", h.Name, err))
			}
			if end.Error != nil {
				return errorOf(*end.Error)
			}
			if end.Files != files {
				return fmt.Errorf("%s sent %d files of an export of %d; ask again", address, files, end.Files)
			}
		default:
			if err := store.CheckExportName(h.Name); err != nil {
				return err
			}
			file := &source{r: archive}
			err := put(h.Name, h.Size, file)
			if failure := file.failure(); failure != nil { // the server's, not put's
				return broken(failure)
			}
			if err != nil {
				return err
			}
		}
	}
}
