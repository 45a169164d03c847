package look

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/exposition"
)

// number reads what JSON and exporters write for a number; false where it is none.
func number(text string) (float64, bool) {
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	return v, err == nil && !math.IsNaN(v)
}

// seconds is a duration in the unit that suits it.
func seconds(s float64) string {
	switch a := math.Abs(s); {
	case math.IsNaN(s):
		return "unknown"
	case a >= 100:
		return count(math.Round(s)) + " s"
	case a >= 1 || a == 0:
		return significant(s) + " s"
	case a >= 1e-3:
		return significant(s*1e3) + " ms"
	}
	return significant(s*1e6) + " µs"
}

// significant is a number with three digits that count.
func significant(f float64) string {
	if f == 0 {
		return "0"
	}
	return strconv.FormatFloat(f, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(f))))), 64)
}

// count is a whole number with its thousands apart.
func count(f float64) string {
	s := strconv.FormatFloat(math.Round(math.Abs(f)), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if f < 0 {
		return "-" + s
	}
	return s
}

// share is a fraction in per cent.
func share(f float64) string { return strconv.FormatFloat(100*f, 'f', 1, 64) + " %" }

// between is an interval of durations, in words that claim no more than it.
func between(b exposition.Between) string {
	switch {
	case b.Floor() && b.Cap():
		return "unknown"
	case b.Floor():
		return "below " + seconds(b.High) + " (the first bucket)"
	case b.Cap():
		return "over " + seconds(b.Low) + " (the last bucket)"
	}
	return seconds(b.Low) + " to " + seconds(b.High)
}

// significantly is significant with its sign and all its decimals where they are few.
func significantly(f float64) string { return strconv.FormatFloat(f, 'g', 6, 64) }

func sentence(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, " ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}
