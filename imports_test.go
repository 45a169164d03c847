package whylate_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/whylate/whylate/"

// rows is the import table of docs/architecture.md: a package imports only packages of lower rows; a child sits just above
// its parent and sees no sibling. A package that stands in no row fails the test, so the table cannot fall behind.
var rows = [][]string{
	{"ledger", "exposition", "signals", "logline", "identity"},
	{"wire", "account", "adapter", "metrics", "bundle"},
	{"adapter/vllm", "adapter/sglang", "adapter/trtllm", "adapter/tgi", "adapter/llamacpp", "adapter/dynamo", "adapter/litellm", "adapter/dcgm", "adapter/lmdeploy", "adapter/triton", "adapter/epp", "adapter/envoy", "adapter/amd", "adapter/genai"},
	{"adapter/dialects"},
	{"metrics/native"},
	{"gpu", "store", "metrics/promapi", "metrics/rollup"},
	{"gpu/nvml", "store/embedded"},
	{"ingest", "query"},
	{"ingest/stream", "ingest/otlp"},
	{"ingest/otlp/receive"},
	{"agent"},
	{"agent/command"},
	{"diagnose", "experiment", "objective"},
	{"look"},
	{"experiment/replay", "experiment/simulate", "experiment/workload"},
	{"experiment/overhead"},
	{"experiment/simulate/timing", "experiment/simulate/fidelity"},
	{"experiment/simulate/world"},
	{"experiment/simulate/dialect"},
	{"experiment/incident"},
	{"experiment/whatif"},
	{"export"},
	{"api"},
	{"api/client"},
	{"metrics/scrape", "metrics/remotewrite"},
	{"web"},
	{"config"},
	{"agent/command"},
	{"server"},
	{"cli"},
	{"cmd/whylate", "cmd/whylate-agent", "cmd/whylate-gpu"},
}

// anywhere may be imported by tests and by commands that are not shipped, and may import anything.
var anywhere = []string{"internal/scenario", "internal/figure", "internal/engineproof", "internal/enginesmoke", "internal/enginetest", "internal/schedulerdiff", "internal/engineenv", "internal/blame", "internal/whatifproof", "internal/bench", "internal/overhead", "internal/licences", "internal/apptest", "internal/logtest", "internal/signalsgen", "store/storetest", "deploy"}

// leaves import nothing of ours and may be imported by everybody.
var leaves = []string{"internal/vfs", "internal/renew", "internal/process", "internal/student", "internal/numeric"}

// standardOnly import nothing but the standard library and this module.
var standardOnly = []string{"ledger", "account", "adapter/genai", "store", "ingest", "query", "diagnose", "api", "api/client", "experiment", "experiment/simulate", "experiment/simulate/timing", "experiment/simulate/fidelity", "experiment/simulate/world"}

// never are packages that a package must not need, however far down: the agent runs beside engines and stays small.
var never = map[string][]string{
	"agent":             {"store", "store/embedded", "metrics", "web", "server", "cli", "diagnose"},
	"cmd/whylate-agent": {"store", "store/embedded", "metrics", "web", "server", "cli", "diagnose", "gpu/nvml"},
	"cmd/whylate":       {"gpu/nvml"}, // it loads a library: whoever imports it is no static program any more
}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var ps []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return ps
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
}

func TestImportsGoOnlyDownwards(t *testing.T) {
	row := map[string]int{}
	for i, names := range rows {
		for _, n := range names {
			row[n] = i
		}
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(anywhere, name) || p.ImportPath+"/" == module {
			continue
		}
		for _, n := range never[name] {
			if slices.Contains(p.Deps, module+n) {
				t.Errorf("%s needs %s, which it must not", name, n)
			}
		}
		if slices.Contains(leaves, name) {
			if k := slices.IndexFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, module) }); k >= 0 {
				t.Errorf("%s imports %s: it is to import nothing of ours", name, p.Imports[k])
			}
			continue
		}
		from, ok := row[name]
		if !ok {
			t.Errorf("%s stands in no row of the import table: add it here and in docs/architecture.md", name)
			continue
		}
		for _, i := range p.Imports {
			to, ours := strings.CutPrefix(i, module)
			switch {
			case !ours:
				if host, _, _ := strings.Cut(i, "/"); strings.Contains(host, ".") && slices.Contains(standardOnly, name) {
					t.Errorf("%s imports %s: it is one of those that need only the standard library", name, i)
				}
			case slices.Contains(leaves, to):
			case slices.Contains(anywhere, to):
				t.Errorf("%s imports %s, which is for tests and tools", name, to)
			case row[to] >= from:
				t.Errorf("%s (row %d) imports %s (row %d): imports go only downwards", name, from, to, row[to])
			}
		}
	}
}
