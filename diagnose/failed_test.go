package diagnose

import (
	"strings"
	"testing"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
)

// Whoever failed is told so in the first sentence, whatever else is said of him.
func TestTheHeadlineSaysThatARequestFailed(t *testing.T) {
	client := func(o ledger.Outcome, text string) []ledger.Client {
		return []ledger.Client{{Sent: 1, Ended: 2e9, Outcome: o, Error: text}}
	}
	for want, r := range map[string]*ledger.Request{
		"failed (status 503)":                           {Status: 503, LastByte: 2e9},
		"failed (the engine ended it with an error)":    {Status: 200, LastByte: 2e9, Sequences: []*ledger.Sequence{{Reason: ledger.FinishError, Finished: 2e9}}},
		"failed (the front end ended it with an error)": {Status: 200, LastByte: 2e9, End: ledger.EndError},
		"is in the front end after 2.00 s and failed (for its client: connection error, the stream broke)": {Clients: client(ledger.OutcomeConnection, "the stream broke")},
		"took 2.00 s; ": {Status: 200, LastByte: 2e9, End: ledger.EndDisconnect, Clients: client(ledger.OutcomeCancelled, "")},
	} {
		r.RequestID, r.Received = "r", 1
		x := Explain(query.Open(&ledger.Book{Requests: []*ledger.Request{r}, Now: 2e9}), r)
		if !strings.Contains(x.Headline, want) {
			t.Errorf("%q, want %q", x.Headline, want)
		}
	}
}
