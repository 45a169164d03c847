package dcgm

import (
	"bytes"
	"regexp"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

// A GPU takes two lines of the screen that nvidia-smi draws: who it is, and how it is.
var (
	screenWho = regexp.MustCompile(`^\|\s+(\d+)\s+\S.*\|\s*([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s`)
	screenHow = regexp.MustCompile(`^\|\s*\S+\s+(\S+)\s+P\S+\s+(\S+)\s*/\s*(\S+)\s*\|\s*(\S+?)(?:MiB)?\s*/\s*(\S+?)(?:MiB)?\s*\|\s*(\S+)\s+\S`)
)

var screenColumns = []string{"temperature.gpu", "power.draw", "power.limit", "memory.used", "memory.total", "utilization.gpu"}

// screen reads what nvidia-smi draws without options.
func screen(b []byte, put Put) []string {
	var ls exposition.Labels
	for line := range bytes.Lines(b) {
		if m := screenWho.FindSubmatch(line); m != nil {
			ls = exposition.Labels{{Name: "gpu", Value: string(m[1])}, {Name: "pci_bus_id", Value: string(m[2])}}
			continue
		}
		m := screenHow.FindSubmatch(line)
		if m == nil || ls == nil {
			continue
		}
		for i, column := range screenColumns {
			put(smiPrefix+column, ls, bare(string(m[i+1])))
		}
		ls = nil
	}
	return nil
}

var unit = regexp.MustCompile(`^(-?[0-9.]+)[CW%]$`)

// bare is a cell whose unit touches its number.
func bare(cell string) adapter.Point {
	if m := unit.FindStringSubmatch(cell); m != nil {
		cell = m[1]
	}
	return point(cell, 0)
}
