package web

import (
	"cmp"
	"io"
	"net/http"
	"time"

	"github.com/whylate/whylate/api"
)

// importCapture takes in the body. It may last long, but not pause long.
func (h *Handler) importCapture(w http.ResponseWriter, r *http.Request, a *arguments) error {
	name := cmp.Or(a.text("name"), "import")
	if a.err != nil {
		return a.err
	}
	importer, ok := h.svc.(api.Importer)
	if !ok {
		return &api.Unsupported{What: "this server answers from what it read at its start and takes nothing in", Remedy: "import at a server that keeps a store ('whylate serve')"}
	}
	if r.ContentLength > h.opts.MaxImport {
		return &http.MaxBytesError{Limit: h.opts.MaxImport}
	}
	leave, err := enter(h.imports, "imports are running")
	if err != nil {
		return err
	}
	defer leave()
	control := http.NewResponseController(w)
	body := &patient{r: http.MaxBytesReader(connection(w), r.Body, h.opts.MaxImport), control: control, timeout: h.opts.ReadTimeout}
	_ = control.SetWriteDeadline(time.Time{})
	ctx, done := h.whileAllowed(r, Operator)
	defer done()
	result, err := importer.Import(ctx, api.ImportQuery{Name: name}, body)
	_ = control.SetReadDeadline(time.Now().Add(h.opts.ReadTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(h.opts.Timeout))
	if err != nil {
		return because(ctx, err)
	}
	return writeAnswer(w, result)
}

// connection is the innermost writer. [http.MaxBytesReader] tells only that one of a body that is too long; it then lets the answer be read
// before it hangs up, instead of resetting the connection under it.
func connection(w http.ResponseWriter) http.ResponseWriter {
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = outer.Unwrap()
	}
}

// patient is a body of which each piece must come within a time.
type patient struct {
	r       io.Reader
	control *http.ResponseController
	timeout time.Duration
}

func (p *patient) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(time.Now().Add(p.timeout)) // not every connection has deadlines
	return p.r.Read(b)
}
