package dialect

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/wire"
)

// written is a real run as the dialect bundles it.
func written(t *testing.T, o Options) (dir string, files map[string][]byte) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	o.Window = window
	b, err := Create(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	readReal(t, "vllm-0.32.0").play(t, b)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, readDir(t, dir)
}

func readDir(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(dir, p)
		files[filepath.ToSlash(name)], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// TestBundleIsRead makes a bundle of a run and looks at it, as at one of a real engine: everything in it is taken, and what it says is what the
// probes said.
func TestBundleIsRead(t *testing.T) {
	dir, files := written(t, Options{ScrapeEvery: 5 * time.Second, Producer: "test 1", Truth: []byte(`{"mechanism":"none"}`)})
	for _, name := range []string{"manifest.json", "truth.json", "engine.wlc", "client.wlc", "log/vllm-0.log", "otlp/vllm-0.jsonl", "otlp/client.jsonl"} {
		if len(files[name]) == 0 {
			t.Errorf("no %s", name)
		}
	}
	b, err := bundle.Open(dir, bundle.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if len(b.Refused) > 0 || len(b.Manifest.Problems) > 0 || len(b.Manifest.Engines) != 1 || b.Manifest.Engines[0].Model != "tiny" {
		t.Errorf("refused %v, manifest %+v", b.Refused, b.Manifest)
	}
	golden(t, "testdata/look.txt", lookAt(t, dir))
}

// lookAt is what look says of a bundle, which it is given by its bare name: a longer one would break lines elsewhere.
func lookAt(t *testing.T, dir string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chdir(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	defer os.Chdir(here)
	inputs, err := look.Files(filepath.Base(dir))
	if err != nil {
		t.Fatal(err)
	}
	scene, err := look.Read(context.Background(), inputs, look.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := look.Judge(scene).Text(&out, 110); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestSameRunSameBytes makes a bundle twice.
func TestSameRunSameBytes(t *testing.T) {
	_, a := written(t, Options{})
	_, b := written(t, Options{})
	for name, text := range a {
		if !bytes.Equal(text, b[name]) {
			t.Errorf("%s differs", name)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d files and %d", len(a), len(b))
	}
}

// TestKeep leaves evidence out.
func TestKeep(t *testing.T) {
	_, files := written(t, Options{Keep: Scrapes | Traces})
	var folders []string
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		folders = append(folders, top)
	}
	slices.Sort(folders)
	if got := strings.Join(slices.Compact(folders), " "); got != "manifest.json otlp scrape" {
		t.Errorf("kept %s", got)
	}
}

// TestCaptureIsTheRun compares the records of a bundle's captures with those that it was made of: all of them, in their order.
func TestCaptureIsTheRun(t *testing.T) {
	_, files := written(t, Options{Keep: Captures})
	r := readReal(t, "vllm-0.32.0")
	for theirs, ours := range map[string]string{"capture.wlc": "engine.wlc", "client.wlc": "client.wlc"} {
		if a, b := messages(t, r.files[theirs]), messages(t, files[ours]); !maps.EqualFunc(a, b, slices.Equal) {
			t.Errorf("%s has other records than %s", ours, theirs)
		}
	}
}

// messages are the bodies of a capture's frames, by source.
func messages(t *testing.T, text []byte) map[string][]string {
	t.Helper()
	r, err := wire.NewCaptureReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	names, out := map[uint16]string{}, map[string][]string{}
	for {
		x, err := r.Next()
		switch {
		case err != nil:
			return out
		case x.Gap != nil:
			t.Errorf("gap: %+v", x.Gap)
		case x.Opened != nil:
			names[x.Source] = strings.TrimSuffix(x.Opened.Name, ".ring")
		case x.Frame.Type != wire.TypeHello: // it is JSON: spelled another way
			out[names[x.Source]] = append(out[names[x.Source]], string(x.Frame.Raw))
		}
	}
}

// TestPagesParse reads each page with both parsers that will.
func TestPagesParse(t *testing.T) {
	_, files := written(t, Options{Keep: Scrapes})
	n := 0
	for name, page := range files {
		if !strings.HasPrefix(name, "scrape/") {
			continue
		}
		n++
		parses(t, name, page)
	}
	if n < 2 {
		t.Errorf("%d pages", n)
	}
}

func parses(t *testing.T, name string, page []byte) {
	t.Helper()
	if p := exposition.Read(page); len(p.Problems) > 0 {
		t.Errorf("%s: %v", name, p.Problems)
	}
	p, err := textparse.New(page, "text/plain; version=0.0.4", labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]bool{}
	for {
		kind, err := p.Next()
		if err != nil {
			if err.Error() != "EOF" {
				t.Errorf("%s: %v", name, err)
			}
			break
		}
		if kind == textparse.EntrySeries {
			var ls labels.Labels
			p.Labels(&ls)
			if series[ls.String()] {
				t.Errorf("%s: %s twice", name, ls)
			}
			series[ls.String()] = true
		}
	}
	if len(series) == 0 {
		t.Errorf("%s is empty", name)
	}
}

// TestLive records a run while it is watched: the rings hold what the probes said, the page is served.
func TestLive(t *testing.T) {
	dir := t.TempDir()
	l := NewLive(dir, 4<<20)
	defer l.Close()
	server := httptest.NewServer(l)
	defer server.Close()
	get := func(path string) (int, []byte) {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		b.ReadFrom(resp.Body)
		return resp.StatusCode, b.Bytes()
	}
	if status, _ := get("/metrics"); status != http.StatusNotFound {
		t.Errorf("status %d before anybody spoke", status)
	}
	o := inOrder(l)
	readReal(t, "vllm-0.32.0").play(t, o)
	if err := o.end(); err != nil {
		t.Fatal(err)
	}
	status, page := get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d: %s", status, page)
	}
	parses(t, "live", page)
	if status, other := get("/vllm-0/metrics"); status != http.StatusOK || !bytes.Equal(page, other) {
		t.Errorf("status %d, and another page under its target", status)
	}
	if got := numbers(t, page)[`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}`]; got != 73 {
		t.Errorf("%v requests ended, want 73", got)
	}
	rings, _ := filepath.Glob(filepath.Join(dir, "*.ring"))
	if len(rings) != 5 {
		t.Errorf("rings %v", rings)
	}
	frames := 0
	for _, path := range rings {
		r, err := wire.OpenRing(path)
		if err != nil {
			t.Fatal(err)
		}
		for {
			x, err := r.Next()
			if err != nil {
				break
			}
			if x.Gap != nil {
				t.Errorf("%s: %+v", path, x.Gap)
			}
			frames++
		}
		r.Close()
	}
	want := 0
	for _, name := range []string{"capture.wlc", "client.wlc"} {
		for _, bodies := range messages(t, readReal(t, "vllm-0.32.0").files[name]) {
			want += len(bodies) + 1 // and the hello
		}
	}
	if frames != want {
		t.Errorf("the rings hold %d frames of %d", frames, want)
	}
}

// ordered gives a recorder the messages of a real run as they happened.
type ordered struct {
	fleetRecorder
	to world.Recorder
}

func inOrder(to world.Recorder) ordered {
	f := newFleet(window)
	f.line.out = func(_ int64, source int, m wire.Message) error { return to.Record(source, m) }
	return ordered{fleetRecorder{f}, to}
}

func (o ordered) Source(h *wire.Hello) (int, error) {
	if _, err := o.to.Source(h); err != nil {
		return 0, err
	}
	return o.fleetRecorder.Source(h)
}
