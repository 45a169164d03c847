// Package amd understands what AMD's device-metrics exporter says of GPUs.
package amd

import (
	"cmp"
	"math"
	"slices"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

// Exporter understands the exporter's /metrics, with the prefix of its sample configuration (amd_) and without. All of it is declared gauge.
var Exporter = adapter.Adapter{
	Producer: "amd",
	Owns:     func(family string) bool { return len(signals.Named("amd", family)) > 0 },
	Who: func(t *adapter.Track, w *adapter.Who) {
		ls := t.Labels
		w.Node, w.Index = ls.Get("hostname"), ls.Get("gpu_id")
		switch uuid := ls.Get("gpu_uuid"); {
		case uuid != "":
			w.Device = uuid
		case w.Index != "":
			w.Device = cmp.Or(w.Node, w.Target) + " gpu " + w.Index
		}
		w.Workload = adapter.Workload(ls)
	},
	Value: value,
}

// unsupported are all ones in each width: how the library says that there is no such number.
var unsupported = []float64{math.MaxUint16, math.MaxUint32, math.MaxUint64}

// OfBoard is why a partition has no power: it is measured for the board, in its first partition's series.
const OfBoard = "not measured for partitions"

func value(t *adapter.Track, p adapter.Point) (float64, string) {
	partition := t.Labels.Get("gpu_partition_id")
	switch {
	case slices.Contains(unsupported, p.Value):
		return 0, "not supported"
	case p.Value == 0 && partition != "" && partition != "0":
		return 0, OfBoard
	}
	return p.Value, ""
}
