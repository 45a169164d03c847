package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/wire"
)

// whose are the columns that say whom a row is about; they come first.
var whose = []string{"index", "uuid", "name", "pci.bus_id", "driver_version", "mig.mode.current"}

// measured are the columns that are signals. What a driver does not know is left out, one by one.
var measured = []string{
	"utilization.gpu", "utilization.memory", "memory.total", "memory.used", "memory.free", "memory.reserved", "power.draw.average", "power.draw", "power.draw.instant",
	"enforced.power.limit", "temperature.gpu", "temperature.memory", "temperature.gpu.tlimit", "clocks.current.sm", "clocks.max.sm", "clocks.current.memory", "clocks.max.memory",
	"clocks_event_reasons.active", "clocks_throttle_reasons.active", "pstate", "ecc.errors.corrected.volatile.total", "ecc.errors.uncorrected.volatile.total",
	"pcie.link.gen.current", "pcie.link.gen.max", "pcie.link.width.current", "pcie.link.width.max",
}

// secondLong are the columns that are an average of the last second.
var secondLong = map[string]bool{"power.draw.average": true}

var unknownField = regexp.MustCompile(`^Field "([\w.]+)" is not a valid field to query`)

// Row reads one line that nvidia-smi printed for some columns (--format=csv,noheader,nounits). It never fails as a whole because of a
// cell: what is no number is a signal without a value, with the reason.
func Row(line string, columns []string, at int64, every time.Duration) (Reading, error) {
	cells := strings.Split(line, ",")
	if len(cells) != len(columns) {
		return Reading{}, fmt.Errorf("%d columns were asked for, and %d cells came: %q", len(columns), len(cells), clip(line))
	}
	r := Reading{Body: SMI}
	d := NewDraft(SMI, at, every)
	for i, column := range columns {
		cell := strings.TrimSpace(cells[i])
		if needsReset(cell) {
			d.State, d.Why = wire.DeviceLost, "nvidia-smi says that the GPU requires a reset; stop what runs on it and reset it (nvidia-smi --gpu-reset), or reboot"
		}
		if r.Device.is(column, cell) {
			continue
		}
		if value, why := number(cell); why != 0 {
			d.None(column, why, 0)
		} else if secondLong[column] {
			d.Put(column, value, time.Second)
		} else {
			d.Put(column, value, 0)
		}
	}
	if !strings.HasPrefix(r.Device.UUID, "GPU-") {
		return Reading{}, fmt.Errorf("no UUID of a GPU in %q", clip(line))
	}
	r.Sample = d.Sample
	if r.Device.Divided {
		r.ofParts()
	}
	return r, nil
}

// is takes a column that says whom a row is about.
func (d *Device) is(column, cell string) bool {
	switch column {
	case "index":
		d.Index, _ = strconv.Atoi(cell)
	case "uuid":
		d.UUID = cell
	case "name":
		d.Name = cell
	case "pci.bus_id":
		d.PCI = cell
	case "driver_version":
		d.Driver = cell
	case "mig.mode.current":
		d.Divided = cell == "Enabled"
	default:
		return false
	}
	return true
}

// ofParts says of a divided GPU that it has no utilisation of its own, rather than that it does not support one.
func (r *Reading) ofParts() {
	for i := range r.Absent {
		a := &r.Absent[i]
		if name := Names[a.Signal]; a.Why == wire.AbsentNotSupported && (name == "hw.gpu.utilization" || name == "gpu.memory_busy") {
			a.Why = wire.AbsentShared
		}
	}
}

func needsReset(cell string) bool {
	return strings.Contains(cell, "requires reset") || strings.Contains(cell, "is lost")
}

// number is a cell's value, or why it has none: there are more ways of saying so than drivers.
func number(cell string) (float64, wire.AbsentReason) {
	word := strings.ToLower(strings.Trim(cell, "[] "))
	switch word {
	case "", "n/a", "-", "not supported", "function not found":
		return 0, wire.AbsentNotSupported
	case "insufficient permissions", "no permission":
		return 0, wire.AbsentNotPermitted
	case "unknown error", "err!", "gpu requires reset", "gpu is lost":
		return 0, wire.AbsentReadError
	case "not active":
		return 0, 0
	}
	if hex, ok := strings.CutPrefix(word, "0x"); ok {
		if n, err := strconv.ParseUint(hex, 16, 64); err == nil {
			return float64(n), 0
		}
		return 0, wire.AbsentReadError
	}
	word, _, _ = strings.Cut(word, " ") // a unit, where some driver prints it all the same
	if state, ok := strings.CutPrefix(word, "p"); ok {
		word = state // P0 … P15
	}
	v, err := strconv.ParseFloat(word, 64)
	switch {
	case err != nil:
		return 0, wire.AbsentReadError
	case v >= 2147483632 && v <= 2147483647 || v >= 1<<63-1024: // DCGM's way, which some tools hand on
		return 0, wire.AbsentBlank
	}
	return v, 0
}

// process reads one line of nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory.
func process(line string) (uuid string, p wire.SampleProcess, err error) {
	cells := strings.Split(line, ",")
	if len(cells) != 3 {
		return "", p, fmt.Errorf("3 columns were asked for, and %d cells came: %q", len(cells), clip(line))
	}
	pid, err := strconv.ParseUint(strings.TrimSpace(cells[1]), 10, 32)
	if err != nil {
		return "", p, fmt.Errorf("no process in %q", clip(line))
	}
	p = wire.SampleProcess{PID: uint32(pid), Busy: -1, Used: unknownBytes}
	if mib, why := number(strings.TrimSpace(cells[2])); why == 0 && mib >= 0 && mib < 1e9 {
		p.Used = uint64(mib * (1 << 20))
	}
	return strings.TrimSpace(cells[0]), p, nil
}

const unknownBytes = 1<<64 - 1

func clip(line string) string {
	if len(line) > 300 {
		return line[:300] + "…"
	}
	return line
}
