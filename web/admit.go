package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
)

// admit refuses requests that a browser was tricked into: to a name that is not this server's (a rebound DNS name), or a change from
// another site's page. With tokens neither can happen, as no page has one.
func (h *Handler) admit(r *http.Request) error {
	if err := h.cross.Check(r); err != nil {
		return &refusal{http.StatusForbidden, api.CodeForbidden, "another site's page must not change anything here", "use the command line, or a page of this server"}
	}
	if h.opts.Tokens != nil {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "" || name == "localhost" || net.ParseIP(name) != nil || slices.Contains(h.opts.Hosts, name) {
		return nil
	}
	return &refusal{http.StatusMisdirectedRequest, api.CodeMisdirected, fmt.Sprintf("this server does not go by the name %s", shown(name)),
		"call it by its address, or configure the name or tokens"}
}

// authorise refuses who may not use a route, and notes the role of who may.
func (h *Handler) authorise(w http.ResponseWriter, r *http.Request, need Role) error {
	if h.opts.Tokens == nil || need == Public {
		return nil
	}
	remedy := "send the header 'Authorization: Bearer TOKEN' with a token of the server's token file"
	header := r.Header.Get("Authorization")
	scheme, token, _ := strings.Cut(header, " ")
	if header == "" {
		return &api.Unauthorised{What: "this server answers only with a token", Remedy: remedy}
	}
	if !strings.EqualFold(scheme, "Bearer") {
		return &api.Unauthorised{What: "the Authorization header holds no bearer token", Remedy: remedy}
	}
	role := h.opts.Tokens().Role(strings.TrimSpace(token))
	if role == Public {
		return &api.Unauthorised{What: "the server does not know this token", Remedy: remedy}
	}
	if rec, ok := w.(*recorder); ok {
		rec.role = role
	}
	if role < need {
		return &api.Forbidden{What: fmt.Sprintf("a token of the role %s may not do this", role), Remedy: "use one of the role " + need.String()}
	}
	return nil
}

// whileAllowed is the request's context until the server stops, or the token may no longer do what needs the role; its cause says so. Whatever
// may last longer than a moment goes on under it. done is to be called at the end.
func (h *Handler) whileAllowed(r *http.Request, need Role) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	var recheck <-chan time.Time
	if h.opts.Tokens != nil {
		t := time.NewTicker(h.opts.Recheck)
		context.AfterFunc(ctx, t.Stop)
		recheck = t.C
	}
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.stop:
				cancel(&api.Unavailable{What: "the server is stopping"})
				return
			case <-recheck:
				if err := h.authorise(nil, r, need); err != nil {
					cancel(err)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// because is the reason for which ctx was ended, if that is why err came about.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		return cause
	}
	return err
}

func countOf(n int, what string) string { return fmt.Sprintf("%d %s already", n, what) }
