package cli

import (
	"fmt"
	"maps"
	"slices"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest/stream"
)

// refusals tells which senders a server has refused since it began, by reason; not those that it left because it was ending.
func refusals(s stream.Stats) (out []api.Fault) {
	for _, code := range slices.Sorted(maps.Keys(s.Refused)) {
		if code == stream.CodeEnding {
			continue
		}
		last := s.LastRefused[code]
		who := last.Remote
		if last.Agent.Host != "" {
			who = last.Agent.String() + " at " + who
		}
		out = append(out, api.Fault{What: fmt.Sprintf("taking in senders (%s)", code), Count: s.Refused[code], Last: who + ": " + last.What, Remedy: last.Remedy, At: last.At.UnixNano()})
	}
	return out
}
