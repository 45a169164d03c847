// Package engineproof is what the proofs on a real engine share: checks that are told as they are made, loads without content, and a
// run of which every independent source is kept: the probe's records, the clients' own, the engine's log and its counters.
package engineproof

import (
	"fmt"
	"io"

	"github.com/whylate/whylate/internal/figure"
)

// Report tells each check as it is made, and in the end how many failed.
type Report struct {
	Sheet *figure.Sheet
	Out   io.Writer

	checks int
	failed []string
}

// Check tells one.
func (r *Report) Check(ok bool, format string, args ...any) bool {
	r.checks++
	text := fmt.Sprintf(format, args...)
	word := "ok   "
	if !ok {
		word = "FAIL "
		r.failed = append(r.failed, text)
	}
	fmt.Fprintln(r.Out, word, text)
	return ok
}

// Skip tells a check that cannot be made here, and why: it proves nothing.
func (r *Report) Skip(format string, args ...any) {
	fmt.Fprintln(r.Out, "skip ", fmt.Sprintf(format, args...))
}

// Conclude repeats what failed, and reports whether nothing did.
func (r *Report) Conclude(proof string) bool {
	if len(r.failed) == 0 {
		fmt.Fprintf(r.Out, "%s: all %d checks passed\n", proof, r.checks)
		return true
	}
	fmt.Fprintf(r.Out, "%s: %d of %d checks FAILED\n", proof, len(r.failed), r.checks)
	for _, f := range r.failed {
		fmt.Fprintln(r.Out, "  "+f)
	}
	return false
}
