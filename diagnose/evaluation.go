package diagnose

import (
	"fmt"
	"strings"
	"time"
)

// Evaluation is how an answer was judged: by whom, when, with which result. Its range is the evaluation's own.
type Evaluation struct {
	At     int64    `json:"at_unix_ns,omitempty"` // 0 = not known
	Name   string   `json:"name"`                 // what was judged: relevance, toxicity
	Score  *float64 `json:"score,omitempty"`      // none = there is none
	Label  string   `json:"label,omitempty"`      // pass, fail, …
	Error  string   `json:"error,omitempty"`      // of a judge that failed
	Model  string   `json:"model,omitempty"`      // that answered, as the judge tells
	Source string   `json:"source,omitempty"`     // the service that judged
	Joined Join     `json:"joined_by,omitempty"`
}

// Join is by what an evaluation is known to be of a request.
type Join string

// By what. Of a trace with several calls nobody can say which of them an evaluation is of that names neither span nor response.
const (
	ByResponse Join = "response id"
	BySpan     Join = "span"
	ByTrace    Join = "trace"
)

// String is an evaluation in words.
func (e *Evaluation) String() string {
	said := e.Name
	switch {
	case e.Score != nil:
		said += fmt.Sprintf(" %.4g", *e.Score)
		if e.Label != "" {
			said += " (" + e.Label + ")"
		}
	case e.Label != "":
		said += " " + e.Label
	}
	var more []string
	if e.Error != "" {
		more = append(more, "the judge failed: "+e.Error)
	}
	if e.Source != "" {
		more = append(more, "judged by "+e.Source)
	}
	if e.At != 0 {
		more = append(more, time.Unix(0, e.At).UTC().Format(time.DateTime)+" UTC") // it may come days after the answer
	}
	if e.Joined == ByTrace {
		more = append(more, "likely: by its trace alone, which may have other calls")
	} else if e.Joined != "" {
		more = append(more, "by its "+string(e.Joined))
	}
	if len(more) > 0 {
		said += ": " + strings.Join(more, ", ")
	}
	return said
}
