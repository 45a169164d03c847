package main

import "github.com/whylate/whylate/internal/figure"

// spans are the figures of what tracers export: from OTLP to calls in sealed tables.
func spans(s *figure.Sheet) error {
	rs, err := bench("./server", "SpansStored|ImportTraces")
	if err != nil {
		return err
	}
	// Three spans a call, 450,000 spans, four senders on one machine with the server; until the last call is sealed.
	s.AtLeast("spans/stored_end_to_end", rs.get("SpansStored", "spans/s"), "spans/s", 30_000)
	s.AtLeast("spans/stored_end_to_end_per_core", rs.get("SpansStored", "spans/core-s"), "spans/s", 30_000) // senders included
	s.Report("spans/acknowledged", rs.get("SpansStored", "accepted-spans/s"), "spans/s")
	s.AtMost("spans/lost_calls", rs.get("SpansStored", "lost-calls"), "count", 0)
	s.AtMost("spans/bytes_per_call", rs.get("SpansStored", "B/call"), "B", 300)
	// A gigabyte of JSON lines. Memory grows until as many spans are in it as may be, then no more.
	s.Report("spans/import_1_GB", rs.get("ImportTraces", "spans/s"), "spans/s")
	s.AtMost("spans/import_1_GB_lost_calls", rs.get("ImportTraces", "lost-calls"), "count", 0)
	s.Report("spans/import_1_GB_memory", rs.get("ImportTraces", "MB"), "MB")
	s.AtMost("spans/import_1_GB_memory_growth", rs.get("ImportTraces", "growth"), "ratio", 1.5)
	return nil
}
