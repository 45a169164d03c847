package look

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

var noNumber = regexp.MustCompile(`(?:NaN|Inf) (?:W|MHz|MiB|%|°C|s|ms|k?J|[GM]?B/s)\b`)

// FuzzDevices reads whatever it is given beside an engine: a report comes of it, without a number that is none.
func FuzzDevices(f *testing.F) {
	files, err := filepath.Glob("../testdata/cases/C[457]*-dcgm-*")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		if filepath.Ext(name) == ".md" {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	engine, err := os.ReadFile("../testdata/cases/C50-dcgm-throttle-straggler-tp4.t1.prom")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		of := func(name string, order int64, b []byte) Input {
			return Input{Name: name, Target: name, Order: order, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
		}
		scene, err := Read(context.Background(), []Input{of("engine", 0, engine), of("gpu", 0, b), of("gpu", 1, b)}, Options{Interval: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Judge(scene).Text(&out, 110); err != nil {
			t.Fatal(err)
		}
		if m := noNumber.Find(out.Bytes()); m != nil {
			t.Errorf("it says %q:\n%s", m, out.String())
		}
	})
}
