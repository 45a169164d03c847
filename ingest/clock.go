package ingest

import (
	"fmt"
	"time"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// clock puts the times of one domain on the book's line. All producers of one boot share a monotonic clock, so they share
// one offset, fixed by the first pair: differences within a boot stay exact, whatever the wall clock does later.
type clock struct {
	ledger.Clock
	set bool
}

// stepTolerance is how far a later pair may lie from the first before it is called a step of the wall clock: well above
// what slewing does in hours, well below what matters to a person reading times of day.
const stepTolerance = 50 * time.Millisecond

// clockOf returns the clock of a producer's boot. A producer without a boot id or a first pair gets one of its own.
func (a *Assembler) clockOf(h wire.Hello) *clock {
	domain := "monotonic/" + h.Boot
	if h.Boot == "" {
		domain = fmt.Sprintf("monotonic/unknown-%s-%d", h.Host, h.PID)
	}
	c := a.clocks[domain]
	if c == nil {
		c = &clock{Clock: ledger.Clock{Domain: domain}}
		a.clocks[domain] = c
	}
	c.pair(h.Clock[0], h.Clock[1], h.Clock[2])
	return c
}

// pair takes up a reading (monotonic before, Unix, monotonic after). It returns what is wrong with it, or "".
func (c *clock) pair(before, unix, after int64) string {
	if before == 0 || unix == 0 || after < before {
		return ""
	}
	offset := unix - (before + (after-before)/2)
	half := (after - before) / 2
	if !c.set {
		c.Offset, c.Uncertainty, c.set = offset, half, true
		return ""
	}
	moved := offset - c.Offset
	if d := time.Duration(moved); d.Abs() > stepTolerance && moved > c.Uncertainty {
		c.Uncertainty = max(c.Uncertainty, d.Abs().Nanoseconds())
		return fmt.Sprintf("the wall clock of %s stepped by %v: times of day before and after may be off by that much; durations are not affected", c.Domain, d.Round(time.Millisecond))
	}
	return ""
}

// at is a producer's time on the book's line; 0 stays 0, which means not known.
func (c *clock) at(mono int64) int64 {
	if mono == 0 {
		return 0
	}
	return mono + c.Offset
}
