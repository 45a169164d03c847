package client

import (
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// errorOf makes the error again that the server's service gave; web/errors.go is its inverse. Its text is the server's text.
func errorOf(p api.Problem) error {
	err := kindOf(p)
	if err.Error() == p.Message {
		return err
	}
	return &told{p.Message, err}
}

func kindOf(p api.Problem) error {
	after := time.Duration(p.After)
	switch p.Code {
	case api.CodeInvalidArgument:
		return &api.InvalidArgument{Argument: p.Argument, Value: p.Value, Problem: p.Problem}
	case api.CodeNotFound:
		return &query.NotFound{ID: p.ID, Count: p.Count}
	case api.CodeAmbiguous:
		e := &query.Ambiguous{ID: p.ID}
		for _, ids := range p.Candidates {
			e.Matches = append(e.Matches, known(ids))
		}
		e.More = p.Count - len(e.Matches)
		return e
	case api.CodeOverloaded:
		return &api.Overloaded{What: p.What, After: after}
	case api.CodeUnavailable:
		return &api.Unavailable{What: p.What, After: after}
	case api.CodeUnsupported:
		return &api.Unsupported{What: p.What, Remedy: p.Remedy}
	case api.CodeDamaged:
		return &api.Damaged{What: p.What, Remedy: p.Remedy}
	case api.CodeUnauthorised:
		return &api.Unauthorised{What: p.What, Remedy: p.Remedy}
	case api.CodeForbidden:
		return &api.Forbidden{What: p.What, Remedy: p.Remedy}
	}
	return &Refused{Code: p.Code, Message: p.Message, Hint: p.Hint}
}

// known is a request of which only the ids are known: IDs gives them back in their order.
func known(ids []string) *ledger.Request {
	r := &ledger.Request{}
	for i, id := range ids {
		switch i {
		case 0:
			r.RequestID = id
		case 1:
			r.ResponseID = id
		default:
			r.Sequences = append(r.Sequences, &ledger.Sequence{External: id, Request: r})
		}
	}
	return r
}

// told is an error with the server's own words for it.
type told struct {
	message string
	err     error
}

func (e *told) Error() string { return e.message }

func (e *told) Unwrap() error { return e.err }

// Refused is an error of a kind that has no type of its own: the server failed, took too long, or is newer than this program.
type Refused struct {
	Code          api.ProblemCode
	Message, Hint string
}

func (e *Refused) Error() string { return e.Message }
