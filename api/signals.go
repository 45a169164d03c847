package api

import (
	"context"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/look"
)

// Observer is a [Service] that knows what arrives at its process, and who speaks of whom.
type Observer interface {
	// Signals lists what arrives, what is missing, what arrives without a use and what was refused.
	Signals(context.Context) (*SignalList, error)
	// Identities says which engines, gateways and devices of the ledger, of series and of spans are one.
	Identities(context.Context) (*Identities, error)
}

// SignalList is what has arrived in the time before now.
type SignalList struct {
	Now    int64 `json:"now_unix_ns"`
	Window int64 `json:"window_ns"` // how far back series were looked at
	look.Inventory
	Records []Records       `json:"records"` // what comes beside series
	Refused []RefusedSeries `json:"refused"` // the most frequent first
}

// Records are records of a producer that are no series.
type Records struct {
	Came   string `json:"came"`   // probe or spans
	Name   string `json:"name"`   // of an engine; of spans ""
	Count  uint64 `json:"count"`  // iterations in memory; spans since the start
	Newest int64  `json:"newest"` // Unix ns; 0 = none came yet
}

// RefusedSeries is what was not let into the time series as it was.
type RefusedSeries struct {
	Store   string `json:"store"`            // detail, or rollup
	Metric  string `json:"metric,omitempty"` // none where its name itself was refused, or where too many have something refused
	Label   string `json:"label,omitempty"`  // none where it is not about one
	Why     string `json:"why"`
	Count   uint64 `json:"count"`             // samples
	Example string `json:"example,omitempty"` // what the value looks like: letters as a, digits as 9
	Last    int64  `json:"last_unix_ns"`
}

// Identities are all things that sources speak of, and which of them are one.
type Identities struct {
	identity.Joined
	Clocks []ClockShift `json:"clocks"` // of hosts that are known to be apart
}

// ClockShift is how far a clock is from another, found from spans: no answer comes before its question.
type ClockShift struct {
	Clock string `json:"clock"`   // of the host, pod or service that is off
	From  string `json:"from"`    // the clock that it is held against
	Low   int64  `json:"low_ns"`  // to be added to its times: between this
	High  int64  `json:"high_ns"` // and this
	Pairs int    `json:"pairs"`   // of a client's and a server's span that bound it
	Since int64  `json:"since_unix_ns"`
}

// ShiftsOf are the newest shifts of each two clocks.
func ShiftsOf(shifts []genai.Shift) []ClockShift {
	out := []ClockShift{}
	for _, s := range shifts { // in order of time for each two
		x := ClockShift{s.Inner.String(), s.Outer.String(), s.Low, s.High, s.Pairs, s.From}
		if n := len(out); n > 0 && out[n-1].Clock == x.Clock && out[n-1].From == x.From {
			out[n-1] = x
			continue
		}
		out = append(out, x)
	}
	return out
}
