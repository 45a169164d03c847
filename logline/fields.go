package logline

import (
	"math"
	"strconv"
	"strings"
)

// Opt is a value that a line may lack. Absent is not zero.
type Opt[T any] struct {
	Value T
	Known bool
}

// Some is a value that a line has.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// Or is the value, or another where it is absent.
func (o Opt[T]) Or(other T) T {
	if o.Known {
		return o.Value
	}
	return other
}

// Get is the value, and whether there is one.
func (o Opt[T]) Get() (any, bool) { return o.Value, o.Known }

// Rest is what a line told beyond the fields of its record.
type Rest struct {
	Extra    []Extra // what a version that we do not know has added
	Withheld int     // pieces that are not kept, since they look like no measurement: they may be anybody's words
}

// Extra is a key without a meaning here, and its value as it stands: a number with its unit, a yes or no, or one word.
type Extra struct{ Key, Value string }

const (
	maxExtra = 64 // of one line
	maxKey   = 64 // bytes
	maxWord  = 32
	maxName  = 200
)

// Keys are the names of a record's fields in its lines: all that versions ever called them. A field takes a value's text, and says whether
// it understood all of it.
type Keys[T any] map[string]func(*T, string) bool

// Style is how a list writes a pair; it is no pair if it has no key.
type Style func(piece string) (key, value string)

// Colon is "key: value", as most lists are.
func Colon(piece string) (key, value string) {
	key, value, ok := strings.Cut(piece, ": ")
	if !ok {
		if key, ok = strings.CutSuffix(piece, ":"); !ok {
			return "", piece
		}
	}
	return key, value
}

// Equals is "key=value".
func Equals(piece string) (key, value string) {
	key, value, ok := strings.Cut(piece, "=")
	if !ok {
		return "", piece
	}
	return key, value
}

// Counts is "3 context requests" beside "key: value".
func Counts(piece string) (key, value string) {
	if value, key, ok := strings.Cut(piece, " "); ok && isDigit(piece[0]) {
		return key, value
	}
	return Colon(piece)
}

// Fill reads a list of pairs into a record. A piece without a key belongs to the value before it: "Per-position acceptance rate: 0.8, 0.6".
// What is unknown is kept in Rest as long as it looks like a measurement. After the first piece that does not, a line may have been torn
// and go on with something else, so only known keys are read on.
func Fill[T any](into *T, keys Keys[T], list string, style Style) (rest Rest) {
	var key, value string
	strange, some := false, false
	flush := func() {
		set, known := keys[key]
		switch {
		case !some:
		case known && set(into, value):
		case known, strange, len(rest.Extra) == maxExtra, !isKey(key), !isValue(value):
			strange = true
			rest.Withheld++
		default:
			rest.Extra = append(rest.Extra, Extra{strings.Clone(key), strings.Clone(value)}) // not the whole line
		}
	}
	for piece := range strings.SplitSeq(list, ", ") {
		piece = strings.TrimSpace(strings.TrimRight(strings.TrimSpace(piece), ","))
		if piece == "" {
			continue
		}
		k, v := style(piece)
		if k == "" {
			if !some {
				key, value, some = "", v, true
				continue
			}
			if len(value)+len(v) < 4096 {
				value += ", " + v
			}
			continue
		}
		flush()
		key, value, some = k, v, true
	}
	flush()
	return rest
}

func isKey(key string) bool {
	if key == "" || len(key) > maxKey || !isLetter(key[0]) && key[0] != '#' {
		return false
	}
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 #_-()/.%") == ""
}

func isValue(value string) bool {
	if _, unit, ok := Number(value); ok && isUnit(unit) {
		return true
	}
	return value != "" && len(value) <= maxWord && isName([]byte(value))
}

// Number is the one that a text begins with, thousands separated by commas or not, and what follows it.
func Number(s string) (n float64, rest string, ok bool) {
	end := 0
	for end < len(s) && (isDigit(s[end]) || strings.IndexByte("+-.,eE", s[end]) >= 0 && !(end == 0 && strings.IndexByte(",eE", s[end]) >= 0)) {
		end++
	}
	for end > 0 && !isDigit(s[end-1]) {
		end--
	}
	digits := s[:end]
	if strings.IndexByte(digits, ',') >= 0 {
		digits = strings.ReplaceAll(digits, ",", "")
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, s, false
	}
	return n, strings.TrimLeft(s[end:], " "), true
}

func isUnit(s string) bool {
	switch strings.TrimSuffix(s, ".") {
	case "", "%", "tokens/s", "toks/s", "token/s", "reqs", "requests", "tokens", "blocks", "ms", "s", "us", "secs", "seconds", "x", "GiB", "GB",
		"MB", "GB/s", "MB/s", "Hz", "W", "TF/s/GPU", "GB/s/GPU", "TF/s/device", "GB/s/device":
		return true
	}
	return false
}

// Share is a field that is printed in per cent and kept as a share of 1.
func Share[T any](field func(*T) *Opt[float64]) func(*T, string) bool { return over(100, field) }

// Float is a field that is kept as it is printed.
func Float[T any](field func(*T) *Opt[float64]) func(*T, string) bool { return over(1, field) }

func over[T any](by float64, field func(*T) *Opt[float64]) func(*T, string) bool {
	return func(t *T, value string) bool {
		n, unit, ok := Number(value)
		if !ok {
			return isNaN(value) // nothing was there to divide by: absent
		}
		return once(field(t), n/by) && isUnit(unit)
	}
}

// Int is a whole number.
func Int[T any](field func(*T) *Opt[int]) func(*T, string) bool {
	return func(t *T, value string) bool {
		n, unit, ok := Number(value)
		if !ok || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
			return false
		}
		return once(field(t), int(n)) && isUnit(unit)
	}
}

// Word is a name: of a request, of a kind. One that is longer than a name is cut.
func Word[T any](field func(*T) *string) func(*T, string) bool {
	return func(t *T, value string) bool {
		*field(t) = Name(value)
		return true
	}
}

// Name is a text's first word, cut where it is longer than a name, and none of the text's memory.
func Name(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), " ")
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), maxName)], ""))
}

// Flag is True or False.
func Flag[T any](field func(*T) *Opt[bool]) func(*T, string) bool {
	return func(t *T, value string) bool {
		return (value == "True" || value == "False") && once(field(t), value == "True")
	}
}

// once keeps the first value: a second one is from somewhere else.
func once[T any](field *Opt[T], v T) bool {
	if field.Known {
		return false
	}
	*field = Some(v)
	return true
}

func isNaN(s string) bool {
	return strings.HasPrefix(strings.TrimLeft(strings.ToLower(s), "+-"), "nan")
}
