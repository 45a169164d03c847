package promapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

// The ends of time that clients write for "whenever", as Prometheus has them.
var (
	minTime = time.Unix(math.MinInt64/1000+62135596801, 0).UTC()
	maxTime = time.Unix(math.MaxInt64/1000-62135596801, 999999999).UTC()
)

func timeOr(r *http.Request, name string, standard time.Time) (time.Time, error) {
	v := r.FormValue(name)
	if v == "" {
		return standard, nil
	}
	t, err := parseTime(v)
	if err != nil {
		return time.Time{}, fmt.Errorf("invalid time value for '%s': %w", name, err)
	}
	return t, nil
}

// parseTime reads Unix seconds or RFC 3339.
func parseTime(s string) (time.Time, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		whole, part := math.Modf(f)
		part = math.Round(part*1000) / 1000
		return time.Unix(int64(whole), int64(part*float64(time.Second))).UTC(), nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	switch s { // years of more than four digits are not read by the standard library
	case minTime.Format(time.RFC3339Nano):
		return minTime, nil
	case maxTime.Format(time.RFC3339Nano):
		return maxTime, nil
	}
	return time.Time{}, fmt.Errorf("cannot parse %q to a valid timestamp", s)
}

// parseDuration reads seconds or 1h30m.
func parseDuration(s string) (time.Duration, error) {
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		ns := f * float64(time.Second)
		if math.IsNaN(ns) || ns >= math.MaxInt64 || ns < math.MinInt64 {
			return 0, fmt.Errorf("cannot parse %q to a valid duration. It overflows int64", s)
		}
		return time.Duration(ns), nil
	}
	if d, err := model.ParseDuration(s); err == nil {
		return time.Duration(d), nil
	}
	return 0, fmt.Errorf("cannot parse %q to a valid duration", s)
}

// limitOf is how many series, names or values an answer may have; 0 where nobody says it.
func limitOf(r *http.Request) (int, error) {
	v := r.FormValue("limit")
	if v == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(v)
	switch {
	case err != nil:
		return 0, err
	case n < 0:
		return 0, errors.New("limit must be non-negative")
	}
	return n, nil
}

// bounded is a limit that is none, or too large, brought down to what one answer holds.
func bounded(limit int) int {
	if limit == 0 || limit > maxLines {
		return maxLines
	}
	return limit
}

// within is the context of a request that may say how long it waits.
func within(r *http.Request) (context.Context, context.CancelFunc, error) {
	v := r.FormValue("timeout")
	if v == "" {
		return r.Context(), func() {}, nil
	}
	d, err := parseDuration(v)
	if err != nil {
		return nil, nil, err
	}
	if d <= 0 {
		return nil, nil, fmt.Errorf("timeout must be positive, got %s", d)
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	return ctx, cancel, nil
}

// matchers are what match[] says, each with a matcher that does not match everything.
func (h *handler) matchers(r *http.Request) ([][]*labels.Matcher, error) {
	sets, err := h.parser.ParseMetricSelectors(r.Form["match[]"])
	if err != nil {
		return nil, err
	}
sets:
	for _, set := range sets {
		for _, m := range set {
			if m != nil && !m.Matches("") {
				continue sets
			}
		}
		return nil, errors.New("match[] must contain at least one non-empty matcher")
	}
	return sets, nil
}

// truncated cuts a result that has more series than a limit that is not 0.
func truncated(v parser.Value, limit int) (parser.Value, bool) {
	switch v := v.(type) {
	case promql.Matrix:
		if limit > 0 && len(v) > limit {
			return v[:limit], true
		}
	case promql.Vector:
		if limit > 0 && len(v) > limit {
			return v[:limit], true
		}
	}
	return v, false
}
