package diagnose

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/ledger"
)

// Span prints nanoseconds as a person reads them: milliseconds, from a second on seconds, to three digits.
func Span(ns int64) string {
	switch d := time.Duration(ns); {
	case ns == 0:
		return "0"
	case d.Abs() >= 100*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d.Abs() >= 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d.Abs() >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d.Abs() >= 100*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(ns)/1e6)
	default:
		return fmt.Sprintf("%.1f ms", float64(ns)/1e6)
	}
}

// Clock prints a time of day, local, to the millisecond; "-" if it is not known.
func Clock(unixNS int64) string {
	if unixNS == 0 {
		return "-"
	}
	return time.Unix(0, unixNS).Format("15:04:05.000")
}

// list joins at most n names and says how many more there are.
func list(names []string, n int) string {
	if len(names) > n {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
	}
	if k := len(names) - 1; k > 0 {
		return strings.Join(names[:k], ", ") + " and " + names[k]
	}
	return strings.Join(names, "")
}

// requestNames names the requests of the sequences, each once.
func requestNames(qs []*ledger.Sequence) []string {
	var names []string
	for _, q := range qs {
		if name := q.Request.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
