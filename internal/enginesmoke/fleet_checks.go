package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/query"
)

// fleet holds what the served program made of the engine's page and spans against the ledger of the capture, which knows neither.
func (s *smoke) fleet(l *query.Ledger) error {
	dir := filepath.Join(s.Dir, servedDir)
	b, err := os.ReadFile(filepath.Join(dir, saidFile))
	if err != nil {
		return err
	}
	var f said
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	s.series(l, &f)
	s.rows(l, &f)
	if f.Traced {
		s.spans(&f)
	} else {
		s.Skip("a fleet: the engine's environment lacks OpenTelemetry's exporter over gRPC, so no span of the engine was seen")
	}
	if err := s.exported(&f, filepath.Join(dir, exportedFile)); err != nil {
		s.Check(false, "a fleet: requests as OTLP: %v", err)
	}
	s.looked("the engine's /metrics", &f.Engine)
	s.looked("the server's /prometheus", &f.Own)
	return nil
}

// series: what was scraped is what the engine's page says, and that is what the ledger counted.
func (s *smoke) series(l *query.Ledger, f *said) {
	s.Check(f.Up == 1, "a fleet: up is %g", f.Up)
	s.Check(f.After == f.Page && f.Page.Tokens > 0, "a fleet: PromQL says %.0f output tokens and %.0f first tokens, the engine's page %.0f and %.0f", f.After.Tokens, f.After.FirstTokens, f.Page.Tokens, f.Page.FirstTokens)
	var tokens, requests, first float64
	for _, r := range l.Book.Requests {
		for _, q := range r.Sequences {
			if q.FirstToken != 0 {
				first++
			}
			if strings.HasPrefix(r.RequestID, "alone-") {
				tokens += float64(q.Output)
			}
		}
		if strings.HasPrefix(r.RequestID, "alone-") {
			requests++
		}
	}
	s.Check(f.After.Tokens-f.Before.Tokens == tokens && tokens > 0, "a fleet: in the quiet part %s grew by %.0f by PromQL, the ledger counted %.0f", tokensName, f.After.Tokens-f.Before.Tokens, tokens)
	s.Check(f.After.FirstTokens-f.Before.FirstTokens == requests && requests > 0, "a fleet: in the quiet part the engine's histogram of TTFT grew by %.0f, %.0f requests in the ledger", f.After.FirstTokens-f.Before.FirstTokens, requests)
	s.Check(f.After.FirstTokens == first, "a fleet: the engine's histogram of TTFT has %.0f by PromQL, the ledger %.0f sequences with a first token", f.After.FirstTokens, first)
}

// rows: a request that front end, scheduler and tracer told of is one.
func (s *smoke) rows(l *query.Ledger, f *said) {
	var other, alone, below int
	for i := range s.Results {
		c := &s.Results[i]
		trace := traceOf(c)
		n := 0
		for _, r := range f.Requests.Requests {
			if slices.Contains(r.IDs, c.RequestID) || trace != "" && slices.Contains(r.IDs, trace) {
				n++
			}
		}
		if n != 1 {
			other++
		}
		if x := f.Explained[c.RequestID]; x.Level != "L2" {
			below++
		}
	}
	for _, r := range f.Requests.Requests {
		if r.Level == 1 {
			alone++
		}
	}
	n := len(f.Requests.Requests)
	s.Check(n == len(l.Book.Requests) && n >= len(s.Results), "a fleet: %d rows, %d requests in the ledger", n, len(l.Book.Requests))
	s.Check(other == 0, "a fleet: %d of %d requests with a traceparent are not exactly one row", other, len(s.Results))
	s.Check(alone == 0, "a fleet: %d rows that spans alone tell of (L1)", alone)
	s.Check(below == 0, "a fleet: %d of %d requests whose explanation does not rest on L2", below, len(s.Results))
}

// spans: beside each request that was answered stands what the engine's own span says of it. An engine may tell nothing of those that
// were given up.
func (s *smoke) spans(f *said) {
	var answered, without, wrong, several, given int
	for i := range s.Results {
		c := &s.Results[i]
		calls := f.Explained[c.RequestID].Calls
		if c.Outcome != replay.Complete {
			if len(calls) > 0 {
				given++
			}
			continue
		}
		answered++
		switch {
		case len(calls) == 0:
			without++
		case len(calls) > 1:
			several++
		case calls[0].Trace != traceOf(c) || !strings.HasPrefix(calls[0].Producer, "vllm.") || calls[0].Output != output(f.Requests.Requests, c.RequestID):
			wrong++
		}
	}
	s.Check(answered > 0 && without == 0, "a fleet: %d of %d answered requests without the engine's span beside them", without, answered)
	s.Check(several == 0, "a fleet: %d requests with more than one call by spans", several)
	s.Check(wrong == 0, "a fleet: %d requests whose span is of another trace or producer, or counts other output tokens than the ledger", wrong)
	s.Sheet.Report("smoke/given_up_requests_with_a_span", float64(given), "count")
}

func traceOf(c *replay.Result) string {
	if t := strings.Split(c.Traceparent, "-"); len(t) == 4 {
		return t[1]
	}
	return ""
}

func output(rows []api.RequestRow, id string) int64 {
	for _, r := range rows {
		if slices.Contains(r.IDs, id) {
			return int64(r.Output)
		}
	}
	return -1
}

// exported: what leaves as OTLP is each request once, and its parts are as long as it, to the nanosecond.
func (s *smoke) exported(f *said, path string) error {
	s.Check(f.Exported == "", "a fleet: requests leave as OTLP (%s)", f.Exported)
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	var spans []genai.Span
	if _, err := new(otlp.Decoder).File(in, func(some []genai.Span) { spans = append(spans, some...) }); err != nil {
		return err
	}
	parts := map[genai.SpanID]int64{}
	for i := range spans {
		// Sequences are told beside the parts.
		if ns, known := spans[i].Duration(); known && strings.HasPrefix(spans[i].Name, "whylate.") && spans[i].Name != "whylate.sequence" {
			parts[spans[i].Parent] += ns
		}
	}
	e2e := map[int64]int{} // of the rows, how often
	for _, r := range f.Requests.Requests {
		e2e[r.E2E]++
	}
	var requests, apart, unlisted int
	for i := range spans {
		if strings.HasPrefix(spans[i].Name, "whylate.") {
			continue
		}
		requests++
		ns, known := spans[i].Duration()
		if !known || parts[spans[i].ID] != ns {
			apart++
		}
		if e2e[ns]--; e2e[ns] < 0 {
			unlisted++
		}
	}
	calls := len(genai.Calls(spans).Calls)
	s.Check(requests == len(f.Requests.Requests) && calls == requests, "a fleet: %d requests exported, read back as %d calls, of %d rows", requests, calls, len(f.Requests.Requests))
	s.Check(requests > 0 && apart == 0, "a fleet: %d exported requests whose parts do not sum to them", apart)
	s.Check(unlisted == 0, "a fleet: %d exported requests that are not as long as their row says", unlisted)
	return nil
}

// looked: an engine that does its work is named, and nothing is called broken.
func (s *smoke) looked(what string, l *looked) {
	named := false
	for _, found := range l.Found {
		named = named || found.Producer == "vllm" && slices.Contains(found.Models, engineenv.Model)
	}
	var broken []string
	for _, fact := range l.Facts {
		if fact.Weight == "broken" {
			broken = append(broken, fact.Text)
		}
	}
	s.Check(l.Error == "" && named && len(broken) == 0, "a fleet: look at %s names vllm and its model, and nothing broken: found %+v, broken %q %s", what, l.Found, broken, l.Error)
}
