package gpu

import "golang.org/x/sys/unix"

// Monotonic reads the clock that samples are timed by, in ns.
func Monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0
	}
	return t.Nano()
}
