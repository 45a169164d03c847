package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/query"
)

// candidates is how many requests an ambiguous id's answer lists.
const candidates = 10

// problemOf is the one place where an error becomes a status and a body. The client's errorOf is its inverse.
func problemOf(err error) (int, api.Problem) {
	p := api.Problem{Message: err.Error()}
	var (
		argument     *api.InvalidArgument
		missing      *query.NotFound
		several      *query.Ambiguous
		overloaded   *api.Overloaded
		unavailable  *api.Unavailable
		unsupported  *api.Unsupported
		damaged      *api.Damaged
		unauthorised *api.Unauthorised
		forbidden    *api.Forbidden
		own          *refusal
		tooLarge     *http.MaxBytesError
	)
	switch {
	case errors.As(err, &own):
		p.Code, p.Hint = own.code, own.hint
		return own.status, p
	case errors.As(err, &argument):
		p.Code, p.Argument, p.Value, p.Problem = api.CodeInvalidArgument, argument.Argument, argument.Value, argument.Problem
		p.Hint = "GET /api/v1/openapi.json says what each argument may be"
		return http.StatusBadRequest, p
	case errors.As(err, &missing):
		p.Code, p.ID, p.Count = api.CodeNotFound, missing.ID, missing.Count
		p.Hint = "GET /api/v1/requests lists the requests that there are"
		return http.StatusNotFound, p
	case errors.As(err, &several):
		p.Code, p.ID, p.Count = api.CodeAmbiguous, several.ID, len(several.Matches)+several.More
		for _, r := range several.Matches[:min(len(several.Matches), candidates)] {
			p.Candidates = append(p.Candidates, r.IDs())
		}
		p.Hint = "ask again with one of the candidates' ids"
		return http.StatusConflict, p
	case errors.As(err, &overloaded):
		p.Code, p.What, p.After = api.CodeOverloaded, overloaded.What, int64(overloaded.After)
		p.Hint = "wait as long as Retry-After says, then ask again"
		return http.StatusTooManyRequests, p
	case errors.As(err, &unavailable):
		p.Code, p.What, p.After = api.CodeUnavailable, unavailable.What, int64(unavailable.After)
		p.Hint = "GET /readyz says when the server is ready"
		return http.StatusServiceUnavailable, p
	case errors.As(err, &unsupported):
		p.Code, p.What, p.Remedy, p.Hint = api.CodeUnsupported, unsupported.What, unsupported.Remedy, unsupported.Remedy
		return http.StatusNotImplemented, p
	case errors.As(err, &damaged):
		p.Code, p.What, p.Remedy, p.Hint = api.CodeDamaged, damaged.What, damaged.Remedy, damaged.Remedy
		return http.StatusInternalServerError, p
	case errors.As(err, &unauthorised):
		p.Code, p.What, p.Remedy, p.Hint = api.CodeUnauthorised, unauthorised.What, unauthorised.Remedy, unauthorised.Remedy
		return http.StatusUnauthorized, p
	case errors.As(err, &forbidden):
		p.Code, p.What, p.Remedy, p.Hint = api.CodeForbidden, forbidden.What, forbidden.Remedy, forbidden.Remedy
		return http.StatusForbidden, p
	case errors.As(err, &tooLarge):
		p.Code, p.Message = api.CodeTooLarge, fmt.Sprintf("the body is longer than the %d bytes that this server takes", tooLarge.Limit)
		p.Hint = "send it in parts, or raise the server's limit"
		return http.StatusRequestEntityTooLarge, p
	case errors.Is(err, os.ErrDeadlineExceeded): // the body stopped coming
		p.Code, p.Hint = api.CodeTimeout, "send the body without pauses, then repeat the request: what was taken in is kept and not doubled"
		p.Message = "the rest of the body did not come in time"
		return http.StatusRequestTimeout, p
	case errors.Is(err, context.DeadlineExceeded):
		p.Code, p.Hint = api.CodeTimeout, "ask for less: a lower limit, a shorter time, a range of iterations"
		return http.StatusGatewayTimeout, p
	case errors.Is(err, context.Canceled):
		p.Code = api.CodeCancelled
		return 499, p // the customary status for a caller that went away; nobody reads it but the log
	}
	p.Code, p.Hint = api.CodeInternal, "the server's log says more"
	return http.StatusInternalServerError, p
}

// refusal is an error of HTTP itself, before any question was asked.
type refusal struct {
	status        int
	code          api.ProblemCode
	message, hint string
}

func (e *refusal) Error() string { return e.message }

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, err error) {
	status, p := problemOf(err)
	write(w, status, p)
}

func write(w http.ResponseWriter, status int, p api.Problem) {
	h := w.Header()
	h.Set("Content-Type", jsonType)
	if p.After > 0 {
		h.Set("Retry-After", fmt.Sprint((p.After+int64(time.Second)-1)/int64(time.Second)))
	}
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="whylate"`)
	}
	if rec, ok := w.(*recorder); ok && rec.unread {
		h.Set("Connection", "close") // rather than read the rest of a body that is not wanted
	}
	w.WriteHeader(status)
	_ = api.WriteJSON(w, api.ProblemBody{Error: p}) // whoever reads it may be gone
}
