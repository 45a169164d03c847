package promapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/whylate/whylate/metrics"
)

func (h *handler) metadata(r *http.Request) result {
	limit, limitEach := -1, -1
	for name, into := range map[string]*int{"limit": &limit, "limit_per_metric": &limitEach} {
		if v := r.FormValue(name); v != "" {
			n, err := strconv.Atoi(v)
			if err != nil {
				return failed(badData, errors.New(name+" must be a number"))
			}
			*into = n
		}
	}
	all := h.db.Metadata()
	out := map[string][]metadata.Metadata{}
	names := slices.Sorted(maps.Keys(all))
	if only := r.FormValue("metric"); only != "" {
		names = []string{only}
	}
	for _, name := range names {
		if limit >= 0 && len(out) >= limit {
			break
		}
		if md, ok := all[name]; ok {
			out[name] = []metadata.Metadata{md}
		}
	}
	return result{data: out}
}

func (h *handler) targets(r *http.Request) result {
	active := []Target{}
	if state := r.FormValue("state"); state == "" || state == "active" || state == "any" {
		for _, t := range h.Targets() {
			if pool := r.FormValue("scrapePool"); pool == "" || pool == t.ScrapePool {
				active = append(active, t)
			}
		}
	}
	return result{data: map[string]any{"activeTargets": active, "droppedTargets": []Target{}, "droppedTargetCounts": map[string]int{}}}
}

// compatible is the version that clients are told: they choose by it what they may ask. It is the library's.
const compatible = "3.16.0"

func (h *handler) buildinfo(*http.Request) result {
	return result{data: map[string]string{"version": compatible, "revision": "whylate " + h.Version, "branch": "", "buildUser": "", "buildDate": "", "goVersion": runtime.Version()}}
}

func (h *handler) runtimeinfo(*http.Request) result {
	detail, rollup := h.db.Kept()
	name, _ := os.Hostname()
	return result{data: map[string]any{
		"startTime": h.Started.UTC(), "CWD": "", "hostname": name, "serverTime": h.Now().UTC(), "reloadConfigSuccess": true, "lastConfigTime": h.Started.UTC(),
		"corruptionCount": len(h.db.Lost()), "goroutineCount": runtime.NumGoroutine(), "GOMAXPROCS": runtime.GOMAXPROCS(0), "GOMEMLIMIT": 0, "GOGC": "", "GODEBUG": "",
		"storageRetention": fmt.Sprintf("%s in detail, %s of signals", kept(detail), kept(rollup)),
	}}
}

func kept(d time.Duration) string {
	if d == 0 {
		return "for ever"
	}
	return d.String()
}

func (h *handler) flags(*http.Request) result {
	flags := h.Flags
	if flags == nil {
		flags = map[string]string{}
	}
	return result{data: flags}
}

func (h *handler) cardinality(r *http.Request) result {
	limit := 10
	if v := r.FormValue("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return failed(badData, errors.New("limit must be a positive number"))
		}
		if n > 10_000 {
			return failed(badData, errors.New("limit must not exceed 10000"))
		}
		limit = n
	}
	c := h.db.Cardinality(limit)
	return result{data: map[string]any{
		"headStats":                   map[string]any{"numSeries": c.Series, "numLabelPairs": c.Pairs, "chunkCount": c.Chunks, "minTime": c.Since, "maxTime": c.Till},
		"seriesCountByMetricName":     listed(c.Names),
		"labelValueCountByLabelName":  listed(c.Labels),
		"memoryInBytesByLabelName":    listed(c.Bytes),
		"seriesCountByLabelValuePair": listed(c.ByPair),
	}}
}

func listed(cs []metrics.Count) []metrics.Count {
	if cs == nil {
		return []metrics.Count{}
	}
	return cs
}
