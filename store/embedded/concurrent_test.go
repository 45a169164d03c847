package embedded

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

// TestReadersDuringCare asks for requests while periods are sealed, verified, merged, exported, and lose their detail: every answer is whole, or says
// that the retention is over. Few files are kept open, so that they come and go all the time.
func TestReadersDuringCare(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "data"), Options{OpenPeriods: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := storetest.Random(t, 4, 200)
	_, sealed := storetest.SealAll(t, s, b, 20, 40, 60, 80, 100, 120, 140, 160)
	var refs []store.RequestRef
	for _, r := range sealed {
		refs = append(refs, storetest.Ref(t, s, r))
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				ref := refs[i%len(refs)]
				got, err := s.Load(ctx, ref)
				if err != nil && !errors.Is(err, store.ErrExpired) {
					t.Error(err)
					return
				}
				if err == nil && (got.Request.Name() != ref.Name || len(got.Missing) > 0) {
					t.Errorf("asked %s, got %s", ref.Name, got.Request.Name())
					return
				}
				if page, err := s.List(ctx, store.Filter{Limit: 1000, Sort: "e2e"}); err != nil || len(page.Rows) != len(refs) || len(page.Missing) > 0 {
					t.Errorf("%d of %d listed: %v", len(page.Rows), len(refs), err)
					return
				}
			}
		})
	}
	for rows := int64(40); rows <= 160; rows *= 2 {
		if _, err := s.Verify(ctx); err != nil {
			t.Error(err)
		}
		if _, err := s.Compact(ctx, rows, 2); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Seal(ctx, store.Cut(b.Engines[0], nil, nil, 160, 200, storetest.Over(200))); err != nil {
		t.Error(err)
	}
	if err := s.Export(ctx, filepath.Join(t.TempDir(), "export")); err != nil {
		t.Error(err)
	}
	if r, err := s.Retain(ctx, store.Policy{Detail: time.Hour}, time.Unix(0, b.Now).Add(2*time.Hour)); err != nil || r.Details != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	close(done)
	wg.Wait()
}
