package diagnose

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/ledger"
)

// Where an iteration's time passed is told by its ranks' own times: in the worker, on its device, or outside of both.
func TestHeldUp(t *testing.T) {
	const ms = 1e6
	for says, x := range map[string]*ledger.Execution{
		"the machine or the process was held up":                     nil,
		"its rank was at it for 2.99 s: its process":                 {Ranks: 1, Host: 2990 * ms},
		"its rank was done after 12.0 ms: the rest passed outside":   {Ranks: 1, Host: 12 * ms},
		"rank 3, the slowest of 4, was at it for 2.90 s, its device": {Ranks: 4, Slowest: 3, Host: 2900 * ms, Device: 2800 * ms},
		"at it for 2.00 s of that":                                   {Ranks: 1, Host: 2000 * ms},
	} {
		if got := heldUp(&ledger.Iteration{Start: 0, End: 3000 * ms, Execution: x}); !strings.Contains(got, says) {
			t.Errorf("%q is not in %q", says, got)
		}
	}
}
