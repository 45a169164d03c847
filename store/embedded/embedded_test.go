package embedded

import (
	"testing"

	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(_ *testing.T, dir string) (store.Store, error) { return Open(dir, Options{SegmentBytes: 1 << 10}) })
}
