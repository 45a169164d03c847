package look

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/bundle"
)

// incident is a bundle of everything, made of field cases and of the recorded run of the demo.
func incident(t testing.TB) (bundle.Manifest, []bundle.Part) {
	t.Helper()
	file := func(path, from string) bundle.Part {
		return bundle.Part{Path: path, Open: func() (io.ReadCloser, error) { return os.Open(from) }}
	}
	return bundle.Manifest{Producer: "test 1", Span: bundle.Span{From: 1773219000000000000, To: 1773219060000000000}, Engines: []bundle.Engine{{ID: "vllm-0:8000"}}}, []bundle.Part{
		file("run.wlc", "../cli/demo.wlc"),
		file(bundle.ScrapePath("vllm-0:8000", 1773219000000), "../testdata/cases/C26-vllm-prompt-throughput-three-answers.t0.prom"),
		file(bundle.ScrapePath("vllm-0:8000", 1773219060000), "../testdata/cases/C26-vllm-prompt-throughput-three-answers.t1.prom"),
		file("otlp/spans.jsonl", "../testdata/cases/C39-otlp-sibling-server-and-engine.otlp.json"),
		file("log/engine.log", "../testdata/cases/C55-sglang-log-zoo.server.log"),
		bundle.Text(bundle.ChangesName, []byte(`{"at_unix_ns":1773219030000000000,"kind":"setting","subject":"max_num_seqs","from":"256","to":"32","source":"pipeline 7","text":"max_num_seqs is 32, was 256"}`+"\n")),
		bundle.Text(bundle.TruthName, []byte(`{"mechanism":"never to be seen"}`)),
	}
}

func lookAt(t testing.TB, paths ...string) (*Report, string) {
	t.Helper()
	inputs, err := Files(paths...)
	if err != nil {
		t.Fatal(err)
	}
	scene, err := Read(context.Background(), inputs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	r := Judge(scene)
	if err := r.Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	return r, strings.Join(strings.Fields(b.String()), " ")
}

func TestABundleIsReadAsDirectoryAndAsZip(t *testing.T) {
	m, parts := incident(t)
	dir := filepath.Join(t.TempDir(), "run")
	if err := bundle.WriteDir(dir, m, parts); err != nil {
		t.Fatal(err)
	}
	pack := filepath.Join(t.TempDir(), "run") // the same name, so that the answers are the same
	f, err := os.Create(pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.WriteZip(f, m, parts); err != nil {
		t.Fatal(err)
	}
	f.Close()
	r, text := lookAt(t, dir)
	_, packed := lookAt(t, pack)
	if strings.ReplaceAll(text, dir, "PATH") != strings.ReplaceAll(packed, pack, "PATH") {
		t.Errorf("the directory says\n%s\nthe zip\n%s", text, packed)
	}
	for _, want := range []string{
		"bundle run: format 1 of test 1, 1 engine, 2026-03-11 08:50:00 to 08:51:00 UTC; in it 1 × capture, 1 × changes, 1 × log, 2 × metrics, 1 × traces, the truth, which is left closed.",
		"captured 1 engine, 232 requests, 5,966 iterations", "The slowest: fan-0 took 19.6 s", "'whylate explain fan-0 --from " + dir + "'",
		"on vllm-0:8000, in 60.0 s", "1 request in traces", "SGLang: 1 log",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "never to be seen") || strings.Contains(text, "not read") {
		t.Error(text)
	}
	var kinds []string
	for _, src := range r.Read {
		kinds = append(kinds, src.Name+" "+src.Kind)
	}
	slices.Sort(kinds)
	if want := "run/changes.jsonl changes, run/log/engine.log log, run/otlp/spans.jsonl traces, run/run.wlc capture, run/scrape/vllm-0:8000/1773219000000.prom metrics, run/scrape/vllm-0:8000/1773219060000.prom metrics, run/truth.json truth"; strings.Join(kinds, ", ") != want {
		t.Errorf("read as %s", strings.Join(kinds, ", "))
	}
}

// What of a zip cannot be read is told by name, and the rest answers.
func TestWhatIsHostileInABundleIsNamed(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{"manifest.json": `{"format_version":1}`, "../up.prom": "a 1\n", "scrape/p/1773219000000.prom": "vllm:num_requests_running{model_name=\"m\"} 7\n", "run.wlc": "WHYLATE\n", "inner.zip": "PK\x03\x04",
		"changes.jsonl": "{\"at_unix_ns\":1,\"kind\":\"other\"}\nno change\n"} {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	z.Close()
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "in.zip"), b.Bytes(), 0o600)
	os.WriteFile(filepath.Join(dir, "cut.zip"), b.Bytes()[:b.Len()-80], 0o600)
	os.MkdirAll(filepath.Join(dir, "newer"), 0o700)
	os.WriteFile(filepath.Join(dir, "newer", "manifest.json"), []byte(`{"format_version":9}`), 0o600)
	_, text := lookAt(t, filepath.Join(dir, "in.zip"), filepath.Join(dir, "cut.zip"), filepath.Join(dir, "newer"))
	for _, want := range []string{"7 running (m on p)", "../up.prom: its name leads out", "cut short", "bundle format 9", "inner.zip: a zip inside of another", "run.wlc: ", "changes.jsonl: line 2 is no change", "producer is not told"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q in\n%s", want, text)
		}
	}
}
