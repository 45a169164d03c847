package config

import (
	"bytes"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/config.md and deploy/whylate.example.yaml")

// The reference page and the example are written from the keys; a stale one fails.
func TestReferenceIsFresh(t *testing.T) {
	for path, write := range map[string]func(io.Writer) error{"../docs/config.md": WriteReference, "../deploy/whylate.example.yaml": WriteExample} {
		var want bytes.Buffer
		if err := write(&want); err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, want.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is stale: go test ./config -update", path)
		}
	}
}

// Read as it is, the example is the defaults; with every key brought in, it is the defaults too.
func TestExample(t *testing.T) {
	var example bytes.Buffer
	if err := WriteExample(&example); err != nil {
		t.Fatal(err)
	}
	plain, err := Load(input(""))
	if err != nil {
		t.Fatal(err)
	}
	var in strings.Builder
	for line := range strings.Lines(example.String()) {
		text := strings.TrimLeft(line, " ")
		if rest, ok := strings.CutPrefix(text, "#"); ok && rest[0] >= 'a' && rest[0] <= 'z' {
			line = line[:len(line)-len(text)] + rest
		}
		in.WriteString(line)
	}
	for _, file := range []string{example.String(), in.String()} {
		c, err := Load(input(file))
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if err := equal(plain, c); err != nil {
			t.Errorf("%v\n%s", err, file)
		}
	}
	all, _ := Load(input(in.String()))
	for i := range keys {
		if all.Source(keys[i].Name).Origin != FromFile {
			t.Errorf("%s is not in the example", keys[i].Name)
		}
	}
}
