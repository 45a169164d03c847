package dcgm

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

const smiPrefix = "nvidia-smi:"

// Put takes a sample of a table: of which series, and which point.
type Put func(family string, ls exposition.Labels, p adapter.Point)

// Table reads what nvidia-smi, alone, with --query-gpu --format=csv or dmon, or dcgmi dmon printed. Kind is "" where it is none of them. A cell that
// is no number becomes a point without a value, with its text.
func Table(b []byte, put Put) (kind string, problems []string) {
	head, _, _ := bytes.Cut(bytes.TrimLeft(b, " \t\r\n\ufeff"), []byte("\n"))
	line := strings.TrimSpace(string(head))
	t := table{put: put}
	switch {
	case bytes.Contains(b, []byte("| NVIDIA-SMI ")):
		return "nvidia-smi", screen(b, put)
	case strings.HasPrefix(line, "#"):
		t.columns = strings.Fields(strings.TrimPrefix(line, "#"))
		t.split = strings.Fields
		switch {
		case len(t.columns) < 2:
		case strings.EqualFold(t.columns[0], "entity"):
			kind, t.family = "dcgmi dmon", fromDmon
		case slices.Contains([]string{"gpu", "Date", "Time"}, t.columns[0]):
			kind, t.family = "nvidia-smi dmon", fromSMIDmon
		}
	case strings.Contains(line, ","):
		t.split = func(line string) []string { return strings.Split(line, ",") }
		for _, c := range t.split(line) {
			name, _, _ := strings.Cut(strings.TrimSpace(c), " [")
			t.columns = append(t.columns, name)
		}
		kind, t.family = "nvidia-smi CSV", func(column string) string { return smiPrefix + column }
	}
	switch {
	case kind == "" || !t.known():
		return "", nil
	case kind != "dcgmi dmon" && !t.named():
		return kind, []string{"no column says which GPU a row is of: ask for index or uuid too"}
	}
	n := 0
	for line := range bytes.Lines(b) {
		n++
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' || strings.HasPrefix(text+" ", "ID ") || text == string(bytes.TrimSpace(head)) {
			continue // a header, again or with the units
		}
		if why := t.row(text, kind); why != "" {
			problems = append(problems, fmt.Sprintf("line %d: %s", n, why))
		}
	}
	return kind, problems
}

type table struct {
	columns []string
	split   func(string) []string
	family  func(column string) string
	put     Put
}

// known reports whether any column is one that is understood.
func (t *table) known() bool {
	for _, c := range t.columns {
		f := t.family(c)
		if reasonOf(c) != 0 {
			return true
		}
		if len(signals.Named("dcgm", f))+len(signals.Named("nvidia-smi", f)) > 0 {
			return true
		}
	}
	return false
}

// named reports whether a column tells the GPUs apart.
func (t *table) named() bool {
	return slices.ContainsFunc(t.columns, func(c string) bool { l := label[strings.ToLower(c)]; return l != "" && l != "modelName" })
}

func (t *table) row(text, kind string) (problem string) {
	cells := t.split(text)
	columns := t.columns
	var ls exposition.Labels
	if kind == "dcgmi dmon" {
		var ok bool
		columns = columns[1:]
		if ls, cells, ok = entity(cells, len(columns)); !ok {
			return "no row of a GPU: " + exposition.Printable(text, 60)
		}
	}
	if len(cells) != len(columns) {
		return fmt.Sprintf("%d columns, and %d cells: %s", len(columns), len(cells), exposition.Printable(text, 60))
	}
	var at int64
	var held uint64 // of single columns
	told := false
	for i, c := range columns {
		cells[i] = strings.TrimSpace(cells[i])
		if name := label[strings.ToLower(c)]; name != "" && known(cells[i]) {
			ls = append(ls, exposition.Label{Name: name, Value: cells[i]})
		}
		switch bit := reasonOf(c); {
		case c == "timestamp":
			at = when(cells[i], "2006/01/02 15:04:05.999")
		case c == "Time" && i > 0 && columns[i-1] == "Date":
			at = when(cells[i-1]+" "+cells[i], "20060102 15:04:05")
		case bit != 0 && cells[i] == "Active":
			held, told = held|bit, true
		case bit != 0 && cells[i] == "Not Active":
			told = true
		}
	}
	slices.SortFunc(ls, func(a, b exposition.Label) int { return strings.Compare(a.Name, b.Name) })
	if told && !slices.Contains(columns, "clocks_event_reasons.active") && !slices.Contains(columns, "clocks_throttle_reasons.active") {
		t.put(smiPrefix+"clocks_event_reasons.active", ls, adapter.Point{At: at, Value: float64(held)})
	}
	for i, c := range columns {
		if f := t.family(c); label[strings.ToLower(c)] == "" && f != "" && c != "timestamp" {
			t.put(f, ls, point(cells[i], at))
		}
	}
	return ""
}

