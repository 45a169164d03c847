package main

import (
	"context"
	"slices"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/engineenv"
)

// served is a running 'whylate serve'.
type served struct{ *engineenv.Server }

// serve starts a server that reads these rings, and waits until it answers.
func (b *bench) serve(ctx context.Context, dir, rings string) (*served, error) {
	v, err := engineenv.Serve(ctx, b.binary, dir, rings, "")
	return &served{v}, err
}

// top is what 'whylate top' says of the newest incarnation, nil if it cannot be asked or there is none.
func (v *served) top(ctx context.Context) *api.EngineState {
	var l api.EngineList
	if v.Ask(ctx, &l, "top", "--once") != nil || len(l.Engines) == 0 {
		return nil
	}
	return &l.Engines[len(l.Engines)-1]
}

// state waits until 'whylate top' says one of these of the newest incarnation, and returns it with how long that took; nil if it never does.
func (v *served) state(ctx context.Context, most time.Duration, wanted ...api.EngineStatus) (*api.EngineState, time.Duration) {
	var e *api.EngineState
	from := time.Now()
	if !engineenv.Await(ctx, most, func() bool { e = v.top(ctx); return e != nil && slices.Contains(wanted, e.Status) }) {
		return nil, time.Since(from)
	}
	return e, time.Since(from)
}
