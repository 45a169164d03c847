package api

import (
	"fmt"
	"time"
)

// Overloaded says that the service has more to do than it takes on. Trying again later helps.
type Overloaded struct {
	What  string        // what there is too much of
	After time.Duration // when to try again
}

func (e *Overloaded) Error() string { return fmt.Sprintf("%s; try again in %s", e.What, e.After) }

// Unavailable says that the service cannot answer yet, or any more: it is still reading its log, or it is stopping.
type Unavailable struct {
	What  string
	After time.Duration // when to try again, 0 = not known
}

func (e *Unavailable) Error() string {
	if e.After == 0 {
		return e.What
	}
	return fmt.Sprintf("%s; try again in %s", e.What, e.After)
}

// Unsupported says that this service cannot do what was asked, and never will as it is: data of a newer version, live events of a
// recording.
type Unsupported struct{ What, Remedy string }

func (e *Unsupported) Error() string { return joined(e.What, e.Remedy) }

// Damaged says that what the answer rests on cannot be read. The rest of the service answers.
type Damaged struct{ What, Remedy string }

func (e *Damaged) Error() string { return joined(e.What, e.Remedy) }

// Unauthorised says that the service does not know who asks.
type Unauthorised struct{ What, Remedy string }

func (e *Unauthorised) Error() string { return joined(e.What, e.Remedy) }

// Forbidden says that who asks may not ask this.
type Forbidden struct{ What, Remedy string }

func (e *Forbidden) Error() string { return joined(e.What, e.Remedy) }

func joined(what, remedy string) string {
	if remedy == "" {
		return what
	}
	return what + "; " + remedy
}
