// Package logtest is what the tests of log readers share.
package logtest

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/whylate/whylate/logline"
)

const cases = "../../testdata/cases/"

// Case is the log of a case.
func Case(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(cases + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Cases are the logs of all cases by their name.
func Cases(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(cases + "*.log")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	all := map[string][]byte{}
	for _, f := range files {
		all[filepath.Base(f)] = Case(t, filepath.Base(f))
	}
	return all
}

// Read reads a plain log with a package's reader, and fails where a physical line is in no entry.
func Read[R any](t testing.TB, read func(io.Reader, logline.Options) iter.Seq2[logline.Entry[R], error], b []byte) (all []logline.Entry[R]) {
	t.Helper()
	seen := map[int]bool{}
	for e, err := range read(bytes.NewReader(b), logline.Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
		for n := e.First; n <= e.Last; n++ {
			seen[n] = true
		}
	}
	lines := bytes.Count(b, []byte("\n"))
	if len(b) > 0 && b[len(b)-1] != '\n' {
		lines++
	}
	if len(seen) != lines {
		t.Errorf("%d of %d lines are in an entry", len(seen), lines)
	}
	return all
}

// Kinds counts records by their type.
func Kinds[R any](all []logline.Entry[R]) map[string]int {
	n := map[string]int{}
	for _, e := range all {
		n[fmt.Sprintf("%T", e.Record)]++
	}
	return n
}

// Near fails where a measurement is absent, or not what it is to be.
func Near(t testing.TB, what string, got logline.Opt[float64], want float64) {
	t.Helper()
	if !got.Known || math.Abs(got.Value-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Is fails where something is not what it is to be.
func Is[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Lines measures how many lines a second a reader takes from a log.
func Lines[R any](b *testing.B, read func(io.Reader, logline.Options) iter.Seq2[logline.Entry[R], error], log []byte) {
	log = bytes.Repeat(log, 1000)
	n := 0
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		for _, err := range read(bytes.NewReader(log), logline.Options{}) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "lines/s")
}
