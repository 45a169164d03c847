package look

import (
	"regexp"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/exposition"
)

// table takes what a vendor's tool has printed, if that is what an input is.
func (r *reader) table(in Input, src *Source, b []byte) bool {
	kind, problems := dcgm.Table(b, func(family string, ls exposition.Labels, p adapter.Point) {
		if p.At == 0 {
			p.At = in.At
		}
		t := r.tracks.Track(in.Target, family, exposition.Unknown, ls)
		t.Points = append(t.Points, p)
	})
	src.Kind = kind
	src.Problems = append(src.Problems, problems...)
	return kind != ""
}

var rateOf = regexp.MustCompile(`^i?rate\(\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{[^{}]*\})?\s*\[[^\[\]]+\]\s*\)$`)

// rated is the family that a series under the name of a query is the rate of; the name itself where it is none.
func rated(name string) (family string, isRate bool) {
	if m := rateOf.FindStringSubmatch(name); m != nil {
		return m[1], true
	}
	return name, false
}
