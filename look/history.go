package look

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/signals"
)

// steps of history that are asked for: of counts and gauges so many, of histograms, which are many series each, fewer.
const (
	fineSteps   = 288
	coarseSteps = 24
)

// atOnce is how many queries are under way: a Prometheus answers twenty at once, to everybody.
const atOnce = 3

// wanted is a query of history.
type wanted struct {
	name  string // of what it asks for
	query string
	steps int
}

// ErrNothingKnown says that a Prometheus answers and has no metric of the registry.
var ErrNothingKnown = errors.New("none of an engine, a gateway or a GPU that is known")

// below is where whylate and others keep Prometheus's API, if not at the root.
const below = "/prometheus"

// history reads what a Prometheus, or whoever speaks its API there or [below], has of the registered signals. It is errNoPrometheus where there is
// none. A query that fails costs what it asked for, and is told.
func (a Address) history(ctx context.Context, w Watching) ([]Input, error) {
	u, err := a.parse()
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(u.Path, "/metrics") || w.History == 0 {
		return nil, errNoPrometheus
	}
	base := strings.TrimSuffix(u.String(), "/")
	var answer struct {
		Status string   `json:"status"`
		Data   []string `json:"data"`
	}
	b, err := a.get(ctx, base+"/api/v1/label/__name__/values", w)
	var not *status
	if errors.As(err, &not) && not.code == http.StatusNotFound && !strings.HasSuffix(base, below) {
		base += below
		b, err = a.get(ctx, base+"/api/v1/label/__name__/values", w)
	}
	switch {
	case errors.As(err, &not) && not.busy():
		return nil, fmt.Errorf("%w: %w", errNoPrometheus, not)
	case errors.As(err, &not) && not.said != "" && strings.Contains(not.said, "org id"):
		return nil, not
	case errors.As(err, &not):
		return nil, errNoPrometheus
	case err != nil:
		return nil, err
	case json.Unmarshal(b, &answer) != nil || answer.Status != "success":
		return nil, errNoPrometheus
	}
	queries := wantedOf(answer.Data)
	if len(queries) == 0 {
		return nil, fmt.Errorf("%s has %d metrics, %w", u.Redacted(), len(answer.Data), ErrNothingKnown)
	}
	end := w.Now()
	inputs := make([]Input, len(queries))
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i, q := range queries {
		group.Go(func() error {
			inputs[i] = a.ask(ctx, w, base, q, end)
			inputs[i].Name, inputs[i].Target, inputs[i].At = q.name+" at "+u.Host, u.Host, end.UnixNano()
			return nil
		})
	}
	group.Wait()
	asked := len(inputs)
	inputs = slices.DeleteFunc(inputs, func(in Input) bool { return in.Open == nil && in.Refused == "" })
	if len(inputs) == 0 && ctx.Err() == nil {
		return nil, fmt.Errorf("%s names %d metrics that are known and has no sample of them in the last %s (ask further back with --history): %w", u.Redacted(), asked, w.History, ErrNothingKnown)
	}
	return inputs, ctx.Err()
}

// wantedOf are the queries for what a Prometheus with these metrics has of what is known: the registered families, and what shows changes:
// *_info of the same producers, and when processes began that are engines, gateways or exporters of GPUs.
func wantedOf(names []string) (queries []wanted) {
	present := map[string]string{} // of each producer a family that says who is there
	started := false
	for _, name := range names {
		sent := name
		name = dialects.Spelt(name)
		family := trim(name)
		hist := family != name && dialects.IsHistogram(family)
		started = started || name == processStart
		owned := producerOf(family) != "" && (hist || producerOf(name) != "")
		switch {
		case !owned || !registered(family) && !registered(name) && !strings.HasSuffix(name, "_info"):
			continue
		case hist:
			queries = append(queries, wanted{name, fmt.Sprintf("{__name__=%q}", sent), coarseSteps})
			continue
		}
		queries = append(queries, wanted{name, fmt.Sprintf("{__name__=%q}", sent), fineSteps})
		present[producerOf(name)] = fmt.Sprintf("{__name__=%q}", sent)
	}
	if started && len(present) > 0 {
		there := slices.Sorted(maps.Values(present))
		queries = append(queries, wanted{processStart, processStart + " and on (instance) (" + strings.Join(there, " or ") + ")", fineSteps})
	}
	return queries
}

const processStart = "process_start_time_seconds"

// ask asks one query; one that is too much for the Prometheus is asked again for fewer moments. What has no sample is no input.
func (a Address) ask(ctx context.Context, w Watching, base string, q wanted, end time.Time) Input {
	b, err := a.queryRange(ctx, w, base, q, end)
	var not *status
	if errors.As(err, &not) && !not.busy() && q.steps > coarseSteps {
		q.steps = coarseSteps
		b, err = a.queryRange(ctx, w, base, q, end)
	}
	if err != nil {
		return Input{Refused: cmp.Or(err.Error(), "no answer")}
	}
	if bytes.Contains(b[:min(len(b), 200)], []byte(`"result":[]`)) {
		return Input{}
	}
	return Input{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

func (a Address) queryRange(ctx context.Context, w Watching, base string, q wanted, end time.Time) ([]byte, error) {
	step := max(w.History/time.Duration(q.steps), 15*time.Second).Truncate(time.Second)
	v := url.Values{"query": {q.query}, "start": {stamp(end.Add(-w.History))}, "end": {stamp(end)}, "step": {fmt.Sprintf("%.0f", step.Seconds())}}
	return a.get(ctx, base+"/api/v1/query_range?"+v.Encode(), w)
}

func stamp(t time.Time) string { return fmt.Sprintf("%.3f", float64(t.UnixMilli())/1e3) }

// registered reports whether a family is one of the registry's, whoever sends it.
func registered(family string) bool {
	p := producerOf(family)
	return p != "" && len(signals.Named(p, family)) > 0
}
