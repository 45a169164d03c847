// Package dcgm understands what NVIDIA's tools say of GPUs: the DCGM exporter of all generations, and the texts of dcgmi and nvidia-smi.
package dcgm

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// Exporter understands the DCGM exporter, and dcgmi dmon, whose columns are its fields.
var Exporter = adapter.Adapter{Producer: "dcgm", Owns: adapter.Prefixed("DCGM_"), Who: who, Value: value}

// SMI understands nvidia-smi's columns, as Table reads them.
var SMI = adapter.Adapter{Producer: "nvidia-smi", Owns: adapter.Prefixed(smiPrefix), Who: who, Value: value}

// who tells the GPU apart. Its model_name is a board's and never a language model's: it is not taken.
func who(t *adapter.Track, w *adapter.Who) {
	ls := t.Labels
	w.Node = node(ls)
	pci := ls.Get("pci_bus_id")
	w.Index = cmp.Or(ls.Get("gpu"), pci)
	switch uuid := first(ls, "UUID", "uuid", "gpu_uuid"); {
	case uuid != "":
		w.Device = uuid
	case pci != "" && w.Node != "":
		w.Device = w.Node + " " + pci
	case w.Index != "" && w.Node != "":
		w.Device = w.Node + " gpu " + w.Index
	case w.Index != "":
		w.Device = w.Target + " gpu " + w.Index
	default:
		return // a switch, a CPU
	}
	if id := ls.Get("GPU_I_ID"); id == "" {
		w.Workload = owner(ls)
	} else if perInstance(t.Family) {
		w.Workload = owner(ls)
		w.Slice = strings.TrimSpace(ls.Get("GPU_I_PROFILE") + " id " + id)
	}
}

// Identified reports whether a device is known by more than an index in some text.
func Identified(w adapter.Who) bool { return w.Device != w.Target+" gpu "+w.Index }

// perInstance reports whether a field is measured for each instance of a partitioned GPU. All others are the board's, however many lines
// repeat them.
func perInstance(family string) bool {
	return strings.HasPrefix(family, "DCGM_FI_PROF_") && !strings.Contains(family, "PCIE") && !strings.Contains(family, "NVLINK") ||
		strings.HasPrefix(family, "DCGM_FI_DEV_FB_") || ofWhole(family)
}

// ofWhole reports whether a field is measured for whole GPUs only.
func ofWhole(family string) bool {
	return strings.HasPrefix(family, "DCGM_FI_DEV_GPU_UTIL") || strings.HasPrefix(family, "DCGM_FI_DEV_MEM_COPY_UTIL")
}

// node is the host's name. Hostname is the exporter's pod where nobody told it better.
func node(ls exposition.Labels) string {
	if n := first(ls, "node", "kubernetes_node", "node_name"); n != "" {
		return n
	}
	name := first(ls, "Hostname", "hostname")
	if name == ls.Get("pod") || exporters(name) {
		return ""
	}
	return name
}

// owner is namespace/pod of the workload, "" where only the exporter itself is named.
func owner(ls exposition.Labels) string {
	if ls.Get("exported_pod") == "" && (exporters(ls.Get("pod")) || exporters(ls.Get("container")) || ls.Get("pod") != "" && ls.Get("pod") == first(ls, "Hostname", "hostname")) {
		return ""
	}
	if pod := ls.Get("pod_name"); pod != "" { // as old exporters wrote it
		return strings.TrimPrefix(ls.Get("pod_namespace")+"/"+pod, "/")
	}
	return adapter.Workload(ls)
}

// Exporters are the pods named in labels that are not the GPU's owner.
func exporters(name string) bool {
	return strings.Contains(name, "exporter") || strings.Contains(name, "dcgm")
}

func first(ls exposition.Labels, names ...string) string {
	for _, n := range names {
		if v := ls.Get(n); v != "" {
			return v
		}
	}
	return ""
}

// OfWhole is why an instance of a partitioned GPU has no utilisation: it is measured for whole GPUs.
const OfWhole = "not measured for instances"

// value is a native value, or why there is none.
func value(t *adapter.Track, p adapter.Point) (float64, string) {
	if math.IsNaN(p.Value) {
		return 0, inWords(p.Text)
	}
	if t.Labels.Get("GPU_I_ID") != "" && ofWhole(t.Family) {
		return 0, OfWhole
	}
	if why := blank(p, wide(t.Family)); why != "" {
		return 0, why
	}
	if t.Family == "DCGM_FI_DEV_GPU_UTIL_RATIO" && (fraction(p) || p.Value == 1 && slices.ContainsFunc(t.Points, fraction)) {
		return 100 * p.Value, ""
	}
	return p.Value, ""
}

// fraction reports whether a value is none of whole per cents: then a later DCGM sends the field from 0 to 1.
func fraction(p adapter.Point) bool { return p.Value > 0 && p.Value < 1 }

// inWords is the reason that a text gives in a number's place.
func inWords(text string) string {
	word := strings.ToLower(strings.Trim(text, "[] "))
	switch word {
	case "n/a", "-", "":
		return "N/A"
	case "err!":
		return "read error (ERR!)"
	case "insufficient permissions":
		return "not permitted"
	}
	return cmp.Or(exposition.Printable(word, 30), "not a number")
}
