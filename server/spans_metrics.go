package server

// spanMetrics gives what became of spans.
func (s *Server) spanMetrics(gauge, counter func(name, help string, f func() float64)) {
	t := s.spans.traces
	of := func(n *uint64) func() float64 {
		return func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(*n)
		}
	}
	counter("spans_total", "Spans taken since the start, those that the log had included.", of(&t.taken))
	counter("spans_duplicate_total", "Spans that had been taken before and changed nothing.", of(&t.duplicates))
	counter("spans_late_total", "Spans of traces of which calls had been sealed.", of(&t.late))
	counter("spans_turned_away_total", "Spans that exporters were told to send again later.", func() float64 { return float64(s.spans.refused.Load()) })
	counter("spans_elsewhere_total", "Spans that belong to no model call.", func() float64 { return float64(s.spans.elsewhere.Load()) })
	counter("calls_sealed_total", "Model calls sealed from spans.", func() float64 { return float64(s.spans.calls.Load()) })
	counter("calls_amended_total", "Amendments: calls of spans that came after their call was sealed.", func() float64 { return float64(s.spans.amended.Load()) })
	gauge("spans_in_memory", "Spans that are in no period yet.", func() float64 { return float64(t.size()) })
	gauge("spans_log_bytes", "Size of the log of spans on disk.", func() float64 { return float64(s.spans.log.LogInfo().Bytes) })
}
