package api

// Problem is an error on its way through HTTP. Code says which kind it is; the fields after Hint are what that kind needs to become
// the same error again on the other side.
type Problem struct {
	Code    ProblemCode `json:"code"`
	Message string      `json:"message"`        // the error's whole text
	Hint    string      `json:"hint,omitempty"` // what to do, in the words of the HTTP API

	Argument   string     `json:"argument,omitempty"`       // invalid_argument: which
	Value      string     `json:"value,omitempty"`          // invalid_argument: its value
	Problem    string     `json:"problem,omitempty"`        // invalid_argument: what is wrong with it
	ID         string     `json:"id,omitempty"`             // not_found, ambiguous: as it was asked for
	Count      int        `json:"count,omitempty"`          // not_found: requests looked through; ambiguous: requests that match
	Candidates [][]string `json:"candidates,omitempty"`     // ambiguous: the ids of the first requests that match
	What       string     `json:"what,omitempty"`           // the other kinds: the message without its remedy
	Remedy     string     `json:"remedy,omitempty"`         // the other kinds
	After      int64      `json:"retry_after_ns,omitempty"` // overloaded, unavailable
	Reference  string     `json:"reference,omitempty"`      // internal: stands in the server's log beside the cause
}

// ProblemBody is the body of every answer that is not a success.
type ProblemBody struct {
	Error Problem `json:"error"`
}

// ProblemCode says which kind of error a problem is.
type ProblemCode string

// Codes of problems.
const (
	CodeInvalidArgument ProblemCode = "invalid_argument"
	CodeNotFound        ProblemCode = "not_found"
	CodeAmbiguous       ProblemCode = "ambiguous"
	CodeOverloaded      ProblemCode = "overloaded"
	CodeUnavailable     ProblemCode = "unavailable"
	CodeUnsupported     ProblemCode = "unsupported"
	CodeDamaged         ProblemCode = "damaged"
	CodeUnauthorised    ProblemCode = "unauthorised"
	CodeForbidden       ProblemCode = "forbidden"
	CodeTimeout         ProblemCode = "timeout"            // the question took longer than the server allows
	CodeCancelled       ProblemCode = "cancelled"          // who asked went away
	CodeNoRoute         ProblemCode = "no_such_route"      // no such path
	CodeMethod          ProblemCode = "method_not_allowed" // not with this method
	CodeTooLarge        ProblemCode = "too_large"          // the body or the address is longer than allowed
	CodeMisdirected     ProblemCode = "misdirected"        // the Host is not one of this server's names
	CodeInternal        ProblemCode = "internal"
)
