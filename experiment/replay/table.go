package replay

import (
	"bytes"
	"fmt"
	"io"
	"text/tabwriter"
)

// Write prints the summary as a short table, times in milliseconds.
func (s *Summary) Write(w io.Writer) error {
	var out bytes.Buffer
	fmt.Fprintf(&out, "replay %s to %s: %d of %d requests sent in %.1f s, %d attempts over %d connections\n",
		s.Run, s.Endpoint, s.Requests-s.NotSent, s.Requests, float64(s.SpanNs)/1e9, s.Attempts, s.Connections)
	o := s.Outcomes
	fmt.Fprintf(&out, "ended      %d complete, %d HTTP error, %d connection error, %d cancelled, %d timed out\n",
		o.Complete, o.HTTPError, o.ConnectionError, o.Cancelled, o.TimedOut)
	fmt.Fprintf(&out, "requests/s offered %.2f, sent %.2f, completed %.2f\n", s.OfferedRate, s.SentRate, s.CompletedRate)
	fmt.Fprintf(&out, "tokens/s   prompt %.1f, output %.1f in %d chunks\n", s.PromptRate, s.OutputRate, s.Chunks)
	fmt.Fprintf(&out, "in flight  at most %d; the limit of %d delayed %d requests\n\n", s.PeakInFlight, s.MaxInFlight, s.Delayed)

	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "ms\tn\tp50\tp90\tp99\tmax\t\n")
	for _, row := range []struct {
		name string
		q    Quantiles
	}{
		{"sent late", s.Lateness},
		{"TTFT from planned", s.TTFTFromPlanned}, {"TTFT from sent", s.TTFTFromSent},
		{"ITL per chunk", s.ITL}, {"TPOT", s.TPOT},
		{"E2E from planned", s.E2EFromPlanned}, {"E2E from sent", s.E2EFromSent},
	} {
		if row.q.Count == 0 {
			fmt.Fprintf(table, "%s\t0\t–\t–\t–\t–\t\n", row.name)
			continue
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t\n", row.name, row.q.Count, millis(row.q.P50), millis(row.q.P90), millis(row.q.P99), millis(row.q.Max))
	}
	table.Flush() // into a buffer, which takes everything

	if s.WithoutUsage > 0 {
		fmt.Fprintf(&out, "\n%d complete answers came without usage: their output tokens are counted from chunks, which may hold several\n", s.WithoutUsage)
	}
	for i, e := range s.Errors {
		if i == 0 {
			fmt.Fprintln(&out)
		}
		fmt.Fprintf(&out, "%6d × %s\n", e.Attempts, e.Error)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// millis renders nanoseconds as milliseconds.
func millis(ns int64) string { return fmt.Sprintf("%.3f", float64(ns)/1e6) }
