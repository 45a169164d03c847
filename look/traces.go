package look

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ingest/otlp"
)

// traces takes up a file of OTLP traces.
func (r *reader) traces(src *Source, b []byte) {
	src.Kind = "traces"
	var d otlp.Decoder
	var exports []json.RawMessage // as who collects them saves them
	if b[0] == '[' && json.Unmarshal(b, &exports) == nil {
		var lines bytes.Buffer
		for _, e := range exports {
			if json.Compact(&lines, e) == nil {
				lines.WriteByte('\n')
			}
		}
		b = lines.Bytes()
	}
	out, err := d.File(bytes.NewReader(b), nil)
	if err != nil {
		src.Problems = append(src.Problems, err.Error())
	}
	for _, why := range slices.Sorted(maps.Keys(out.Why)) {
		src.Problems = append(src.Problems, fmt.Sprintf("%s refused: %s", plural(out.Why[why], "span or line", "spans or lines"), why))
	}
	r.spans = append(r.spans, out.Spans...)
}

// offerWaits puts what metrics of the same time say of waiting beside calls whose trace lacks the scheduler.
func offerWaits(s *Scene) {
	if s.Traces == nil {
		return
	}
	for _, r := range s.Of("request.queue_time") {
		if h, window := r.Observed(); window && h.Count >= 1 && h.Mean() >= 0 {
			s.Traces.Offer(genai.Waited{Metric: r.Native.Name, MeanNS: int64(h.Mean() * 1e9), Count: int64(h.Count)})
			return
		}
	}
}

// traced is what traces say of the request path in a line.
func traced(v *genai.View) string {
	n := v.Counts
	return fmt.Sprintf("%s in traces: %d complete, %d aborted, %d failed, %d incomplete", plural(n.Requests, "request", "requests"), n.Requests-n.Aborted-n.Failed-n.Incomplete, n.Aborted, n.Failed, n.Incomplete)
}
