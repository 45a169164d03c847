package replay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Clock tells the time and waits for it. Its times are nanoseconds since any fixed moment and never go back.
type Clock interface {
	// Now returns the present time, ns.
	Now() int64
	// SleepUntil returns nil when the time has come, at once if it has passed, or ctx's error if ctx ends first.
	SleepUntil(ctx context.Context, time int64) error
}

// Monotonic is the host's CLOCK_MONOTONIC: the same line of time in every process of the host.
type Monotonic struct{}

// Now reads the clock.
func (Monotonic) Now() int64 { return now(unix.CLOCK_MONOTONIC) }

// now reads one of the host's clocks, ns.
func now(clock int32) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(fmt.Sprintf("BUG: clock %d cannot be read: %v", clock, err)) // the kernel has both since ever
	}
	return t.Nano()
}

// SleepUntil waits with the accuracy of the runtime's timers: tens of microseconds on an idle host.
func (c Monotonic) SleepUntil(ctx context.Context, until int64) error {
	for {
		rest := until - c.Now()
		if rest <= 0 {
			return ctx.Err()
		}
		timer := time.NewTimer(time.Duration(rest))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}
