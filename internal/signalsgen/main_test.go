package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestRegistryIsUpToDate(t *testing.T) {
	b, err := os.ReadFile("../../signals/signals.yaml")
	if err != nil {
		t.Fatal(err)
	}
	code, page, err := generate(b)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{"../../signals/registry.go": code, "../../docs/signals.md": page} {
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what signals.yaml says: run 'make signals'", path)
		}
	}
}

func TestRefuses(t *testing.T) {
	good := "signals: [{name: a, kind: gauge, unit: s, scope: engine, path: token, owner: o, question: q, keep: detail, series: 1, add: sum, from: {vllm: [{name: n}]}}]"
	if _, _, err := generate([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{"kind: gauge", "kind: gage"}, {"owner: o", "owner: ''"}, {"series: 1", "series: 0"}, {"add: sum", "plus: sum"}, {"[{name: n}]", "[{nome: n}]"}, {"{vllm: [{name: n}]}", "{}"}, {"add: sum", "add: sum, range: [1, 0]"}, {"add: sum", "add: sum, range: [1]"}, {"add: sum", "add: sum, fastest: 1"}} {
		if _, _, err := generate([]byte(strings.Replace(good, c[0], c[1], 1))); err == nil {
			t.Errorf("%s is taken", c[1])
		}
	}
}
