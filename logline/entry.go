package logline

import (
	"io"
	"iter"
	"strings"
)

// Entry is a line that has been understood: where and when it was written and by whom, and what it says.
type Entry[R any] struct {
	Mark
	Record R
}

// Entries reads a log to its end: an entry for every line, in their order. An error is the last that it gives.
func Entries[R any](r io.Reader, o Options, parse func(text string) R) iter.Seq2[Entry[R], error] {
	return func(yield func(Entry[R], error) bool) {
		for l, err := range Read(r, o) {
			e := Entry[R]{Mark: l.Mark}
			if err == nil {
				e.Record = parse(l.Text)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// Sniff says whether one of the lines that a log begins with is what somebody looks for.
func Sniff(lines []string, ours func(text string) bool) bool {
	for l, err := range Read(strings.NewReader(strings.Join(lines, "\n")), Options{}) {
		if err != nil || ours(l.Text) {
			return err == nil
		}
	}
	return false
}

// maxBeginning is how far into a line the text may be by which its kind is known: behind a prefix that nobody knows.
const maxBeginning = 200

// Beginning is the part of a text in which its kind is told: not what is quoted, which would be somebody's words.
func Beginning(text string) string {
	text = text[:min(len(text), maxBeginning)]
	if quote := strings.IndexAny(text, "'\"{"); quote >= 0 {
		text = text[:quote]
	}
	return text
}
