package dcgm

import (
	"fmt"
	"math/bits"
	"strings"
)

// Hold is a reason that holds a GPU's clocks down.
type Hold struct {
	Bit  uint64
	Name string
	Ask  string // what to look at, where it is a fault; else ""
}

var holds = []Hold{
	{0x1, "idle", ""},
	{0x2, "clocks set by an operator", ""},
	{0x4, "power cap, normal at high load", ""},
	{0x8, "hardware slowdown", "what triggers it: heat, power brake, or over-current"},
	{0x10, "sync boost: held to a slower GPU of its group", ""},
	{0x20, "thermal slowdown by software", "cooling: fans, air flow, inlet temperature"},
	{0x40, "thermal slowdown by hardware", "cooling at once: fans, air flow, inlet temperature"},
	{0x80, "power brake, a signal from outside: power supply or rack", "the power feed: supplies, rack, cables"},
	{0x100, "display clocks", ""},
}

// Holds decodes a mask of clock event (throttle) reasons. Bits that are not known keep their number.
func Holds(mask uint64) (hs []Hold) {
	for _, h := range holds {
		if mask&h.Bit != 0 {
			hs = append(hs, h)
			mask &^= h.Bit
		}
	}
	for ; mask != 0; mask &= mask - 1 {
		n := bits.TrailingZeros64(mask)
		hs = append(hs, Hold{Bit: 1 << n, Name: fmt.Sprintf("unknown reason, bit %d", n)})
	}
	return hs
}

// HoldsText is a mask in words: 136 = 0x88: hardware slowdown (0x8) + power brake (0x80).
func HoldsText(mask uint64) string {
	if mask == 0 {
		return "none"
	}
	hs := Holds(mask)
	if len(hs) == 1 {
		return fmt.Sprintf("%d = 0x%x: %s", mask, mask, hs[0].Name)
	}
	var said []string
	for _, h := range hs {
		said = append(said, fmt.Sprintf("%s (0x%x)", h.Name, h.Bit))
	}
	return fmt.Sprintf("%d = 0x%x: %s", mask, mask, strings.Join(said, " + "))
}
