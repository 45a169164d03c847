package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
)

// An engine in a mode that was never tried is marked as such, in one line, and no other is.
func TestTopSaysWhatWasNeverTried(t *testing.T) {
	var out bytes.Buffer
	e := &env{out: &out}
	e.printEngines(&api.EngineList{Engines: []api.EngineState{{ID: "a/0@1"}, {ID: "b/0@2", Untried: []string{"pipeline parallelism"}}}})
	marked := strings.Count(out.String(), "Never held")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if last := lines[len(lines)-1]; marked != 1 || !strings.HasPrefix(last, "b/0@2: ") || !strings.Contains(last, "pipeline parallelism") {
		t.Errorf("%q", lines)
	}
}