// label is which label a column is; they are the exporter's.
var label = map[string]string{
	"index": "gpu", "gpu": "gpu", "uuid": "UUID", "gpu_uuid": "UUID", "pci.bus_id": "pci_bus_id", "gpu_bus_id": "pci_bus_id", "name": "modelName", "gpu_name": "modelName",
}

// entity is whom a row of dcgmi dmon is about: "GPU 1", "GPU-I 1/0" for an instance of GPU 1, or only "1".
func entity(cells []string, columns int) (ls exposition.Labels, rest []string, ok bool) {
	n := len(cells) - columns
	if n != 1 && n != 2 {
		return nil, nil, false
	}
	if n == 2 && cells[0] != "GPU" && cells[0] != "GPU-I" && cells[0] != "GPU-CI" {
		return nil, nil, false
	}
	gpu, instance, found := strings.Cut(cells[n-1], "/")
	if _, err := strconv.Atoi(gpu); err != nil || !found && n == 2 && cells[0] != "GPU" { // an instance of who knows which GPU
		return nil, nil, false
	}
	ls = exposition.Labels{{Name: "gpu", Value: gpu}}
	if instance != "" {
		ls = exposition.Labels{{Name: "GPU_I_ID", Value: instance}, ls[0]}
	}
	return ls, cells[n:], true
}

func known(cell string) bool {
	return cell != "" && cell != "N/A" && cell != "ERR!" && !strings.HasPrefix(cell, "[")
}

// point is a cell: a number with its unit behind it, a mask, or that none of a mask is active.
func point(cell string, at int64) adapter.Point {
	number, _, _ := strings.Cut(cell, " ")
	if cell == "Not Active" {
		number = "0"
	}
	if mask, ok := strings.CutPrefix(number, "0x"); ok {
		if n, err := strconv.ParseUint(mask, 16, 64); err == nil {
			return adapter.Point{At: at, Value: float64(n), Text: exact(float64(n), strconv.FormatUint(n, 10))}
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) {
		return adapter.Point{At: at, Value: math.NaN(), Text: cell}
	}
	return adapter.Point{At: at, Value: v, Text: exact(v, number)}
}

func exact(v float64, text string) string {
	if math.Abs(v) < 1<<53 {
		return ""
	}
	return text
}

// when is nvidia-smi's time, which names no zone: it serves for distances.
func when(cell, layout string) int64 {
	at, err := time.Parse(layout, cell)
	if err != nil {
		return 0
	}
	return at.UnixNano()
}

// fromDmon is the field of a column of dcgmi dmon.
func fromDmon(column string) string { return dmon[column] }

var dmon = map[string]string{
	"GPUTL": "DCGM_FI_DEV_GPU_UTIL", "MCUTL": "DCGM_FI_DEV_MEM_COPY_UTIL", "GRACT": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "SMACT": "DCGM_FI_PROF_SM_ACTIVE",
	"SMOCC": "DCGM_FI_PROF_SM_OCCUPANCY", "TENSO": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DRAMA": "DCGM_FI_PROF_DRAM_ACTIVE", "PCITX": "DCGM_FI_PROF_PCIE_TX_BYTES",
	"PCIRX": "DCGM_FI_PROF_PCIE_RX_BYTES", "NVLTX": "DCGM_FI_PROF_NVLINK_TX_BYTES", "NVLRX": "DCGM_FI_PROF_NVLINK_RX_BYTES", "SMCLK": "DCGM_FI_DEV_SM_CLOCK",
	"SMMAX": "DCGM_FI_DEV_MAX_SM_CLOCK", "MMCLK": "DCGM_FI_DEV_MEM_CLOCK", "TMPTR": "DCGM_FI_DEV_GPU_TEMP", "MMTMP": "DCGM_FI_DEV_MEMORY_TEMP", "POWER": "DCGM_FI_DEV_POWER_USAGE",
	"POWINST": "DCGM_FI_DEV_POWER_USAGE_INSTANT", "TOTEC": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "XIDER": "DCGM_FI_DEV_XID_ERRORS", "DVCCTR": "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
	"FBTTL": "DCGM_FI_DEV_FB_TOTAL", "FBFRE": "DCGM_FI_DEV_FB_FREE", "FBUSD": "DCGM_FI_DEV_FB_USED", "PVIOL": "DCGM_FI_DEV_POWER_VIOLATION", "TVIOL": "DCGM_FI_DEV_THERMAL_VIOLATION",
}

// fromSMIDmon is nvidia-smi's query name of a column of its dmon.
func fromSMIDmon(column string) string {
	if name := smiDmon[column]; name != "" {
		return smiPrefix + name
	}
	return ""
}

var smiDmon = map[string]string{
	"pwr": "power.draw", "gtemp": "temperature.gpu", "mtemp": "temperature.memory", "sm": "utilization.gpu", "mem": "utilization.memory", "mclk": "clocks.mem", "pclk": "clocks.sm", "fb": "memory.used",
}
