package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/exposition"
)

// Paged is what became of a page's samples.
type Paged struct {
	Samples int    // kept as they are
	Guarded int    // folded into other series, or refused, by the guard
	Late    int    // refused by the store: older than what it has, or another value at a time that has one
	Why     string // of the first of those
}

// AppendPage appends a page that has been mended, as a scrape would have: samples that have no time are of at (Unix ms), and labels that a series
// has stand before those of the target. What the store refuses of it costs only itself.
func AppendPage(app storage.AppenderV2, p exposition.Mended, target labels.Labels, at int64) (out Paged, err error) {
	in, err := textparse.New(p.Page, p.MediaType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if in == nil {
		return out, fmt.Errorf("a page of %s: %w", p.MediaType, err)
	}
	var o storage.AppendV2Options
	for {
		entry, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, fmt.Errorf("a page of %s: %w", p.MediaType, err)
		}
		var when *int64
		var value float64
		var whole *histogram.Histogram
		var parts *histogram.FloatHistogram
		switch entry {
		case textparse.EntryType:
			name, t := in.Type()
			o = storage.AppendV2Options{MetricFamilyName: string(bytes.Clone(name)), Metadata: metadata.Metadata{Type: t, Help: helpOf(o, string(name))}}
			continue
		case textparse.EntryHelp:
			name, help := in.Help()
			o = storage.AppendV2Options{MetricFamilyName: string(bytes.Clone(name)), Metadata: metadata.Metadata{Help: string(bytes.Clone(help))}}
			continue
		case textparse.EntrySeries:
			_, when, value = in.Series()
		case textparse.EntryHistogram:
			_, when, whole, parts = in.Histogram()
		default:
			continue
		}
		t := at
		if when != nil {
			t = *when
		}
		var ls labels.Labels
		in.Labels(&ls)
		own := o
		if base, _ := exposition.Split(nameOf(ls)); base != o.MetricFamilyName && ls.Get("__name__") != o.MetricFamilyName {
			own = storage.AppendV2Options{}
		}
		ref, err := app.Append(0, with(ls, target), 0, t, value, whole, parts, own)
		switch {
		case err == nil && ref == 0:
			out.Guarded++
		case err == nil:
			out.Samples++
		case IsUntimely(err):
			out.Late++
			if out.Why == "" {
				out.Why = err.Error()
			}
		default:
			return out, err
		}
	}
}

func helpOf(o storage.AppendV2Options, name string) string {
	if o.MetricFamilyName == name {
		return o.Metadata.Help
	}
	return ""
}

// with is a series with a target's labels, where it has none of that name.
func with(ls, target labels.Labels) labels.Labels {
	b := labels.NewBuilder(ls)
	target.Range(func(l labels.Label) {
		if !ls.Has(l.Name) {
			b.Set(l.Name, l.Value)
		}
	})
	return b.Labels()
}

// IsUntimely reports whether a store refused a sample for its time alone.
func IsUntimely(err error) bool {
	return errors.Is(err, storage.ErrOutOfOrderSample) || errors.Is(err, storage.ErrOutOfBounds) || errors.Is(err, storage.ErrTooOldSample) || errors.Is(err, storage.ErrDuplicateSampleForTimestamp)
}
