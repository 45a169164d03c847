package workload

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
)

// A table is a CSV layout: which of its columns hold what we need. Others are passed over.
type table struct {
	name                 string
	header               string // as it is published, for errors
	time, prompt, output string // columns
	class                string // column whose value is the request's class; empty if there is none
	at                   func([]byte) (time.Duration, bool)
	timeAdvice           string
	noOutput             string // what an answer of no tokens means
}

// azure is Microsoft's trace of two services, 2023, and with a zone in its times that of 2024
// (https://github.com/Azure/AzurePublicDataset, CC-BY).
var azure = table{
	name: "Azure", header: "TIMESTAMP,ContextTokens,GeneratedTokens",
	time: "TIMESTAMP", prompt: "ContextTokens", output: "GeneratedTokens",
	at: timeOfDay, timeAdvice: "give a time such as 2023-11-16 18:17:03.9799600, not before 1970",
	noOutput: "nothing was generated, so there is nothing to ask for",
}

// burst is BurstGPT (https://github.com/HPMLL/BurstGPT, CC-BY-4.0), with or without its columns of sessions.
var burst = table{
	name: "BurstGPT", header: "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
	time: "Timestamp", prompt: "Request tokens", output: "Response tokens", class: "Log Type",
	at: seconds, timeAdvice: "give seconds since the first day's midnight, such as 118 or 118.5",
	noOutput: "the request failed",
}

// is says whether the line is the table's header: it has all columns that are needed.
func (t *table) is(line []byte) bool {
	names, err := cells(line, nil)
	return err == nil && len(t.missing(names)) == 0
}

// lacks names a column that a line lacks which otherwise looks like the table's header, or "".
func (t *table) lacks(line []byte) string {
	names, err := cells(line, nil)
	if missing := t.missing(names); err == nil && len(missing) == 1 {
		return missing[0]
	}
	return ""
}

func (t *table) missing(names [][]byte) (missing []string) {
	for _, column := range []string{t.time, t.prompt, t.output} {
		if place(names, column) < 0 {
			missing = append(missing, column)
		}
	}
	return missing
}

func place(names [][]byte, column string) int {
	for i, n := range names {
		if column != "" && strings.EqualFold(string(bytes.TrimSpace(n)), column) {
			return i
		}
	}
	return -1
}

// parser returns the format of one file: its first line is the header.
func (t *table) parser() experiment.Format {
	var row [][]byte
	var columns int
	var at, prompt, output, class int
	classes := map[string]string{} // so that equal classes share their text
	return func(line []byte) (r experiment.Request, ok bool, err error) {
		if row, err = cells(line, row[:0]); err != nil {
			return r, false, &experiment.FieldError{Value: shown(line), Kind: "not a row", Advice: "it is not CSV: " + err.Error()}
		}
		if columns == 0 {
			columns = len(row)
			at, prompt, output, class = place(row, t.time), place(row, t.prompt), place(row, t.output), place(row, t.class)
			return r, false, nil
		}
		if len(row) != columns {
			return r, false, &experiment.FieldError{Value: shown(line), Kind: "not a row",
				Advice: fmt.Sprintf("the row has %d fields, the header %d; is the line cut?", len(row), columns)}
		}
		if r.At, ok = t.at(row[at]); !ok {
			return r, false, &experiment.FieldError{Field: t.time, Value: shown(row[at]), Advice: t.timeAdvice}
		}
		if r.PromptTokens, err = tokens(t.prompt, row[prompt], "the prompt is empty"); err != nil {
			return r, false, err
		}
		if r.OutputTokens, err = tokens(t.output, row[output], t.noOutput); err != nil {
			return r, false, err
		}
		if class >= 0 {
			text, known := classes[string(row[class])]
			if !known {
				text = string(bytes.TrimSpace(row[class]))
				if len(classes) < 1000 { // a column of classes has a few; any other is not worth the memory
					classes[text] = text
				}
			}
			r.Class = text
		}
		if r.Class != "" {
			err = r.Validate()
		}
		return r, true, err
	}
}

// cells splits a line. Quotes are rare, so they alone are left to a reader that allocates.
func cells(line []byte, row [][]byte) ([][]byte, error) {
	if bytes.IndexByte(line, '"') >= 0 {
		fields, err := csv.NewReader(bytes.NewReader(line)).Read()
		for _, f := range fields {
			row = append(row, []byte(f))
		}
		return row, err
	}
	for {
		cell, rest, more := bytes.Cut(line, []byte(","))
		row = append(row, cell)
		if !more {
			return row, nil
		}
		line = rest
	}
}

// tokens reads a length. None is an error of its own, as traces hold requests that failed.
func tokens(column string, cell []byte, none string) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(cell)))
	switch {
	case err != nil || n < 0 || n > experiment.MaxTokens:
		return 0, &experiment.FieldError{Field: column, Value: shown(cell), Advice: fmt.Sprintf("give a whole number from 1 to %d, or leave the row out (--skip-bad)", experiment.MaxTokens)}
	case n == 0:
		return 0, &experiment.FieldError{Field: column, Value: "0", Kind: column + " 0", Advice: none + "; leave such rows out (--skip-bad)"}
	}
	return n, nil
}

// timeOfDay reads Azure's times, in UTC if they name no zone, as time since 1970.
func timeOfDay(cell []byte) (time.Duration, bool) {
	text := string(bytes.TrimSpace(cell))
	t, err := time.Parse("2006-01-02 15:04:05", text)
	if err != nil {
		t, err = time.Parse("2006-01-02 15:04:05Z07:00", text)
	}
	if err != nil || t.Year() < 1970 || t.Year() > 2100 || t.Unix() < 0 {
		return 0, false
	}
	return time.Duration(t.UnixNano()), true
}

// seconds reads a number of seconds.
func seconds(cell []byte) (time.Duration, bool) {
	s, err := strconv.ParseFloat(string(bytes.TrimSpace(cell)), 64)
	if err != nil || !(s >= 0) || s > 4e9 { // more than 126 years is none
		return 0, false
	}
	return time.Duration(math.Round(s * 1e9)), true
}
