package promapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/stats"
)

func (h *handler) query(r *http.Request) result {
	limit, err := limitOf(r)
	if err != nil {
		return invalid("limit", err)
	}
	at, err := timeOr(r, "time", h.Now())
	if err != nil {
		return invalid("time", err)
	}
	return h.ask(r, limit, func(ctx context.Context, o promql.QueryOpts) (promql.Query, error) {
		return h.engine.NewInstantQuery(ctx, h.queryable, o, r.FormValue("query"), at)
	})
}

func (h *handler) queryRange(r *http.Request) result {
	limit, err := limitOf(r)
	if err != nil {
		return invalid("limit", err)
	}
	start, err := parseTime(r.FormValue("start"))
	if err != nil {
		return invalid("start", err)
	}
	end, err := parseTime(r.FormValue("end"))
	if err != nil {
		return invalid("end", err)
	}
	if end.Before(start) {
		return invalid("end", errors.New("end timestamp must not be before start time"))
	}
	step, err := parseDuration(r.FormValue("step"))
	if err != nil {
		return invalid("step", err)
	}
	if step <= 0 {
		return invalid("step", errors.New("zero or negative query resolution step widths are not accepted. Try a positive integer"))
	}
	if end.Sub(start)/step > maxPoints {
		return failed(badData, errors.New("exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"))
	}
	return h.ask(r, limit, func(ctx context.Context, o promql.QueryOpts) (promql.Query, error) {
		return h.engine.NewRangeQuery(ctx, h.queryable, o, r.FormValue("query"), start, end, step)
	})
}

// ask runs a query. What it returns is valid until done.
func (h *handler) ask(r *http.Request, limit int, build func(context.Context, promql.QueryOpts) (promql.Query, error)) (res result) {
	ctx, cancel, err := within(r)
	if err != nil {
		return invalid("timeout", err)
	}
	defer cancel()
	var lookback time.Duration
	if v := r.FormValue("lookback_delta"); v != "" {
		if lookback, err = parseDuration(v); err != nil {
			return failed(badData, fmt.Errorf("error parsing lookback delta duration: %w", err))
		}
	}
	wanted := r.FormValue("stats")
	q, err := build(ctx, promql.NewPrometheusQueryOpts(wanted == "all", lookback, nil))
	if err != nil {
		if f := classified(err); f.kind != exec {
			return result{err: f}
		}
		return invalid("query", err)
	}
	defer func() {
		if res.done == nil {
			q.Close()
		}
	}()
	got := q.Exec(ctx)
	if got.Err != nil {
		return result{err: classified(got.Err), annotations: got.Warnings, done: q.Close}
	}
	a := &answered{value: got.Value}
	if cut, ok := truncated(got.Value, limit); ok {
		a.value = cut
		got.Warnings.Add(errTruncated)
	}
	if wanted != "" {
		a.stats = stats.NewQueryStats(q.Stats())
	}
	return result{data: a, annotations: got.Warnings, large: samples(got.Value) > largeAnswer, done: q.Close}
}

// samples is how many a value has, a series without any counting as one.
func samples(v parser.Value) (n int) {
	switch v := v.(type) {
	case promql.Vector:
		return len(v)
	case promql.Matrix:
		for _, s := range v {
			n += 1 + len(s.Floats) + 16*len(s.Histograms)
		}
	}
	return n
}

var errTruncated = errors.New("results truncated due to limit")

// exemplars are none: they carry ids of traces, and those are in the ledger.
func (h *handler) exemplars(r *http.Request) result {
	start, err := timeOr(r, "start", minTime)
	if err != nil {
		return invalid("start", err)
	}
	end, err := timeOr(r, "end", maxTime)
	if err != nil {
		return invalid("end", err)
	}
	if end.Before(start) {
		return failed(badData, errors.New("end timestamp must not be before start timestamp"))
	}
	if _, err := h.parser.ParseExpr(r.FormValue("query")); err != nil {
		return failed(badData, err)
	}
	return result{data: []struct{}{}}
}

func (h *handler) format(r *http.Request) result {
	e, err := h.parser.ParseExpr(r.FormValue("query"))
	if err != nil {
		return invalid("query", err)
	}
	return result{data: e.Pretty(0)}
}
