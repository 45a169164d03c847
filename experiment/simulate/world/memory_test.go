package world

import (
	"io"
	"runtime"
	"testing"

	"github.com/whylate/whylate/wire"
)

// heapAfter is what is alive when a world has played so many requests.
func heapAfter(t testing.TB, requests int) uint64 {
	t.Helper()
	out, err := wire.NewCaptureWriter(io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	c := busy(requests)
	c.Recorder = NewFrames(out)
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := w.Run(); err != nil || s.Complete != requests {
		t.Fatalf("%+v, %v", s, err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	runtime.KeepAlive(w)
	runtime.KeepAlive(out)
	return m.HeapAlloc
}

func TestARunTenTimesAsLongNeedsNoMoreMemory(t *testing.T) {
	short, long := heapAfter(t, 1000), heapAfter(t, 10_000)
	if float64(long) > 1.3*float64(short) {
		t.Errorf("%d bytes after 1,000 requests, %d after 10,000", short, long)
	}
	t.Logf("%d bytes after 1,000 requests, %d after 10,000", short, long)
}
