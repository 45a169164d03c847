package store

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/tables.md")

func TestTablesPageIsUpToDate(t *testing.T) {
	const path = "../docs/tables.md"
	var b bytes.Buffer
	if err := WriteTables(&b); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is stale (%v): run 'go test ./store -update'", path, err)
	}
}

func TestEveryColumnIsDescribed(t *testing.T) {
	for _, table := range Tables {
		seen := map[string]bool{}
		for _, c := range table.Columns() {
			if c.Name == "" || c.Doc == "" || seen[c.Name] {
				t.Errorf("table %s: column %q has no name, no meaning, or a name that is there twice", table.Name, c.Name)
			}
			seen[c.Name] = true
			if strings.HasSuffix(c.Name, "_ns") && c.Unit == "" || strings.HasSuffix(c.Name, "_unix_ns") && c.Unit != "Unix ns" || strings.HasSuffix(c.Name, "_row") && c.Unit != "row" {
				t.Errorf("table %s: column %s has unit %q", table.Name, c.Name, c.Unit)
			}
		}
	}
}
