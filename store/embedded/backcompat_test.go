package embedded

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

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
		then := decoded(t, want).(map[string]any)
		if l := lost("", then, decoded(t, answers(t, data))); len(l) > 0 {
			t.Errorf("format %d: %d answers are not those of its day:\n%s", f, len(l), strings.Join(l[:min(len(l), 20)], "\n"))
		}
		renewed(t, data)
		delete(then, "periods")
		for _, facts := range then {
			if facts, ok := facts.(map[string]any); ok {
				for _, row := range []string{"Stretch", "SequenceRows", "ClientRow"} { // they are where they are now
					delete(facts["row"].(map[string]any), row)
				}
			}
		}
		if l := lost("", then, decoded(t, answers(t, data))); len(l) > 0 {
			t.Errorf("format %d, merged: %d answers are not those of its day:\n%s", f, len(l), strings.Join(l[:min(len(l), 20)], "\n"))
		}
	}
}

// renewed exports a data directory, with the tables of today, and merges its periods into one an engine of the present format.
func renewed(t *testing.T, data string) {
	t.Helper()
	s, err := Open(data, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "export")
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
	before, err := s.Periods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range store.Tables {
		if files, err := filepath.Glob(filepath.Join(dir, table.Name, "*.parquet")); err != nil || len(files) != len(before) && !table.Private {
			t.Errorf("%s: %d files of %d periods, %v", table.Name, len(files), len(before), err)
		}
	}
	engines := map[ledger.EngineID]bool{} // calls have none
	for _, p := range before {
		engines[p.Engine] = true
	}
	if n, err := s.Compact(ctx, 1_000_000, 2); err != nil || n != len(before)-len(engines) {
		t.Errorf("%d of %d periods merged, %v", n, len(before), err)
	}
	ps, err := s.Verify(ctx)
	if err != nil || len(ps) != len(engines) {
		t.Errorf("%d periods of %d engines, %v", len(ps), len(engines), err)
	}
	for _, p := range ps {
		if p.Format != format || p.Damaged != "" {
			t.Errorf("%+v", p)
		}
	}
}

// lost says what of an answer another one does not have: a field may appear, none may change or vanish.
func lost(where string, was, now any) (out []string) {
	switch was := was.(type) {
	case map[string]any:
		here, _ := now.(map[string]any)
		for k, v := range was {
			out = append(out, lost(where+"."+k, v, here[k])...)
		}
		return out
	case []any:
		if here, _ := now.([]any); len(here) == len(was) {
			for i, v := range was {
				out = append(out, lost(fmt.Sprintf("%s[%d]", where, i), v, here[i])...)
			}
			return out
		}
	}
	if !reflect.DeepEqual(was, now) {
		out = append(out, fmt.Sprintf("%s was %v and is %v", where, was, now))
	}
	return out
}

func decoded(t *testing.T, b []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
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
		if r.Row.Level == 1 {
			out[r.Row.TraceID] = map[string]any{"row": got.Row, "call": storetest.Told(t, s, r.Row.TraceID)}
			continue
		}
		facts := map[string]any{"row": got.Row, "iterations": len(got.Engine.Iterations), "busy": sumsThen(got.Engine.Between(got.Engine.First, got.Engine.Last()))}
		if l := got.Request.Labels; l != (ledger.Labels{}) {
			facts["labels"] = l
		}
		var evictions []string
		for _, v := range got.Engine.Evictions {
			who := "nobody known"
			if v.Seq != nil {
				who = v.Seq.ID
			}
			evictions = append(evictions, fmt.Sprintf("%d: %d blocks of %s at %d", v.Iteration, v.Blocks, who, v.At))
		}
		if evictions != nil {
			facts["evictions"] = evictions
		}
		if row := got.Engine.Row(got.Engine.First + 1); row != nil && row.Execution != nil {
			facts["execution"] = row.Execution
		}
		for _, q := range got.Request.Sequences {
			facts[q.ID] = fmt.Sprintf("%d skips, %d preemptions, tokens emitted %d", len(q.Skips), len(q.Preemptions), q.Output)
			for i := range q.Stints {
				k := q.Stints[i]
				facts[fmt.Sprintf("%s stint %d", q.ID, i)] = fmt.Sprintf("%v %d-%d before %d tokens %v final %v", k.Phase, k.First, k.Last, k.Before, k.Tokens, k.Final)
				if k.Drafts != nil {
					facts[fmt.Sprintf("%s stint %d drafts", q.ID, i)] = fmt.Sprintf("%v rejected %v", k.Drafts, k.Rejected)
				}
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
	book := storetest.Facts(storetest.Random(t, 8, 120))
	storetest.SealAll(t, s, book, 50, 120)
	storetest.SealCalls(t, s, storetest.Spans(0, 20), 3)
	storetest.SealCalls(t, s, storetest.Spans(20, 10), 5)
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
