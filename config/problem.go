package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Severity says whether the process can start.
type Severity uint8

const (
	Error   Severity = iota // it cannot
	Warning                 // it can, and somebody should know
)

func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// Origin is one of the four places that a value can come from.
type Origin uint8

const (
	FromDefault Origin = iota
	FromFile
	FromEnvironment
	FromFlag
)

// Source is where a value stands.
type Source struct {
	Origin Origin
	Name   string // the file, the variable, or the flag with its dashes
	Line   int    // of the value, in a file; from 1
	Column int    // from 1
}

// String is what an editor can jump to, or what to look for.
func (s Source) String() string {
	switch s.Origin {
	case FromFile:
		if s.Line == 0 {
			return s.Name
		}
		return fmt.Sprintf("%s:%d:%d", s.Name, s.Line, s.Column)
	case FromEnvironment:
		return "environment variable " + s.Name
	case FromFlag:
		return "flag " + s.Name
	}
	return "default"
}

// Problem is one thing that is wrong, or might be.
type Problem struct {
	Severity Severity
	Source   Source
	Key      string // dotted; "" where the problem has none
	Value    string // as written; withheld where it may be a secret
	Text     string // what is wrong
	Nearest  string // the known key that was probably meant
	Allowed  string // what may be written
	Remedy   string // what to do
}

// Error is one line: where, key, value, what is wrong, what was meant, what is allowed, what to do.
func (p Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source.String())
	b.WriteString(": ")
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Value != "" {
			b.WriteString(" = " + strconv.Quote(shorten(p.Value)))
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	if p.Nearest != "" {
		b.WriteString("; did you mean " + p.Nearest + "?")
	}
	if p.Allowed != "" {
		b.WriteString("; allowed: " + p.Allowed)
	}
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

func shorten(s string) string {
	const most = 80
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// Problems is an error of several lines, one a problem.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find a Problem.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// errorsOnly leaves warnings out.
func (ps Problems) errorsOnly() Problems {
	var out Problems
	for _, p := range ps {
		if p.Severity == Error {
			out = append(out, p)
		}
	}
	return out
}
