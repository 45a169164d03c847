package nvml

import (
	"runtime"
	"sync/atomic"
)

// sink makes what is passed to keep lie on the heap, which does not move while C writes into it: it might be kept there.
var sink atomic.Pointer[any]

// keep holds a value until here.
func keep(v any) {
	if v == nil {
		sink.Store(&v)
	}
	runtime.KeepAlive(v)
}
