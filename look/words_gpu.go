package look

import (
	"strconv"

	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/signals"
)

// called is how signals of devices are called in sentences.
var called = map[string]string{
	"hw.gpu.utilization": "utilisation", "gpu.memory_busy": "memory busy", "gpu.engine_active": "engine active", "gpu.sm_active": "SM active", "gpu.sm_occupancy": "SM occupancy",
	"gpu.tensor_active": "tensor active", "gpu.dram_active": "DRAM active", "gpu.clock.sm": "SM clock", "gpu.clock.sm_max": "highest SM clock", "gpu.clock.memory": "memory clock",
	"gpu.clock_events": "clock event reasons", "gpu.xid": "XID", "gpu.power": "power", "gpu.power_limit": "power limit", "gpu.energy": "energy", "gpu.temperature": "temperature",
	"gpu.memory_temperature": "memory temperature", "hw.gpu.memory.usage": "memory", "gpu.memory_free": "free memory", "hw.gpu.memory.utilization": "share of memory used", "gpu.pcie.tx": "PCIe out", "gpu.pcie.rx": "PCIe in",
}

func call(signal string) string {
	if w := called[signal]; w != "" {
		return w
	}
	return signal
}

// inUnit is a value in its signal's unit, as a person reads it.
func inUnit(signal string, v float64) string {
	s := signals.Lookup(signal)
	switch s.Unit {
	case "1":
		return share(v)
	case "Hz":
		return count(v/1e6) + " MHz"
	case "W":
		return tenths(v) + " W"
	case "Cel":
		return count(v) + " °C"
	case "By":
		return count(v/(1<<20)) + " MiB"
	case "By/s":
		return bytesRate(v)
	case "J":
		return joules(v)
	case "s":
		return seconds(v)
	case "{mask}":
		return dcgm.HoldsText(uint64(max(v, 0)))
	}
	return significantly(v)
}

func tenths(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

func joules(j float64) string {
	switch {
	case j >= 1e6:
		return count(j/1e3) + " kJ"
	case j >= 1e3:
		return tenths(j/1e3) + " kJ"
	}
	return count(j) + " J"
}

func bytesRate(v float64) string {
	switch {
	case v >= 1e9:
		return significant(v/1e9) + " GB/s"
	case v >= 1e6:
		return significant(v/1e6) + " MB/s"
	}
	return count(v) + " B/s"
}
