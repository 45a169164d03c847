package promapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/timestamp"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// lookup is a question about series, without their samples.
type lookup struct {
	limit      int
	start, end time.Time
	sets       [][]*labels.Matcher
}

func (h *handler) lookup(r *http.Request) (l lookup, fail *result) {
	wrong := func(name string, err error) (lookup, *result) {
		res := invalid(name, err)
		return lookup{}, &res
	}
	limit, err := limitOf(r)
	if err != nil {
		return wrong("limit", err)
	}
	l.limit = bounded(limit)
	if l.start, err = timeOr(r, "start", minTime); err != nil {
		return wrong("start", err)
	}
	if l.end, err = timeOr(r, "end", maxTime); err != nil {
		return wrong("end", err)
	}
	if l.sets, err = h.matchers(r); err != nil {
		return wrong("match[]", err)
	}
	return l, nil
}

func (h *handler) querier(l lookup) (storage.Querier, error) {
	return h.queryable.Querier(timestamp.FromTime(l.start), timestamp.FromTime(l.end))
}

func (h *handler) series(r *http.Request) result {
	if len(r.Form["match[]"]) == 0 {
		return failed(badData, errors.New("no match[] parameter provided"))
	}
	l, fail := h.lookup(r)
	if fail != nil {
		return *fail
	}
	q, err := h.querier(l)
	if err != nil {
		return result{err: classified(err)}
	}
	close := func() { q.Close() }
	hints := &storage.SelectHints{Start: timestamp.FromTime(l.start), End: timestamp.FromTime(l.end), Func: "series", Limit: l.limit + 1}
	var sets []storage.SeriesSet
	for _, ms := range l.sets {
		sets = append(sets, q.Select(r.Context(), len(l.sets) > 1, hints, ms...))
	}
	set := sets[0]
	if len(sets) > 1 {
		set = storage.NewMergeSeriesSet(sets, 0, storage.ChainedSeriesMerge)
	}
	found := []labels.Labels{}
	warnings := annotations.Annotations{}
	for n := 0; set.Next(); n++ {
		if n%128 == 0 && r.Context().Err() != nil {
			return result{err: classified(r.Context().Err()), done: close}
		}
		if len(found) == l.limit {
			warnings.Add(errTruncated)
			break
		}
		found = append(found, set.At().Labels())
	}
	warnings.Merge(set.Warnings())
	if set.Err() != nil {
		return result{err: classified(set.Err()), annotations: warnings, done: close}
	}
	return result{data: found, annotations: warnings, large: len(found) >= largeAnswer/10, done: close}
}

func (h *handler) labels(r *http.Request) result {
	return h.list(r, func(ctx context.Context, q storage.Querier, hints *storage.LabelHints, ms []*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelNames(ctx, hints, ms...)
	})
}

func (h *handler) values(r *http.Request) result {
	name := r.PathValue("name")
	if strings.HasPrefix(name, "U__") {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	if !model.UTF8Validation.IsValidLabelName(name) {
		return failed(badData, fmt.Errorf("invalid label name: %q", name))
	}
	return h.list(r, func(ctx context.Context, q storage.Querier, hints *storage.LabelHints, ms []*labels.Matcher) ([]string, annotations.Annotations, error) {
		return q.LabelValues(ctx, name, hints, ms...)
	})
}

// list answers with the union, over the sets of matchers, of what ask finds, in order.
func (h *handler) list(r *http.Request, ask func(context.Context, storage.Querier, *storage.LabelHints, []*labels.Matcher) ([]string, annotations.Annotations, error)) result {
	l, fail := h.lookup(r)
	if fail != nil {
		return *fail
	}
	q, err := h.querier(l)
	if err != nil {
		return result{err: classified(err)}
	}
	close := func() { q.Close() }
	if len(l.sets) == 0 {
		l.sets = [][]*labels.Matcher{nil}
	}
	found := map[string]bool{}
	warnings := annotations.Annotations{}
	for _, ms := range l.sets {
		names, ws, err := ask(r.Context(), q, &storage.LabelHints{Limit: l.limit + 1}, ms)
		warnings.Merge(ws)
		if err != nil {
			return result{err: classified(err), annotations: warnings, done: close}
		}
		for _, n := range names {
			found[n] = true
		}
	}
	sorted := slices.AppendSeq(make([]string, 0, len(found)), maps.Keys(found))
	slices.Sort(sorted)
	if len(sorted) > l.limit {
		sorted = sorted[:l.limit]
		warnings.Add(errTruncated)
	}
	return result{data: sorted, annotations: warnings, large: len(sorted) >= largeAnswer/10, done: close}
}
