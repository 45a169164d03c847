package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/internal/vfs"
)

// judgedFile is where evaluations are kept, one JSON object a line, and judgedMost how many: the oldest go first.
const (
	judgedFile = "evaluations.jsonl"
	judgedMost = 100_000
)

// Judged keeps how answers were judged, to stand beside the requests that they answer. One that is told again is known by its id.
type Judged struct{ journal *journal[judgement] }

// judgement is an evaluation with the ids by which its answer is found.
type judgement struct {
	ID string `json:"id"`
	diagnose.Evaluation
	Response string `json:"response_id,omitempty"`
	Trace    string `json:"trace_id,omitempty"`
	Span     string `json:"span_id,omitempty"` // in which it was judged, or that of the answer
}

// OpenJudged opens the evaluations of a data directory, and makes their file where there is none.
func OpenJudged(disk vfs.FS, dir string) (*Judged, error) {
	j, err := openJournal(disk, dir, judgedFile, judgedMost, func(v *judgement) string { return v.ID })
	if err != nil {
		return nil, fmt.Errorf("evaluations: %w", err)
	}
	return &Judged{j}, nil
}

// Close closes the file.
func (j *Judged) Close() error { return j.journal.close() }

// AcceptEvaluations makes evaluations durable and returns those that are new, in their order. One is known again by what was judged, of which
// answer, when, by whom and with what result. Of one that names no answer nobody can say whether it came before: it is new each time, and is kept
// nowhere.
func (s *Server) AcceptEvaluations(_ context.Context, records []otlp.LogRecord) (fresh []otlp.LogRecord, err error) {
	if s.set.Judged == nil {
		return records, nil
	}
	var list []judgement
	var at []int // of each in records
	for i := range records {
		if v := judged(&records[i]); v.Response != "" || v.Trace != "" {
			list, at = append(list, v), append(at, i)
		}
	}
	told, err := s.set.Judged.journal.tell(list...)
	if err != nil {
		s.faults.note("keep evaluations", err, s.set.Now())
		return nil, err
	}
	known := map[int]bool{}
	for _, i := range at {
		known[i] = true
	}
	for _, k := range told {
		delete(known, at[k])
	}
	for i := range records {
		if !known[i] {
			fresh = append(fresh, records[i])
		}
	}
	return fresh, nil
}

func judged(r *otlp.LogRecord) judgement {
	e := &r.Evaluation
	v := judgement{Evaluation: diagnose.Evaluation{At: r.Time, Name: e.Name, Label: e.Label, Model: e.Model, Error: e.Error, Source: r.Origin.Resource.Service}, Response: e.Response}
	score := ""
	if !math.IsNaN(e.Score) {
		v.Score = &e.Score
		score = strconv.FormatFloat(e.Score, 'g', -1, 64)
	}
	if r.Trace != (genai.TraceID{}) {
		v.Trace = r.Trace.String()
	}
	if r.Span != (genai.SpanID{}) {
		v.Span = r.Span.String()
	}
	h := sha256.New()
	for _, part := range []string{v.Name, v.Response, v.Trace, v.Span, strconv.FormatInt(v.At, 10), score, v.Label, v.Error, v.Source} {
		h.Write(append([]byte(part), 0))
	}
	v.ID = hex.EncodeToString(h.Sum(nil)[:12])
	return v
}

// judge puts beside an explained request how its answer was judged.
func (s *Server) judge(x *diagnose.Explanation) {
	if s.set.Judged == nil {
		return
	}
	ids, traces, spans := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, id := range x.Request.IDs {
		ids[id] = true
	}
	for i := range x.Calls {
		c := &x.Calls[i]
		for _, id := range c.IDs {
			ids[id] = true
		}
		traces[c.Trace] = true
		for _, sp := range c.Spans {
			spans[sp.ID] = true
		}
	}
	for _, v := range s.set.Judged.journal.all() {
		switch {
		case v.Response != "" && (ids[v.Response] || ids[genai.PlainID(v.Response)]):
			v.Joined = diagnose.ByResponse
		case v.Span != "" && spans[v.Span] && traces[v.Trace]:
			v.Joined = diagnose.BySpan
		case v.Response == "" && v.Trace != "" && (traces[v.Trace] || ids[v.Trace]):
			v.Joined = diagnose.ByTrace
		default:
			continue
		}
		x.Evaluations = append(x.Evaluations, v.Evaluation)
	}
	slices.SortStableFunc(x.Evaluations, func(a, b diagnose.Evaluation) int { return cmp.Compare(a.At, b.At) })
}
