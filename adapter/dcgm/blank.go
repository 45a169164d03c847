package dcgm

import (
	"math"
	"strconv"
	"strings"

	"github.com/whylate/whylate/adapter"
)

// DCGM has no way to leave a number out, so certain numbers mean that there is none: from a base on, with the reason as the distance.
const (
	blank32 = 2147483632                  // 2³¹-16
	blank64 = uint64(9223372036854775792) // 2⁶³-16
	blankFP = 140737488355328             // 2⁴⁷
)

var blanks = []string{"blank", "not found", "not supported", "not permitted"}

// blank says why a value is none, "" where it is one. Of a wide field, values beyond 32 bits are normal.
func blank(p adapter.Point, wide bool) string {
	v := p.Value
	switch {
	case v >= 1<<63-1024: // nothing that is measured comes near
		return blankOf64(p.Text)
	case v >= blankFP && v <= blankFP+3 && v == math.Trunc(v):
		return blanks[int(v-blankFP)]
	case !wide && v >= blank32 && v <= math.MaxInt32 && v == math.Trunc(v):
		return reason(int(v - blank32))
	}
	return ""
}

// blankOf64 needs the digits as they stood: a float64 has too few of them, and whoever passed the number through one has lost the reason.
func blankOf64(text string) string {
	whole, zeros, _ := strings.Cut(text, ".")
	if n, err := strconv.ParseUint(whole, 10, 64); err == nil && strings.Trim(zeros, "0") == "" && n >= blank64 && n < blank64+15 {
		return reason(int(n - blank64))
	}
	return "blank, its reason lost in rounding"
}

func reason(n int) string {
	if n < len(blanks) {
		return blanks[n]
	}
	return "blank, of an unknown kind"
}

// wide reports whether a field counts so high that a 32-bit blank is among its values.
func wide(family string) bool {
	for _, part := range []string{"BYTES", "ENERGY", "VIOLATION", "_NS", "THROUGHPUT", "BANDWIDTH", "_TOTAL", "_COUNT"} {
		if strings.Contains(family, part) {
			return true
		}
	}
	return false
}
