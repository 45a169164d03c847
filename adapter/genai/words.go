package genai

import (
	"fmt"
	"strings"
	"time"
)

// millis writes a duration for people.
func millis(ns int64) string {
	ms := float64(ns) / 1e6
	switch {
	case max(ms, -ms) >= 100_000:
		return fmt.Sprintf("%s s", thousands(ms/1000, 1))
	case max(ms, -ms) >= 100:
		return thousands(ms, 0) + " ms"
	}
	return thousands(ms, 1) + " ms"
}

// thousands is a number with commas and some decimals.
func thousands(v float64, decimals int) string {
	s := fmt.Sprintf("%.*f", decimals, v)
	whole, frac, _ := strings.Cut(s, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for k := len(whole) - 3; k > 0; k -= 3 {
		whole = whole[:k] + "," + whole[k:]
	}
	if frac != "" {
		whole += "." + frac
	}
	return sign + whole
}

func tenths(ns int64) string { return thousands(float64(ns)/1e6, 1) + " ms" }

func signed(ns int64) string {
	if ns > 0 {
		return "+" + tenths(ns)
	}
	return tenths(ns)
}

// clock is a time of day, in UTC so that a view does not depend on where it is read.
func clock(ns int64) string { return time.Unix(0, ns).UTC().Format("15:04:05.000Z") }

func bytesOf(n int64) string { return thousands(float64(n), 0) + " bytes" }
