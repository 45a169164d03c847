package apptest

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
)

var update = flag.Bool("update", false, "accept the present answers")

// TestOldDataDirectoriesAreServed lets the whole server open the data directory of every format that was ever kept: what the API answers about
// all that is over is what was accepted.
func TestOldDataDirectoriesAreServed(t *testing.T) {
	kept, err := filepath.Glob("../../testdata/backcompat/store-*")
	if err != nil || len(kept) == 0 {
		t.Fatalf("no old data directories: %v", err)
	}
	for _, k := range kept {
		t.Run(filepath.Base(k), func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(filepath.Join(dir, "data", "store"), os.DirFS(filepath.Join(k, "data"))); err != nil {
				t.Fatal(err)
			}
			p := serve(t, dir, "--store-retention-iterations", "forever", "--store-retention-requests", "forever", "--store-seal-every", "24h")
			got := indented(t, answersOf(t, p.client())) + "\n"
			p.stop()
			path := filepath.Join(k, "api.json")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatalf("%v; look at what it answers and accept it with 'go test ./internal/apptest -run OldData -update'", err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("-accepted +now:\n%s", d)
			}
		})
	}
}

// answers are what a server says of what is over: the rest goes on with the clock.
type answers struct {
	Requests   []api.RequestRow                 `json:"requests"`
	Explained  map[string]*diagnose.Explanation `json:"explained"`
	Iterations []api.IterationRow               `json:"iterations"`
	Detail     *api.IterationDetail             `json:"iteration"`
}

func answersOf(t *testing.T, srv api.Service) (a answers) {
	t.Helper()
	ctx := context.Background()
	list, err := srv.Requests(ctx, api.RequestsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	a.Requests = slices.DeleteFunc(list.Requests, func(r api.RequestRow) bool { return r.State != account.Finished })
	a.Explained = map[string]*diagnose.Explanation{}
	seen := map[string]bool{}
	for i, r := range a.Requests {
		if seen[r.Name] {
			t.Errorf("%s is there twice", r.Name)
		}
		seen[r.Name] = true
		if i%3 != 0 { // a sample is enough
			continue
		}
		if a.Explained[r.Name], err = srv.Explain(ctx, api.ExplainQuery{ID: r.Name}); err != nil {
			t.Errorf("explain %s: %v", r.Name, err)
		}
	}
	its, err := srv.Iterations(ctx, api.IterationsQuery{Engine: "test", From: 1, Limit: 200})
	if err != nil {
		t.Fatal(err)
	}
	a.Iterations = its.Iterations
	if a.Detail, err = srv.Iteration(ctx, api.IterationQuery{Engine: "test", Number: 40}); err != nil {
		t.Fatal(err)
	}
	return a
}
