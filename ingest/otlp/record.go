package otlp

import (
	"bytes"
	"cmp"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/whylate/whylate/adapter/genai"
)

// LogRecord is what is kept of a log record: a judgement of an answer. Nothing else of logs is kept.
type LogRecord struct {
	Origin     *Origin
	Time       int64 // Unix ns; 0 is not known
	Trace      genai.TraceID
	Span       genai.SpanID
	Evaluation Evaluation
}

// Evaluation is a result as the event gen_ai.evaluation.result tells it, without its explanation.
type Evaluation struct {
	Name     string  // what was judged: relevance, toxicity
	Score    float64 // NaN where there is none
	Label    string  // pass, fail, …
	Response string  // gen_ai.response.id of the answer
	Model    string  // that answered, if it is told
	Error    string  // error.type of a judge that failed
}

// Logged counts what came of a logs request.
type Logged struct {
	Counts
	Records     int // that were read
	Evaluations int
	Lines       int // of consoles, that were handed on
	Understood  int // of them
	Passed      int // records of which nothing is kept: events with content, structured bodies, empty ones
}

// Console takes one line of a program's console, as a collector shipped it. The line is valid until it returns; it says whether it could make
// something of it. It must keep nothing of a line but what an engine's own reader makes of it.
type Console func(from *Origin, at int64, line []byte) (understood bool)

// Fields of LogRecord.
const (
	recordTime, recordBody, recordAttributes, recordTrace, recordSpan, recordObserved, recordEvent = 1, 5, 6, 9, 10, 11, 12
)

var recordMessage = &message{name: "LogRecord", alone: true, fields: table{"timeUnixNano": scalar(recordTime, asFixed), "observedTimeUnixNano": scalar(recordObserved, asFixed),
	"body": one(recordBody, anyValue), "attributes": many(recordAttributes, keyValue), "traceId": scalar(recordTrace, asHex), "spanId": scalar(recordSpan, asHex), "eventName": scalar(recordEvent, asText)}}

const evaluationEvent = "gen_ai.evaluation.result"

// Logs decodes the body of one logs request: evaluations are returned, lines of consoles handed to console, everything else counted and let go.
// Records that cannot be taken are left out and counted; an error, always a *Refused, is for a body of which nothing can be taken.
func (d *Decoder) Logs(body []byte, e Encoding, gzipped bool, console Console) (records []LogRecord, out *Logged, err error) {
	limits := d.Limits.settled()
	out = &Logged{Counts: Counts{what: "log records"}}
	if body, err = d.plain(body, gzipped, limits); err != nil {
		return nil, out, err
	}
	if body, err = d.proto(body, e, logsRequest, limits); err != nil {
		return nil, out, err
	}
	if _, err = surveySpans(body, limits); err != nil {
		return nil, out, err
	}
	k := keeper{d: d, out: &out.Counts, limits: limits}
	var origin *Origin
	var r record
	walk(body, limits, func(resource []pair, _, _ []byte) { origin = k.origin(resource) }, func(b []byte) {
		if !r.read(b, limits) {
			out.reject("a field of the record has a wrong type or length (ids are 16 and 8 bytes; hex in JSON)")
			return
		}
		out.Records++
		out.Surplus += r.surplus
		switch {
		case string(r.event) == evaluationEvent:
			if kept, reason := r.evaluation(&k, origin); reason != "" {
				out.reject(reason)
			} else {
				records = append(records, kept)
				out.Evaluations++
			}
		case len(r.event) > 0 || r.body.kind != textual || len(r.body.text) == 0:
			out.Passed++
		case len(r.body.text) > limits.Value:
			out.Oversize++
			out.Passed++
		default:
			out.lines(r.body.text, console, origin, r.when())
		}
	})
	out.Requests++
	return records, out, nil
}

func (l *Logged) lines(body []byte, console Console, origin *Origin, at int64) {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		l.Lines++
		if console != nil && console(origin, at, line) {
			l.Understood++
		}
	}
}

// record is what is read of a log record, before anything is kept of it.
type record struct {
	time, observed uint64
	body           value
	event          []byte
	trace, span    []byte
	attributes     []pair
	surplus        int
}

func (r *record) when() int64 { return at(cmp.Or(r.time, r.observed)) }

func (r *record) read(b []byte, limits Limits) bool {
	*r = record{attributes: r.attributes[:0]}
	ok := fields(b, func(n protowire.Number, f []byte) (ok bool) {
		ok = true
		switch n {
		case recordBody:
			r.body, ok = valueOf(f, 0)
		case recordEvent:
			r.event = f
		case recordTrace:
			r.trace, ok = f, len(f) == 16 || len(f) == 0
		case recordSpan:
			r.span, ok = f, len(f) == 8 || len(f) == 0
		case recordAttributes:
			if len(r.attributes) >= limits.PerSpan {
				r.surplus++
				return true
			}
			var p pair
			p, ok = pairOf(f, 0)
			r.attributes = append(r.attributes, p)
		}
		return ok
	}, func(n protowire.Number, v uint64) bool {
		switch n {
		case recordTime:
			r.time = v
		case recordObserved:
			r.observed = v
		}
		return true
	})
	if len(r.event) == 0 { // before the field there was an attribute
		for i := range r.attributes {
			if p := &r.attributes[i]; string(p.key) == "event.name" && p.value.kind == textual {
				r.event = p.value.text
			}
		}
	}
	return ok
}

// evaluation keeps a result, or says why it cannot.
func (r *record) evaluation(k *keeper, origin *Origin) (out LogRecord, reason string) {
	out = LogRecord{Origin: origin, Time: r.when()}
	copy(out.Trace[:], r.trace)
	copy(out.Span[:], r.span)
	e := &out.Evaluation
	e.Score = math.NaN()
	for i := range r.attributes {
		p := &r.attributes[i]
		kept := true
		switch string(p.key) {
		case "gen_ai.evaluation.name":
			e.Name = short(&p.value)
		case "gen_ai.evaluation.score.value":
			if e.Score, kept = score(&p.value); !kept {
				return out, "an evaluation whose score is no finite number"
			}
		case "gen_ai.evaluation.score.label":
			e.Label = short(&p.value)
		case "gen_ai.response.id":
			e.Response = short(&p.value)
		case "gen_ai.response.model":
			e.Model = short(&p.value)
		case "gen_ai.request.model":
			e.Model = cmp.Or(e.Model, short(&p.value))
		case "error.type":
			e.Error = short(&p.value)
		case "event.name":
		default:
			k.out.Dropped[k.class(p.key)]++
			kept = false
		}
		if kept {
			k.out.Kept++
		}
	}
	if e.Name == "" {
		return out, "an evaluation without a name that is an identifier"
	}
	return out, ""
}

func score(v *value) (float64, bool) {
	switch v.kind {
	case double:
		return v.double, !math.IsNaN(v.double) && !math.IsInf(v.double, 0)
	case integer, boolean:
		return float64(v.number), true
	}
	return math.NaN(), false
}
