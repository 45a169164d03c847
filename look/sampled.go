package look

import (
	"strconv"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/wire"
)

// sampled takes what a capture has of GPUs: samples are series, like an exporter's.
func (r *reader) sampled(s ingest.Sample) {
	d := s.Device
	if d.ID.UUID == "" {
		return // a driver without a GPU
	}
	ls := dcgm.SampledLabels(d.ID.UUID, strconv.Itoa(d.Index), d.ID.Host, d.Through, d.Profile)
	target := exposition.Printable(d.ID.Host, 60)
	track := func(n uint16) *adapter.Track {
		if int(n) >= len(s.Signals) || s.Signals[n] == nil {
			return nil
		}
		return r.tracks.Track(target, dcgm.Sampled(s.Signals[n]), exposition.Unknown, ls)
	}
	for _, v := range s.Values {
		if t := track(v.Signal); t != nil {
			t.Points = append(t.Points, adapter.Point{At: s.At, Value: v.Value})
		}
	}
	for _, a := range s.Absent {
		if t := track(a.Signal); t != nil && a.Why != wire.AbsentNotSupported {
			t.NaN++
		}
	}
}
