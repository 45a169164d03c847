package nvml

import "runtime"

// sink makes what is passed to keep lie on the heap, which does not move while C writes into it.
var sink any

// keep holds a value until here.
func keep(v any) {
	if v == nil {
		sink = v
	}
	runtime.KeepAlive(v)
}
