package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/storage"
)

// Own is the way by which they come.
const Own = "whylate"

// OwnEvery is how often a process's own figures are recorded.
const OwnEvery = 15 * time.Second

// Record appends what a process says of itself, as if it had been scraped: to every series come the target's labels.
func Record(ctx context.Context, to storage.AppendableV2, g prometheus.Gatherer, target labels.Labels, at time.Time) error {
	families, err := g.Gather() // what could be gathered comes beside the error
	app := to.AppenderV2(ctx)
	for _, f := range families {
		samples, e := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.TimeFromUnixNano(at.UnixNano())}, f)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("own metric %s: %w", f.GetName(), e))
			continue
		}
		o := storage.AppendV2Options{MetricFamilyName: f.GetName(), Metadata: metadata.Metadata{Type: typeOf(f.GetType()), Help: f.GetHelp()}}
		for _, s := range samples {
			b := labels.NewBuilder(labels.EmptyLabels())
			for name, v := range s.Metric {
				b.Set(string(name), string(v))
			}
			target.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
			if _, e := app.Append(0, b.Labels(), 0, int64(s.Timestamp), float64(s.Value), nil, nil, o); e != nil {
				err = errors.Join(err, fmt.Errorf("own metric %s: %w", f.GetName(), e))
				break
			}
		}
	}
	return errors.Join(err, app.Commit())
}

func typeOf(t dto.MetricType) model.MetricType {
	switch t {
	case dto.MetricType_UNTYPED:
		return model.MetricTypeUnknown
	case dto.MetricType_GAUGE_HISTOGRAM:
		return model.MetricTypeGaugeHistogram
	}
	return model.MetricType(strings.ToLower(t.String()))
}
