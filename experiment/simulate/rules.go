package simulate

import (
	"fmt"
	"strings"
)

// Rules are the points in which versions of vLLM decide differently.
type Rules struct {
	Version string

	UncachedFirst   bool // a freed block that holds nothing to be found again is used before all others; else it goes to the end
	Watermark       bool // while anything runs, an admission leaves some blocks free
	DeferredInFront bool // who was passed over goes back to the front of the line; else into a line of its own, which is asked first
	HoldStale       bool // output in flight at a preemption is set apart, and holds up the return of its request
	PadDecode       bool // who needs a single token is admitted with as many drafts as the others
	AloneUnlimited  bool // the limit on long prompts does not bind a request that is alone
	DiscardOne      bool // of the output that is in flight at a reset, one is discarded; else all
	Cadence         bool // with asynchronous scheduling and the second model runner, decoding keeps a distance of the pipeline's stages
	VictimBehind    bool // with priorities, whether a victim moved the place in the running list is told by where it stood; else by whether it had been scheduled
}

var versions = []Rules{
	{Version: "0.20.2", DiscardOne: true},
	{Version: "0.24.0", UncachedFirst: true, Watermark: true, Cadence: true},
	{Version: "0.30.0", UncachedFirst: true, Watermark: true, Cadence: true, HoldStale: true, PadDecode: true, VictimBehind: true},
	{Version: "0.32.0", UncachedFirst: true, Watermark: true, Cadence: true, HoldStale: true, PadDecode: true, VictimBehind: true,
		DeferredInFront: true, AloneUnlimited: true},
}

// RulesOf returns the rules of a vLLM version. A version whose rules are not known is an error that names those that are.
func RulesOf(version string) (Rules, error) {
	var known []string
	for _, r := range versions {
		if r.Version == version {
			return r, nil
		}
		known = append(known, r.Version)
	}
	return Rules{}, fmt.Errorf("simulate: vLLM %q: its scheduling rules are not known; known are %s", version, strings.Join(known, ", "))
}
