package embedded

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/storetest"
)

var keepFormat = flag.Bool("keep-format", false, "write a data directory of the present format into testdata/backcompat, once for each format")

// backcompat holds data directories that earlier formats left, with what they answered then: store-N/data and store-N/answers.json. They are
// never written again.
const backcompat = "../../testdata/backcompat"

// TestOldDataDirectoriesOpen opens the data directory of every format there ever was: the answers are those of its day.
func TestOldDataDirectoriesOpen(t *testing.T) {
	if *keepFormat {
		writeBackcompat(t, filepath.Join(backcompat, fmt.Sprintf("store-%d", format)))
	}
	for f := 1; f <= format; f++ {
		dir := filepath.Join(backcompat, fmt.Sprintf("store-%d", f))
		want, err := os.ReadFile(filepath.Join(dir, "answers.json"))
		if err != nil {
			t.Fatalf("format %d: %v; a new format is kept with 'go test ./store/embedded -run OldData -keep-format'", f, err)
		}
		data := filepath.Join(t.TempDir(), "data")
		if err := os.CopyFS(data, os.DirFS(filepath.Join(dir, "data"))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(answers(t, data))); diff != "" {
			t.Errorf("format %d, -then +now:\n%s", f, diff)
		}
	}
}

// answers is what a data directory says, as JSON.
func answers(t *testing.T, data string) []byte {
	t.Helper()
	s, err := Open(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ps, err := s.Verify(ctx)
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.List(ctx, store.Filter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{"periods": ps}
	for _, r := range page.Rows {
		got, err := s.Load(ctx, r.Ref)
		if err != nil {
			t.Fatal(err)
		}
		facts := map[string]any{"row": got.Row, "iterations": len(got.Engine.Iterations), "busy": sumsThen(got.Engine.Between(got.Engine.First, got.Engine.Last()))}
		for _, q := range got.Request.Sequences {
			facts[q.ID] = fmt.Sprintf("%d skips, %d preemptions, tokens emitted %d", len(q.Skips), len(q.Preemptions), q.Output)
			for i := range q.Stints {
				k := q.Stints[i]
				facts[fmt.Sprintf("%s stint %d", q.ID, i)] = fmt.Sprintf("%v %d-%d before %d tokens %v final %v", k.Phase, k.First, k.Last, k.Before, k.Tokens, k.Final)
			}
		}
		out[got.Request.Name()] = facts
	}
	out["log"], _ = storetest.Replayed(t, s, store.Position{})
	b, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return append(bytes.TrimSpace(b), '\n')
}

// sumsThen are sums with the features of work that there were when the first answers were kept: later ones are made of the same columns.
func sumsThen(s ledger.Sums) any {
	return struct {
		Gap, Busy, Unknown int64
		Work               []float64
	}{s.Gap, s.Busy, s.Unknown, s.Work[:ledger.WorkPrefillSeqs]}
}

func writeBackcompat(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s is there: what a format wrote is never written again", dir)
	}
	data := filepath.Join(dir, "data")
	s, err := Open(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	book := storetest.Random(t, 8, 120)
	storetest.SealAll(t, s, book, 50, 120)
	for _, batch := range storetest.Frames(t, 8, 20, 20) {
		if _, err := s.Append(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(data, lockFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "answers.json"), answers(t, data), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(data, lockFile)); err != nil {
		t.Fatal(err)
	}
}
