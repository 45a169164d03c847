package experiment

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// line is a request as it stands in a file.
type line struct {
	AtNs              int64       `json:"at_ns"`
	PromptTokens      int         `json:"prompt_tokens"`
	OutputTokens      int         `json:"output_tokens"`
	Prefix            []PrefixRun `json:"prefix,omitempty"`
	N                 int         `json:"n,omitempty"`
	Priority          int         `json:"priority,omitempty"`
	Logprobs          *int        `json:"logprobs,omitempty"`
	PromptLogprobs    *int        `json:"prompt_logprobs,omitempty"`
	CancelAfterNs     int64       `json:"cancel_after_ns,omitempty"`
	CancelAfterChunks int         `json:"cancel_after_chunks,omitempty"`
	Class             string      `json:"class,omitempty"`
	ID                string      `json:"id,omitempty"`
	Traceparent       any         `json:"traceparent,omitempty"`
	IgnoreEOS         *bool       `json:"ignore_eos,omitempty"`
}

// MarshalJSON renders the request as one object of a workload file, without the fields that have their default value. It
// refuses what [Request.Validate] refuses.
func (r Request) MarshalJSON() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	l := line{
		AtNs: int64(r.At), PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Prefix: r.Prefix,
		Priority: r.Priority, Logprobs: r.Logprobs, PromptLogprobs: r.PromptLogprobs,
		CancelAfterNs: int64(r.CancelAfter), CancelAfterChunks: r.CancelChunks, Class: r.Class, ID: r.ID,
	}
	if r.N > 1 {
		l.N = r.N
	}
	switch r.Traceparent {
	case "":
	case TraceOn, TraceOff:
		l.Traceparent = r.Traceparent == TraceOn
	default:
		l.Traceparent = string(r.Traceparent)
	}
	if r.StopAtEOS {
		l.IgnoreEOS = new(false)
	}
	return json.Marshal(l)
}

// MarshalJSON renders the run as [hash, tokens].
func (p PrefixRun) MarshalJSON() ([]byte, error) {
	if p.Hash < 1<<53 {
		return fmt.Appendf(nil, "[%d,%d]", p.Hash, p.Tokens), nil
	}
	return fmt.Appendf(nil, `["%016x",%d]`, uint64(p.Hash), p.Tokens), nil
}

// UnmarshalJSON reads one object of a workload file. Its errors are of type [*FieldError], without a line.
func (r *Request) UnmarshalJSON(object []byte) error {
	*r = Request{N: 1}
	if !utf8.Valid(object) {
		return &FieldError{Advice: "it is not UTF-8; write the file anew in UTF-8"}
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return &FieldError{Value: excerpt(object), Advice: "it is not a JSON object; a workload has one {…} on each line"}
	}
	seen := make([]bool, len(fields))
	for dec.More() {
		if err := r.readField(dec, seen); err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return &FieldError{Value: ending(object), Advice: "the object does not end; is the line cut? " + syntax(err)}
	}
	if _, err := dec.Token(); err != io.EOF {
		return &FieldError{Value: ending(object), Advice: "something follows the object; put one request on each line"}
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			return &FieldError{Field: f.key, Advice: "it is missing; " + f.advice}
		}
	}
	return r.Validate()
}

// readField reads one key and its value.
func (r *Request) readField(dec *json.Decoder, seen []bool) error {
	t, err := dec.Token()
	if err != nil {
		return &FieldError{Advice: "it is not JSON: " + syntax(err)}
	}
	key, _ := t.(string) // within an object the decoder gives strings only
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return &FieldError{Field: shorten(key), Kind: "not JSON", Advice: "its value is not JSON, which has no NaN or Infinity either: " + syntax(err)}
	}
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return &FieldError{Field: shorten(strconv.Quote(key)), Value: excerpt(value), Kind: "key not known", Advice: "this key is not known; the keys are " + keys()}
	}
	if seen[i] {
		return &FieldError{Field: key, Value: excerpt(value), Advice: "it is given twice; give it once"}
	}
	if string(value) == "null" && !fields[i].required {
		return nil
	}
	seen[i] = true
	if err := fields[i].set(r, value); err != nil {
		return &FieldError{Field: key, Value: excerpt(value), Advice: fields[i].advice}
	}
	return nil
}

// A field is one key of a workload's line: how its value enters a request, and what to say if it does not.
type field struct {
	key      string
	required bool
	set      func(*Request, json.RawMessage) error
	advice   string
}

