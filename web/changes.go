package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/whylate/whylate/api"
)

// longestChange is how many bytes a change that is told may have.
const longestChange = 64 << 10

// tellChange keeps the change that is the body.
func (h *Handler) tellChange(w http.ResponseWriter, r *http.Request, a *arguments) error {
	if a.err != nil {
		return a.err
	}
	teller, ok := h.svc.(api.Teller)
	if !ok {
		return &api.Unsupported{What: "this server answers from what it read at its start and keeps nothing that is told", Remedy: "tell a server that keeps a store ('whylate serve')"}
	}
	d := json.NewDecoder(http.MaxBytesReader(connection(w), r.Body, longestChange))
	d.DisallowUnknownFields()
	var c api.Change
	err := d.Decode(&c)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows it")
		}
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return err
	case err != nil:
		return &api.InvalidArgument{Argument: "body", Value: "", Problem: "it is no change as JSON: " + shown(err.Error())}
	}
	kept, err := teller.Tell(r.Context(), c)
	if err != nil {
		return err
	}
	return writeAnswer(w, kept)
}
