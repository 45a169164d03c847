package look

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// Every signal that the registry has of a real vLLM 0.32.0 is there, but those of speculative decoding, which was off, and nothing is called
// wrong: of a scrape at the end of a load (make engine-smoke), and of a bundle of another, with the probe's and the clients' captures, four
// scrapes, its requests as OTLP and a change.
func TestRealEngine(t *testing.T) {
	t.Run("a scrape", func(t *testing.T) { realEngine(t, "testdata/vllm-0.32.0.prom", "testdata/vllm-0.32.0.txt") })
	t.Run("a bundle", func(t *testing.T) {
		realEngine(t, "../testdata/bundles/vllm-0.32.0.zip", "testdata/vllm-0.32.0.bundle.txt")
	})
}

func realEngine(t *testing.T, path, golden string) {
	inputs, err := Files(path)
	if err != nil {
		t.Fatal(err)
	}
	scene, err := Read(context.Background(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range TakeInventory(scene).Missing {
		if !strings.HasPrefix(m.Signal, "spec.") {
			t.Errorf("%s does not arrive: the registry calls it %s", m.Signal, m.Native)
		}
	}
	r := Judge(scene)
	for _, f := range r.Facts {
		if f.Weight != Notice {
			t.Errorf("%s: %s", f.ID, f.Text)
		}
	}
	var b bytes.Buffer
	if err := r.Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("not as accepted in %s:\n%s", golden, b.String())
	}
}
