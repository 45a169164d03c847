package server

import (
	"cmp"
	"context"
	"errors"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/store"
)

// Keeper looks after an open store. It is an [api.Keeper].
type Keeper struct {
	kept   store.Store
	change chan struct{} // held by whoever writes or merges periods: a seal must not wait for a merge while it holds the hot period
}

var _ api.Keeper = (*Keeper)(nil)

// NewKeeper looks after st, which is for the caller to close.
func NewKeeper(st store.Store) *Keeper { return &Keeper{kept: st, change: make(chan struct{}, 1)} }

// alone runs do while nobody else changes the periods. It does not run it if ctx ends before.
func (k *Keeper) alone(ctx context.Context, do func()) {
	select {
	case k.change <- struct{}{}:
		defer func() { <-k.change }()
		do()
	case <-ctx.Done():
	}
}

// StoreState implements [api.Keeper].
func (k *Keeper) StoreState(ctx context.Context) (*api.StoreState, error) {
	periods, err := k.kept.Periods(ctx)
	if err != nil {
		return nil, err
	}
	info := k.kept.LogInfo()
	return &api.StoreState{Periods: periods, Log: api.StoreLog{Files: info.Files, Bytes: info.Bytes, First: info.First, Last: info.Last}}, nil
}

// VerifyStore implements [api.Keeper].
func (k *Keeper) VerifyStore(ctx context.Context) (*api.StoreVerified, error) {
	periods, err := k.kept.Verify(ctx)
	if err != nil {
		return nil, keeperError(err)
	}
	v := &api.StoreVerified{Periods: periods}
	for _, p := range periods {
		if p.Damaged != "" {
			v.Damaged++
		}
	}
	return v, nil
}

// CompactStore implements [api.Keeper]. Meanwhile nothing is sealed.
func (k *Keeper) CompactStore(ctx context.Context, q api.CompactQuery) (*api.StoreCompacted, error) {
	c := &api.StoreCompacted{}
	var err error
	k.alone(ctx, func() { c.Fewer, err = k.kept.Compact(ctx, cmp.Or(q.Rows, 1_000_000), 2) })
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, keeperError(err)
	}
	return c, nil
}

// ExportStore implements [api.Keeper].
func (k *Keeper) ExportStore(ctx context.Context, put store.Put) error {
	return keeperError(k.kept.ExportFiles(ctx, put))
}

// keeperError says what damage means to who asks. Its text is the store's: it names the remedy.
func keeperError(err error) error {
	if errors.Is(err, store.ErrCorrupt) {
		return &api.Damaged{What: err.Error()}
	}
	return err
}
