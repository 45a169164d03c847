package export

import (
	"testing"

	"github.com/whylate/whylate/ledger"
)

func TestTheModelIsWhatClientsCallIt(t *testing.T) {
	for want, settings := range map[string]map[string]any{
		"tiny":           {"model": "/models/acme/atlas-32b", "served_model": "tiny"},
		"acme/atlas-32b": {"model": "acme/atlas-32b"}, // of a probe that does not tell
		"atlas-32b":      {"model": "/models/acme/atlas-32b"},
		"":               {"model": "x", "served_model": "kim@example.com"},
	} {
		b := builder{e: &ledger.Engine{Settings: settings}}
		if got := b.model(); got != want {
			t.Errorf("%v: %q, want %q", settings, got, want)
		}
	}
}
