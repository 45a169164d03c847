package web

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/whylate/whylate/api"
)

// tarType is the media type of an export.
const tarType = "application/x-tar"

// keeper is the service's store.
func keeper(s api.Service) (api.Keeper, error) {
	if k, ok := s.(api.Keeper); ok {
		return k, nil
	}
	return nil, &api.Unsupported{What: "this server answers from what it read at its start and keeps no store", Remedy: "ask a server that does ('whylate serve')"}
}

// care does what may last as long as reading everything that is kept. It ends when whoever asked hangs up.
func (h *Handler) care(w http.ResponseWriter, r *http.Request, do func(context.Context, api.Keeper) error) error {
	k, err := keeper(h.svc)
	if err != nil {
		return err
	}
	leave, err := enter(h.caring, "verifications, compactions and exports are running")
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := h.whileAllowed(r, Operator)
	defer done()
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // not every connection has deadlines
	defer func() { _ = control.SetWriteDeadline(time.Now().Add(h.opts.Timeout)) }()
	return because(ctx, do(ctx, k))
}

func (h *Handler) verifyStore(w http.ResponseWriter, r *http.Request, _ *arguments) error {
	return h.care(w, r, func(ctx context.Context, k api.Keeper) error {
		v, err := k.VerifyStore(ctx)
		if err != nil {
			return err
		}
		return writeAnswer(w, v)
	})
}

func (h *Handler) compactStore(w http.ResponseWriter, r *http.Request, a *arguments) error {
	rows := a.number("rows")
	if rows > 1<<40 {
		a.wrong("rows", a.text("rows"), "give a number up to 1099511627776")
	}
	if a.err != nil {
		return a.err
	}
	return h.care(w, r, func(ctx context.Context, k api.Keeper) error {
		v, err := k.CompactStore(ctx, api.CompactQuery{Rows: int64(rows)})
		if err != nil {
			return err
		}
		return writeAnswer(w, v)
	})
}

// exportStore streams an archive. What goes wrong after it has begun is told by its last file; where not even that can be, the
// connection is cut off.
func (h *Handler) exportStore(w http.ResponseWriter, r *http.Request, _ *arguments) error {
	head := func() {
		w.Header().Set("Content-Type", tarType)
		w.Header().Set("Content-Disposition", `attachment; filename="whylate.tar"`)
	}
	if r.Method == http.MethodHead {
		_, err := keeper(h.svc)
		if err == nil {
			head()
		}
		return err
	}
	return h.care(w, r, func(ctx context.Context, k api.Keeper) error {
		out := &pressing{w: w, control: http.NewResponseController(w), timeout: h.opts.WriteTimeout}
		archive := tar.NewWriter(out)
		var end api.ExportEnd
		whole := true // every file that was begun
		add := func(name string, size int64, in io.Reader) error {
			if !out.begun {
				head()
			}
			whole = false
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, Format: tar.FormatPAX}); err != nil {
				return err
			}
			if _, err := io.Copy(archive, in); err != nil {
				return err
			}
			err := archive.Flush() // fails where there were fewer bytes than size
			whole = err == nil
			return err
		}
		err := k.ExportStore(ctx, func(name string, size int64, in io.Reader) error {
			err := add(name, size, in)
			if err == nil {
				end.Files++
				end.Bytes += size
			}
			return err
		})
		err = because(ctx, err)
		if err != nil && !out.begun {
			return err
		}
		if err != nil {
			_, p := problemOf(err)
			end.Error = &p
		}
		if whole && out.err == nil {
			var text []byte
			if text, err = json.Marshal(end); err == nil {
				err = errors.Join(add(api.ExportEndFile, int64(len(text)), bytes.NewReader(text)), archive.Close())
			}
			whole = err == nil
		}
		if rec, ok := w.(*recorder); ok && !whole {
			rec.broken = true
		}
		return nil
	})
}

// pressing is an answer of which each piece must be taken within a time.
type pressing struct {
	w       io.Writer
	control *http.ResponseController
	timeout time.Duration
	begun   bool
	err     error // of writing: whoever asked is gone, or takes nothing
}

func (p *pressing) Write(b []byte) (int, error) {
	p.begun = true
	_ = p.control.SetWriteDeadline(time.Now().Add(p.timeout)) // not every connection has deadlines
	n, err := p.w.Write(b)
	if err != nil {
		p.err = err
	}
	return n, err
}
