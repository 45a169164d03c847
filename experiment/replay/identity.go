package replay

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"

	"github.com/whylate/whylate/experiment"
)

// requestID returns the X-Request-Id of the workload's request i: its own, or wl-<run>-<i>. Every attempt has the same.
func (o *Options) requestID(r *experiment.Request, i int) string {
	if r.ID != "" {
		return r.ID
	}
	return "wl-" + o.Run + "-" + strconv.Itoa(i)
}

// traceparent returns the header for one attempt, or "" if none is wanted: the workload's own value, or a sampled one drawn
// from the seed, the run and the request. The attempts of a request are spans of one trace.
func (o *Options) traceparent(r *experiment.Request, i, attempt int) string {
	switch {
	case r.Traceparent == experiment.TraceOff, r.Traceparent == "" && o.NoTraceparent:
		return ""
	case r.Traceparent != "" && r.Traceparent != experiment.TraceOn:
		return string(r.Traceparent)
	}
	draw := o.random(i)
	trace := [2]uint64{draw.Uint64(), draw.Uint64()}
	var span uint64
	for range attempt {
		span = draw.Uint64()
	}
	return fmt.Sprintf("00-%016x%016x-%016x-01", trace[0], trace[1]|1, span|1) // the standard forbids zero
}

// random returns the random numbers of request i of this run.
func (o *Options) random(i int) *rand.PCG {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%d", o.Run, i)
	return rand.NewPCG(o.Seed, h.Sum64())
}
