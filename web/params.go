package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/whylate/whylate/api"
)

// longest is how many bytes a text argument may have.
const longest = 1024

// A list has listRows rows unless asked otherwise, and at most maxRows.
const (
	listRows = 100
	maxRows  = 10_000
)

// arguments are the arguments of one request. The first that is wrong is kept as err; readers go on with zero values.
type arguments struct {
	r     *http.Request
	query url.Values
	err   error
}

// readArguments refuses arguments that the route does not know, and repeated ones.
func readArguments(r *http.Request, known []param) *arguments {
	a := &arguments{r: r}
	var err error
	if a.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		a.wrong("query", r.URL.RawQuery, "it cannot be decoded: "+err.Error()+"; escape names and values")
		return a
	}
	var names []string
	for _, p := range known {
		if p.in == inQuery {
			names = append(names, p.name)
		}
	}
	for name, values := range a.query {
		if !contains(names, name) {
			list := "this takes no arguments"
			if len(names) > 0 {
				list = "known here: " + strings.Join(names, ", ")
			}
			a.wrong(name, values[0], "no such argument; "+list)
			return a
		}
		if len(values) > 1 {
			a.wrong(name, strings.Join(values, ", "), "given "+strconv.Itoa(len(values))+" times; give it once")
			return a
		}
	}
	return a
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}

func (a *arguments) wrong(name, value, problem string) {
	if a.err == nil {
		a.err = &api.InvalidArgument{Argument: shown(name), Value: shown(value), Problem: problem}
	}
}

// shown makes what came from outside fit to be shown: short, and without control characters.
func shown(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:80], "�") + "…"
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}

// text is a text argument, "" if it is not given.
func (a *arguments) text(name string) string {
	s := a.query.Get(name)
	if s == "" {
		s = a.r.PathValue(name)
	}
	switch {
	case len(s) > longest:
		a.wrong(name, s, fmt.Sprintf("it has %d bytes; %d are the most", len(s), longest))
	case !utf8.ValidString(s):
		a.wrong(name, s, "it is not UTF-8")
	case strings.ContainsFunc(s, unicode.IsControl):
		a.wrong(name, s, "it holds control characters")
	default:
		return s
	}
	return ""
}

// moment is a time: RFC 3339, or nanoseconds since 1970. The zero time if it is not given.
func (a *arguments) moment(name string) time.Time {
	s := a.text(name)
	if s == "" {
		return time.Time{}
	}
	if ns, err := strconv.ParseInt(s, 10, 64); err == nil && ns > 0 {
		return time.Unix(0, ns)
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 { // nanoseconds since 1970 hold no more
		a.wrong(name, s, "give a time such as 2026-11-29T14:05:00Z, or nanoseconds since 1970")
		return time.Time{}
	}
	return t
}

// duration is a length of time such as 2s or 150ms; 0 if it is not given.
func (a *arguments) duration(name string) time.Duration {
	s := a.text(name)
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		a.wrong(name, s, "give a length of time such as 2s or 150ms")
		return 0
	}
	return d
}

// number is a number from 1; 0 if it is not given.
func (a *arguments) number(name string) uint64 {
	s := a.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 {
		a.wrong(name, s, "give a number from 1")
		return 0
	}
	return n
}

// limit is how many rows a list may have.
func (a *arguments) limit() int {
	s := a.text("limit")
	if s == "" {
		return listRows
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxRows {
		a.wrong("limit", s, fmt.Sprintf("give a number from 1 to %d; what is not listed is on the next page", maxRows))
		return 0
	}
	return n
}
