package replay

import "fmt"

// A Result is one attempt of one request as its client saw it. Times are ns of [Options.Clock]; 0 is not known.
type Result struct {
	Index         int     // of the request in the workload, from 0
	Attempt       int     // 1, or more for a retry
	Final         bool    // no further attempt follows
	Planned       int64   // when the workload wanted the request sent; the same for every attempt
	Sent          int64   // when it was handed to the connection, before a new one was dialled
	First         int64   // when the first output came; not known if the answer is not streamed, which is so with prompt_logprobs
	End           int64   // when the stream said that it was over, else when the client gave up
	Chunks        []Chunk // every piece of output, in the order of arrival
	Status        int     // of HTTP; 0 if no response came
	Outcome       Outcome
	Sequences     int    // n, as asked for
	PromptTokens  int    // as the server reported, else as asked for
	OutputTokens  int    // of all sequences: as the server reported, else as counted
	UsageReported bool   // whether the server reported the two
	NewConnection bool   // the attempt had to open a connection, whose time is part of its own
	RequestID     string // the X-Request-Id sent
	Traceparent   string // as sent; empty if none was
	Class         string // of the workload
	ResponseID    string // the id that the server gave to the answer
	Error         string // what went wrong, at most 200 bytes; empty if nothing did
}

// A Chunk is one arrival of output. It is not a token: a server merges what has piled up.
type Chunk struct {
	At       int64 // when the bytes had been read, ns
	Sequence int   // index of the sequence it belongs to, below n
}

// An Outcome is how an attempt ended, with the numbers of the wire format.
type Outcome uint8

const (
	Complete        Outcome = iota // the whole answer came
	HTTPError                      // the server answered, but not with a whole stream of output: a status, an error event, bytes that make no sense
	ConnectionError                // no connection, or it broke before the answer was whole
	Cancelled                      // the client hung up: the workload wanted it, or the replay was stopped
	TimedOut                       // the answer was not whole within the timeout
)

var outcomeNames = [...]string{"complete", "HTTP error", "connection error", "cancelled", "timed out"}

// String returns the outcome in words.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}
