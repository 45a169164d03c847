package embedded

import (
	"fmt"
	"github.com/parquet-go/parquet-go"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/store/storetest"
)

// TestDuckDBOpensAnExport is run where WHYLATE_DUCKDB_PYTHON names a Python with duckdb and polars (scripts/tables-env.sh makes one): every
// column of docs/tables.md is there with its type, and sums are those of the ledger, as DuckDB and as Polars read them.
func TestDuckDBOpensAnExport(t *testing.T) {
	python := os.Getenv("WHYLATE_DUCKDB_PYTHON")
	if python == "" {
		t.Skip("set WHYLATE_DUCKDB_PYTHON to a Python that has duckdb and polars: scripts/tables-env.sh")
	}
	s, err := Open(filepath.Join(t.TempDir(), "data"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := storetest.Random(t, 5, 300)
	_, sealed := storetest.SealAll(t, s, b, 100, 300)
	dir := filepath.Join(t.TempDir(), "export")
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
	e := b.Engines[0]
	var tokens, stints uint64
	for i := range e.Iterations {
		tokens += uint64(e.Iterations[i].Tokens)
	}
	for _, r := range sealed {
		for _, q := range r.Sequences {
			for i := range q.Stints {
				stints += q.Stints[i].Sum()
			}
		}
	}
	out, err := exec.Command(python, "-c", `
import duckdb, re, sys
d = sys.argv[1]
tables = {}
for line in open(d + "/tables.md"):
    if line.startswith("## "): name = line[3:].strip(); tables[name] = []
    m = re.match(r"\| .(\w+). \| ([A-Z]+(?:\[\])?) \|", line)
    if m: tables[name].append(m.groups())
for name, want in tables.items():
    if name == "ids": continue
    have = [r[:2] for r in duckdb.sql(f"describe select * from '{d}/{name}/*.parquet'").fetchall()]
    assert have == want, (name, have, want)
one = lambda q: duckdb.sql(q.replace("@", d + "/")).fetchall()[0][0]
print(one("select sum(tokens) from '@iterations/*.parquet'"),
      one("select sum(coalesce(list_sum(s.tokens), 0) + if(len(s.tokens) = 0, s.iterations, 0)) from read_parquet('@stints/*.parquet', filename='f') s join read_parquet('@sequences/*.parquet', filename='f', file_row_number=true) q on split_part(s.f, '/', -1) = split_part(q.f, '/', -1) and s.sequence_row = q.file_row_number where not q.guest"),
      one("select count(*) from '@requests/*.parquet'"))

import glob
import polars as pl
read = lambda name: {f.rsplit("/", 1)[1]: pl.read_parquet(f) for f in sorted(glob.glob(f"{d}/{name}/*.parquet"))}
for name, want in tables.items():
    if name == "ids": continue
    for t in read(name).values(): assert t.columns == [c for c, _ in want], (name, t.columns)
stints, sequences = read("stints"), read("sequences")
total = 0
for f, s in stints.items():
    q = sequences[f].with_row_index("sequence_row").filter(~pl.col("guest")).select(pl.col("sequence_row").cast(s.schema["sequence_row"]))
    given = pl.col("tokens").list.sum().fill_null(0) + pl.when(pl.col("tokens").list.len().fill_null(0) == 0).then(pl.col("iterations")).otherwise(0)
    total += s.join(q, on="sequence_row").select(given.sum()).item()
print(sum(t["tokens"].sum() for t in read("iterations").values()), total, sum(t.height for t in read("requests").values()))
`, dir).CombinedOutput()
	one := fmt.Sprintf("%d %d %d", tokens, stints, len(sealed))
	if want := one + "\n" + one; err != nil || strings.TrimSpace(string(out)) != want {
		t.Errorf("want of both:\n%s\ngot:\n %s, %v", want, out, err)
	}
}

// TestExportMillion writes what docs/adr/0005-store.py measures: ten engines of 10⁵ iterations, exported to WHYLATE_EXPORT.
func TestExportMillion(t *testing.T) {
	dir := os.Getenv("WHYLATE_EXPORT")
	if dir == "" {
		t.Skip("set WHYLATE_EXPORT to a new directory")
	}
	s, err := Open(filepath.Join(t.TempDir(), "data"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for k := range uint64(10) {
		e, rs := generated(t, k, 100_000, 64, 250)
		sealed(t, s, e, rs, nil, 100_000)
	}
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
}

// What is no row in the store is one in an export: every stint, with the sequences pointing to theirs.
func TestExportSpellsStints(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "data"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, rs := generated(t, 1, 2000, 16, 50)
	sealed(t, s, e, rs, nil, 2000)
	dir := filepath.Join(t.TempDir(), "export")
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
	sequences, stints := exportedRows[store.SequenceRow](t, dir, "sequences"), exportedRows[store.StintRow](t, dir, "stints")
	if few := s.periods[0].m.Files["stints"].Rows; few > int64(len(stints)/4) {
		t.Errorf("%d of %d stints are rows in the store", few, len(stints))
	}
	byID := map[string]*ledger.Sequence{}
	for _, q := range e.Sequences {
		byID[q.ID] = q
	}
	for i, r := range sequences {
		q := byID[r.ID]
		if q == nil || r.Usual || int(r.Stints) != len(q.Stints) {
			t.Fatalf("%+v of %+v", r, q)
		}
		for k, got := range stints[r.StintRow : r.StintRow+r.Stints] {
			if want := q.Stints[k]; int(got.Sequence) != i || uint64(got.First) != want.First || uint64(got.First)+uint64(got.Iterations)-1 != want.Last || uint32(got.Before) != want.Before || ledger.Phase(got.Phase) != want.Phase {
				t.Fatalf("%s: %+v, want %+v", r.ID, got, want)
			}
		}
	}
}

func exportedRows[T any](t *testing.T, dir, name string) []T {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, name, "*.parquet"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%s: %v, %v", name, files, err)
	}
	rows, err := parquet.ReadFile[T](files[0])
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
