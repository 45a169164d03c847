package look

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// life is a capture of one start of an engine.
func life(t *testing.T, incarnation, version string, after time.Duration, settings map[string]any) Input {
	t.Helper()
	run, err := scenario.Parse("engine vllm depth=1\n0ms http r1\n0ms submit r1 prompt=16\n0ms arrive r1\n0ms queue r1 prompt=16 max=8\n1..10ms iter r1:16\n10..20ms iter r1 end=r1:length\n21ms first r1\n22ms last r1\n")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	w, err := wire.NewCaptureWriter(&file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Sources() {
		if len(s.Frames) == 0 {
			continue
		}
		s.Hello.Boot = incarnation
		s.Hello.Clock = [3]int64{scenario.Boot, scenario.Epoch + int64(after), scenario.Boot}
		s.Hello.Engine.Incarnation, s.Hello.Engine.Version, s.Hello.Settings = incarnation, version, settings
		id, err := w.Source(wire.Source{Name: s.Name + "-" + incarnation, Hello: s.HelloJSON()})
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range s.Frames {
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Frame(id, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return Input{Name: incarnation + ".wlc", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file.Bytes())), nil }}
}

// Version and settings of two starts of one engine, in two captures, are compared; what a server told of them stands there once.
func TestChangesBetweenCaptures(t *testing.T) {
	inputs := []Input{
		life(t, "2222bbbb", "0.32.0", time.Minute, map[string]any{"model": "acme/b", "max_num_seqs": 256, "same": "x"}),
		life(t, "1111aaaa", "0.31.0", 0, map[string]any{"model": "acme/a", "max_num_seqs": 128, "same": "x"}),
	}
	texts := func(inputs []Input) (said []string) {
		s, err := Read(context.Background(), inputs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changesIn(s) {
			said = append(said, c.text())
		}
		return said
	}
	want := []string{"test/0@2222bbbb: restarted: 2222bbbb after 1111aaaa", "the engine is vllm 0.32.0, was vllm 0.31.0", "model is acme/b, was acme/a", "max_num_seqs is 256, was 128"}
	check := func(said []string) {
		t.Helper()
		all := strings.Join(said, "\n")
		if len(said) != len(want) {
			t.Errorf("%d changes: %s", len(said), all)
		}
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("no %q in %s", w, all)
			}
		}
	}
	check(texts(inputs))
	if said := texts(inputs[1:]); len(said) != 0 {
		t.Errorf("of one start: %q", said)
	}

	s, err := Read(context.Background(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	var all []ledger.Change
	for _, c := range changesIn(s) {
		all = append(all, c.Change)
	}
	if err := bundle.WriteChanges(&told, all); err != nil || !json.Valid(bytes.SplitN(told.Bytes(), []byte("\n"), 2)[0]) {
		t.Fatal(err)
	}
	check(texts(append(inputs, Input{Name: "changes.jsonl", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(told.Bytes())), nil }})))
}
