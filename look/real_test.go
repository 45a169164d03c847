package look

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
)

// A scrape of a real vLLM 0.32.0 at the end of a load (make engine-smoke): every signal that the registry has of it is there, but those of
// speculative decoding, which was off, and nothing is called wrong.
func TestRealEngine(t *testing.T) {
	inputs, err := Files("testdata/vllm-0.32.0.prom")
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
	golden := "testdata/vllm-0.32.0.txt"
	if *update {
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || !bytes.Equal(want, b.Bytes()) {
		t.Errorf("not as accepted in %s:\n%s", golden, b.String())
	}
}
