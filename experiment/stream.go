package experiment

import (
	"io"
	"time"
)

// A Stream gives the requests of a workload one after the other, in order of time. Next returns [io.EOF] after the last. The
// prefix of a request is the caller's to read until the next call, and for ever unless the stream says otherwise. A [Reader]
// is one.
type Stream interface {
	Next() (Request, error)
}

// A Source is a workload of which a part may hang on the answers: clients that think about an answer before they ask again.
// Whoever plays it, on an engine or in a simulator, sends what Next returns at its time, and tells Finished of every request
// whose answer has ended, however it ended; what that returns it sends as well. The workload is over when Next has returned
// [io.EOF] and no request is under way. A Source is for one goroutine.
//
// Times are of the workload: since its start, at its own speed.
type Source interface {
	Stream
	// Finished tells that the answer to r ended at the given time. It returns the request that follows from it, at that time
	// or later, if there is one, or an error of the stream beneath that is not io.EOF.
	Finished(r *Request, at time.Duration) (next Request, ok bool, err error)
}

// Open returns a source from a stream whose requests wait for nobody.
func Open(s Stream) Source { return open{s} }

type open struct{ Stream }

func (open) Finished(*Request, time.Duration) (Request, bool, error) { return Request{}, false, nil }

// Requests returns a stream of the requests given.
func Requests(all []Request) Stream { return &requests{all} }

type requests struct{ rest []Request }

func (s *requests) Next() (Request, error) {
	if len(s.rest) == 0 {
		return Request{}, io.EOF
	}
	r := s.rest[0]
	s.rest = s.rest[1:]
	return r, nil
}

// ReadAll takes all that a stream has into memory.
func ReadAll(s Stream) ([]Request, error) {
	var all []Request
	for {
		switch r, err := s.Next(); err {
		case nil:
			all = append(all, r)
		case io.EOF:
			return all, nil
		default:
			return nil, err
		}
	}
}
