package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/dcgm"
)

// driverErrors tells which errors the driver reported, and what they mean.
func driverErrors(s *Scene) (facts []Fact) {
	for _, d := range s.devices() {
		for _, x := range d.xids(s) {
			f := Fact{Weight: Notice, Path: "gpu", About: d.id, Text: fmt.Sprintf("%s: XID %d (%s), %s. It is the last error, not a count, and stays until the next.", d, x.number, dcgm.XID(x.number), x.seen(d))}
			if dcgm.Devastating(x.number) {
				f.Weight = Broken
				f.Do = dcgm.Remedy(x.number)
			}
			facts = append(facts, f)
		}
	}
	return facts
}

// xid is an error of the driver, and when it was seen first.
type xid struct {
	number int
	at     int64 // ns; 0 where it is not known
	began  bool  // it came while the device was watched
}

func (x xid) seen(d *device) string {
	switch {
	case x.began && x.at != 0:
		return "first seen at " + timeOf(x.at) + " (" + d.sampled() + ")"
	case x.began:
		return "it came between two samples"
	}
	return "since before the first sample"
}

// xids are the errors of a device in the order in which they came.
func (d *device) xids(s *Scene) (xs []xid) {
	was := 0
	for i, p := range d.series(s, "gpu.xid", "") {
		if n := int(p.Value); n != was {
			if was = n; n != 0 {
				xs = append(xs, xid{n, p.At, i > 0})
			}
		}
	}
	return xs
}