var fields = []field{
	{"at_ns", true, number(func(r *Request) *time.Duration { return &r.At }),
		"give a whole number of nanoseconds, such as 1500000000"},
	{"prompt_tokens", true, number(func(r *Request) *int { return &r.PromptTokens }), tokensAdvice},
	{"output_tokens", true, number(func(r *Request) *int { return &r.OutputTokens }), tokensAdvice},
	{"prefix", false, setPrefix,
		`give a list of [hash, tokens], such as [[17, 512], ["9e3779b97f4a7c15", 512]]: a hash is a whole number below 2^53 or a string of 16 hexadecimal digits`},
	{"n", false, number(func(r *Request) *int { return &r.N }), "give a whole number, or leave it out for 1"},
	{"priority", false, number(func(r *Request) *int { return &r.Priority }), priorityAdvice},
	{"logprobs", false, number(func(r *Request) *int { r.Logprobs = new(int); return r.Logprobs }), logprobsAdvice},
	{"prompt_logprobs", false, number(func(r *Request) *int { r.PromptLogprobs = new(int); return r.PromptLogprobs }), logprobsAdvice},
	{"cancel_after_ns", false, number(func(r *Request) *time.Duration { return &r.CancelAfter }),
		"give a whole number of nanoseconds after sending, or leave it out for never"},
	{"cancel_after_chunks", false, number(func(r *Request) *int { return &r.CancelChunks }),
		"give a whole number of chunks, or leave it out for never"},
	{"class", false, func(r *Request, v json.RawMessage) error { return json.Unmarshal(v, &r.Class) }, "give a string"},
	{"id", false, setID, "give a string; " + idAdvice},
	{"traceparent", false, setTraceparent, traceAdvice},
	{"ignore_eos", false, setIgnoreEOS, "give true or false"},
}

// number reads an integer into the place that it is given.
func number[T int | time.Duration](place func(*Request) *T) func(*Request, json.RawMessage) error {
	return func(r *Request, v json.RawMessage) error { return whole(v, place(r)) }
}

// keys lists the known keys for an error.
func keys() string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.key
	}
	return strings.Join(names, ", ")
}

// whole reads an integer. A fraction, an exponent and a number that is too large are errors.
func whole[T int | time.Duration](v json.RawMessage, to *T) error {
	if string(v) == "null" {
		return strconv.ErrSyntax // Unmarshal would keep what was there
	}
	return json.Unmarshal(v, to)
}

func setPrefix(r *Request, v json.RawMessage) error {
	var runs [][]json.RawMessage
	if err := json.Unmarshal(v, &runs); err != nil {
		return err
	}
	r.Prefix = make([]PrefixRun, len(runs))
	for i, run := range runs {
		if len(run) != 2 {
			return strconv.ErrSyntax
		}
		if err := setHash(&r.Prefix[i].Hash, run[0]); err != nil {
			return err
		}
		if err := whole(run[1], &r.Prefix[i].Tokens); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		r.Prefix = nil
	}
	return nil
}

func setHash(h *Hash, v json.RawMessage) error {
	var text string
	digits, base := string(v), 10
	if v[0] == '"' {
		if err := json.Unmarshal(v, &text); err != nil || len(text) != 16 {
			return strconv.ErrSyntax // a shorter string could be meant as decimal
		}
		digits, base = text, 16
	}
	n, err := strconv.ParseUint(digits, base, 64)
	*h = Hash(n)
	return err
}

func setID(r *Request, v json.RawMessage) error {
	if err := json.Unmarshal(v, &r.ID); err != nil {
		return err
	}
	if r.ID == "" {
		return strconv.ErrSyntax
	}
	return nil
}

func setTraceparent(r *Request, v json.RawMessage) error {
	switch t := Traceparent(v); t {
	case TraceOn, TraceOff:
		r.Traceparent = t
		return nil
	}
	var header string
	if err := json.Unmarshal(v, &header); err != nil {
		return err
	}
	if len(header) != 55 {
		return strconv.ErrSyntax // "true" in quotes is not a header
	}
	r.Traceparent = Traceparent(header)
	return nil
}

func setIgnoreEOS(r *Request, v json.RawMessage) error {
	var ignore bool
	if err := json.Unmarshal(v, &ignore); err != nil {
		return err
	}
	r.StopAtEOS = !ignore
	return nil
}

// excerpt shows the beginning of what was found.
func excerpt(b []byte) string {
	return shorten(strings.ToValidUTF8(string(b[:min(len(b), 200)]), "\ufffd"))
}

// ending shows the end of what was found.
func ending(b []byte) string {
	const most = 60
	if len(b) <= most {
		return excerpt(b)
	}
	return "…" + strings.ToValidUTF8(string(b[len(b)-most:]), "\ufffd")
}

// syntax words a decoder's complaint; an end of input in the middle is said as such.
func syntax(err error) string {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return "it ends in the middle"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
