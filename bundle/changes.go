package bundle

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/ledger"
)

// mostLine bounds a change, in bytes; mostChanges how many of them one file may tell.
const (
	mostLine    = 64 << 10
	mostChanges = 100_000
)

// isChange reports whether a text begins with the line of a change.
func isChange(head []byte) bool {
	line, _, _ := bytes.Cut(bytes.TrimLeft(head, " \t\r\n\ufeff"), []byte("\n"))
	var c struct {
		At   *int64 `json:"at_unix_ns"`
		Kind string `json:"kind"`
	}
	return json.Unmarshal(line, &c) == nil && c.At != nil && c.Kind != ""
}

// ReadChanges reads changes, one JSON object a line. A line that is none is told and costs nothing else.
func ReadChanges(r io.Reader) (changes []ledger.Change, problems []string, err error) {
	in := bufio.NewReaderSize(r, mostLine)
	for n := 1; ; n++ {
		line, err := in.ReadSlice('\n')
		tooLong := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return changes, problems, fmt.Errorf("after line %d: %w", n-1, err)
		}
		text := bytes.TrimSpace(line)
		var c ledger.Change
		switch {
		case tooLong:
			problems = append(problems, fmt.Sprintf("line %d has over %d bytes: no change", n, mostLine))
		case len(text) == 0:
		case json.Unmarshal(text, &c) != nil:
			problems = append(problems, fmt.Sprintf("line %d is no change: %.60q", n, text))
		case c.At == 0 || c.Kind == "":
			problems = append(problems, fmt.Sprintf("line %d lacks at_unix_ns or kind", n))
		case len(changes) == mostChanges:
			return changes, append(problems, fmt.Sprintf("from line %d on: over %d changes", n, mostChanges)), nil
		default:
			changes = append(changes, c)
		}
		if err != nil {
			return changes, problems, nil
		}
	}
}

// WriteChanges writes changes as they are read.
func WriteChanges(w io.Writer, changes []ledger.Change) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for i := range changes {
		if err := out.Encode(&changes[i]); err != nil {
			return err
		}
	}
	return nil
}
