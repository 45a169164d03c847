package look

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// FuzzLogs reads whatever it is given as a log beside one that is whole: a report comes of it, in words and as JSON.
func FuzzLogs(f *testing.F) {
	files, err := filepath.Glob("../testdata/cases/*.log")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		scene, err := Read(context.Background(), []Input{logInput("a", string(b)), logInput("b", fmt.Sprintf(statLine, "10:00:00", 0, 1, 1, 0, 5)+string(b))}, Options{Now: time.Unix(1e9, 0), Zone: time.UTC})
		if err != nil {
			t.Fatal(err)
		}
		r := Judge(scene)
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		var out bytes.Buffer
		if err := r.Text(&out, 110); err != nil {
			t.Fatal(err)
		}
		if m := noNumber.Find(out.Bytes()); m != nil {
			t.Errorf("it says %q:\n%s", m, out.String())
		}
	})
}
