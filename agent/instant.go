package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

// Instant is one moment on the host's two clocks.
type Instant struct {
	Unix int64 // ns
	Mono int64 // ns of CLOCK_MONOTONIC, which rings use
}

// Now reads the clocks.
func Now() Instant { return Instant{Unix: time.Now().UnixNano(), Mono: monotonic()} }

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// pair is a reading of both clocks: monotonic before, Unix, monotonic after.
func pair() [3]int64 { return [3]int64{monotonic(), time.Now().UnixNano(), monotonic()} }

// after reports whether at lies at least d behind since; a since of 0 has never been.
func (now Instant) after(since int64, d time.Duration) bool {
	return since == 0 || now.Mono-since >= int64(d)
}
