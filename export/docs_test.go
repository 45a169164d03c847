package export

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// The page has the tree as it is, every figure, and the version of the conventions.
func TestDocsTellTheTree(t *testing.T) {
	b, err := os.ReadFile("../docs/export.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	has := func(what string) {
		t.Helper()
		if !strings.Contains(page, what) {
			t.Errorf("docs/export.md lacks %q", what)
		}
	}
	for _, n := range Tree() {
		has(fmt.Sprintf("| %s | %s | `%s` |", n.Part, n.Bounds, n.Span))
	}
	has("`" + unexplainedSpan + "`")
	has("conventions " + strings.TrimPrefix(SchemaURL, "https://opentelemetry.io/schemas/"))
	for _, e := range []string{eventFirstToken, eventFirstByte, eventHungUp, eventStint, eventRecompute, eventPreemption} {
		has("`" + e + "`")
	}
	for _, why := range Reasons {
		has(why)
	}
	families, err := New(Settings{}).Metrics().Gather()
	if err != nil || len(families) == 0 {
		t.Fatal(err)
	}
	for _, f := range families {
		has("`" + f.GetName() + "`")
	}
}
