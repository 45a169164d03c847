package store

import (
	"errors"
	"fmt"
)

// Why a store refuses. Every error of a store wraps one of these, the system's error, or the caller's context.
var (
	ErrNotFound = errors.New("it is not in the store")
	ErrExpired  = errors.New("its detail was let go by the retention")
	ErrCorrupt  = errors.New("what is on disk is damaged")
	ErrNewer    = errors.New("it was written by a newer whylate")
	ErrLocked   = errors.New("another process has it open")
	ErrFull     = errors.New("the disk is full")
	ErrInvalid  = errors.New("it cannot be right")
	ErrClosed   = errors.New("the store is closed")
)

// Error says what was refused: where, what was found, and what to do about it. Fields that are not known are empty.
type Error struct {
	Err    error  // one of the sentinels of this package
	What   string // what was being done: "append to the log"
	Where  string // the file, period or field
	Value  string // what was found there
	Remedy string
	Cause  error // the system's error, where there is one
}

// Error reads like "append to the log: /data/log/7.wlc: the disk is full (write: no space left on device); remedy".
func (e *Error) Error() string {
	s := e.What + ": "
	if e.Where != "" {
		s += e.Where + ": "
	}
	if e.Value != "" {
		s += e.Value + ": "
	}
	s += e.Err.Error()
	if e.Cause != nil {
		s += fmt.Sprintf(" (%v)", e.Cause)
	}
	if e.Remedy != "" {
		s += "; " + e.Remedy
	}
	return s
}

// Unwrap gives errors.Is the sentinel and the system's error.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}
