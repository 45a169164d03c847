package dcgm

import (
	"fmt"
	"math/bits"
	"strings"
)

// reasons are the bits of a mask by the names that nvidia-smi has for them, one column each.
var reasons = map[string]uint64{
	"gpu_idle": 0x1, "applications_clocks_setting": 0x2, "sw_power_cap": 0x4, "hw_slowdown": 0x8, "sync_boost": 0x10, "sw_thermal_slowdown": 0x20,
	"hw_thermal_slowdown": 0x40, "hw_power_brake_slowdown": 0x80,
}

// reasonOf is the bit that a column of nvidia-smi tells of, 0 where it is none.
func reasonOf(column string) uint64 {
	for _, prefix := range []string{"clocks_event_reasons.", "clocks_throttle_reasons."} {
		if name, ok := strings.CutPrefix(column, prefix); ok {
			return reasons[name]
		}
	}
	return 0
}

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
