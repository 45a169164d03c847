package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/ledger"
)

// sample is a manifest and parts of every kind.
func sample() (Manifest, []Part) {
	m := Manifest{Producer: "test 1", Span: Span{From: 1773219000000000000, To: 1773219060000000000}, Engines: []Engine{{ID: "chat/0/0@5f0c", Name: "vllm", Version: "0.32.0"}},
		Clocks: []Clock{{Domain: "boot", Offset: 5, Uncertainty: 3}}}
	var changes bytes.Buffer
	WriteChanges(&changes, []ledger.Change{{At: 1773219030000000000, Kind: ledger.ChangeSetting, Subject: "max_num_seqs", From: "256", To: "32", Text: "max_num_seqs is 32, was 256"}})
	return m, []Part{
		Text("run.wlc", []byte("WHYLATE\n and so on")),
		Text(ScrapePath("vllm-0:8000", 1773219000000), []byte("a 1\n")),
		Text(ScrapePath("a/b..c", 1773219060000), []byte("a 2\n")),
		Text("log/engine.log", []byte("INFO hello\n")),
		Text(ChangesName, changes.Bytes()),
		Text(TruthName, []byte(`{"mechanism":"M1"}`)),
	}
}

func zipped(t testing.TB, m Manifest, parts []Part) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteZip(&b, m, parts); err != nil {
		t.Fatal(err)
	}
	return put(t, b.Bytes())
}

func put(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "b") // what it is, is not in its name
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, name string, l Limits) *Bundle {
	t.Helper()
	b, err := Open(name, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// content is what the members of a bundle hold, by path, with their kinds.
func content(t testing.TB, b *Bundle) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, m := range b.Members {
		kind, err := b.Kind(m)
		if err != nil {
			all[m.Path] = err.Error()
			continue
		}
		f, err := b.Open(m)
		if err != nil { // its name says what it is, and it cannot be read
			all[m.Path] = err.Error()
			continue
		}
		text, err := io.ReadAll(f)
		f.Close()
		all[m.Path] = string(kind) + ": " + string(text)
		if err != nil {
			all[m.Path] = err.Error()
		}
	}
	return all
}

func TestDirectoryAndZipAreTheSame(t *testing.T) {
	m, parts := sample()
	dir := filepath.Join(t.TempDir(), "run")
	if err := WriteDir(dir, m, parts); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, dir, Limits{}), open(t, zipped(t, m, parts), Limits{})
	got := content(t, b)
	if diff := cmp.Diff(content(t, a), got); diff != "" {
		t.Errorf("-directory +zip:\n%s", diff)
	}
	if len(got) != len(parts) || got["run.wlc"] != "capture: WHYLATE\n and so on" || !strings.HasPrefix(got["changes.jsonl"], "changes: {") || !strings.HasPrefix(got["truth.json"], "truth: ") ||
		got["scrape/vllm-0:8000/1773219000000.prom"] != "other: a 1\n" {
		t.Errorf("%q", got)
	}
	m.FormatVersion = FormatVersion
	for _, x := range []*Bundle{a, b} {
		if diff := cmp.Diff(&m, x.Manifest); diff != "" || len(x.Refused) != 0 {
			t.Errorf("refused %v, -want +got:\n%s", x.Refused, diff)
		}
	}
	if target, ms, ok := ScrapeOf(ScrapePath("a/b..c", 7)); !ok || target != "a/b..c" || ms != 7 {
		t.Errorf("%q %d %v", target, ms, ok)
	}
}

func TestBytesAreThoseOfTheContent(t *testing.T) {
	m, parts := sample()
	var a, b bytes.Buffer
	if err := WriteZip(&a, m, parts); err != nil {
		t.Fatal(err)
	}
	parts[0], parts[3] = parts[3], parts[0]
	if err := WriteZip(&b, m, parts); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Errorf("%v: %d and %d bytes, not the same", err, a.Len(), b.Len())
	}
}

func TestTheWriterRefusesWhatAReaderWould(t *testing.T) {
	for _, paths := range [][]string{{"../a"}, {"/a"}, {"a", "a"}, {"a", "a.b", "a/b"}, {"manifest.json"}, {`a\b`}, {""}, {"a\n"}} {
		var parts []Part
		for _, p := range paths {
			parts = append(parts, Text(p, nil))
		}
		if err := WriteZip(io.Discard, Manifest{}, parts); err == nil {
			t.Errorf("%q is written", paths)
		}
	}
}

// raw makes a zip of headers as they come.
func raw(t testing.TB, headers []zip.FileHeader, bodies []string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range headers {
		w, err := z.CreateHeader(&headers[i])
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, bodies[i])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return put(t, b.Bytes())
}

func why(b *Bundle) map[string]string {
	m := map[string]string{}
	for _, r := range b.Refused {
		m[r.Path] = r.Why
	}
	return m
}

func TestAHostileZipLosesOnlyWhatIsHostile(t *testing.T) {
	link := zip.FileHeader{Name: "link"}
	link.SetMode(os.ModeSymlink | 0o777)
	headers := []zip.FileHeader{{Name: "good"}, {Name: "../../etc/passwd"}, {Name: "/etc/shadow"}, {Name: `c:\boot`}, {Name: "twice"}, {Name: "twice"}, link,
		{Name: "bomb", Method: zip.Deflate}, {Name: "dense", Method: zip.Deflate}, {Name: "a\x1b[31m"}, {Name: "secret", Flags: 1}}
	bodies := []string{"x 1\n", "p", "s", "b", "1", "2", "/etc/passwd", strings.Repeat("\x00", 17<<20), strings.Repeat("\x00", 1<<20), "c", "e"}
	b := open(t, raw(t, headers, bodies), Limits{})
	got := why(b)
	for path, want := range map[string]string{"../../etc/passwd": "leads out", "/etc/shadow": "leads out", `c:\\boot`: "another system", "twice": "which one", "link": "a link", "bomb": "a bomb", `a\x1b[31m`: "control", "secret": "encrypted"} {
		if !strings.Contains(got[path], want) {
			t.Errorf("%s: %q, want %q", path, got[path], want)
		}
	}
	c := content(t, b)
	if c["good"] != "other: x 1\n" || len(c["dense"]) != len("other: ")+1<<20 || len(c) != 2 {
		t.Errorf("%d members, good is %q", len(c), c["good"])
	}
	if b.Manifest != nil {
		t.Error("there is no manifest")
	}
}

// A member whose header lies about its size does not unpack beyond it.
func TestASizeThatLies(t *testing.T) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	packed := new(bytes.Buffer)
	zw := zip.NewWriter(packed)
	w, _ := zw.Create("x")
	w.Write(bytes.Repeat([]byte("a"), 5000))
	zw.Close()
	zr, err := zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len()))
	if err != nil {
		t.Fatal(err)
	}
	in, _ := zr.File[0].OpenRaw()
	h := zr.File[0].FileHeader
	h.Name, h.UncompressedSize64, h.CRC32 = "lies", 10, crc32.ChecksumIEEE(bytes.Repeat([]byte("a"), 10))
	out, err := z.CreateRaw(&h)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(out, in)
	w, _ = z.Create("good")
	io.WriteString(w, "x")
	z.Close()
	got := content(t, open(t, put(t, b.Bytes()), Limits{}))
	if got["good"] != "other: x" || strings.HasPrefix(got["lies"], "other") {
		t.Errorf("%q", got)
	}
}

func TestATruncatedZipIsRefusedByName(t *testing.T) {
	m, parts := sample()
	whole, err := os.ReadFile(zipped(t, m, parts))
	if err != nil {
		t.Fatal(err)
	}
	name := put(t, whole[:len(whole)-60])
	if _, err := Open(name, Limits{}); err == nil || !strings.Contains(err.Error(), "cut short") || !strings.Contains(err.Error(), name) {
		t.Error(err)
	}
	spoilt := bytes.Clone(whole)
	i := bytes.Index(spoilt, []byte("WHYLATE\n"))
	spoilt[i+12] ^= 1
	got := content(t, open(t, put(t, spoilt), Limits{}))
	if !strings.Contains(got["run.wlc"], "checksum") || got["log/engine.log"] != "other: INFO hello\n" {
		t.Errorf("%q", got)
	}
}

func TestManyFiles(t *testing.T) {
	var headers []zip.FileHeader
	for i := range 100_000 {
		headers = append(headers, zip.FileHeader{Name: fmt.Sprintf("scrape/a/%d", i)})
	}
	b := open(t, raw(t, headers, make([]string, len(headers))), Limits{})
	if len(b.Members) != 50_000 || !strings.Contains(why(b)["."], "50000 further files") {
		t.Errorf("%d members, refused %v", len(b.Members), b.Refused)
	}
	b = open(t, raw(t, []zip.FileHeader{{Name: "a"}, {Name: "b"}}, []string{"12345", "12345"}), Limits{Bytes: 8})
	if len(b.Members) != 1 || !strings.Contains(why(b)["b"], "over 8") {
		t.Errorf("%v, refused %v", b.Members, b.Refused)
	}
}

func TestADirectorysLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "a.prom"), []byte("a 1\n"), 0o600)
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	os.Symlink("/etc", filepath.Join(dir, "folder"))
	b := open(t, dir, Limits{})
	if got := why(b); len(b.Members) != 1 || !strings.Contains(got["link"], "a link") || !strings.Contains(got["folder"], "a link") {
		t.Errorf("%v %v", b.Members, got)
	}
}

func TestManifests(t *testing.T) {
	for text, c := range map[string]struct {
		version  int
		problems int
	}{
		`{"format_version":1,"producer":"p","span":{},"engines":[],"clocks":[],"new":1}`: {1, 0},
		`{"format_version":"1.3","producer":"p","span":{},"engines":["a"],"clocks":[]}`:  {1, 1},
		`{"producer":"p"}`:            {1, 4},
		`{"format_version":"newest"}`: {1, 5},
		`{"format_version":2}`:        {2, 4},
	} {
		m, err := ParseManifest([]byte(text))
		if err != nil || m.FormatVersion != c.version || len(m.Problems) != c.problems {
			t.Errorf("%s: %+v, %v", text, m, err)
		}
	}
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, ManifestName), []byte(`{"format_version":2}`), 0o600)
	var newer *NewerFormat
	if _, err := Open(dir, Limits{}); !errors.As(err, &newer) || !strings.Contains(err.Error(), "bundle format 2") {
		t.Error(err)
	}
	os.WriteFile(filepath.Join(dir, ManifestName), []byte(`[`), 0o600)
	if b := open(t, dir, Limits{}); b.Manifest != nil || !strings.Contains(why(b)[ManifestName], "read as a folder") {
		t.Errorf("%+v", b)
	}
}

func TestABundleInAFolderOfItsZip(t *testing.T) {
	b := open(t, raw(t, []zip.FileHeader{{Name: "run/"}, {Name: "run/manifest.json"}, {Name: "run/scrape/a/1773219000000.prom"}}, []string{"", `{"format_version":1}`, "a 1\n"}), Limits{})
	if b.Manifest == nil || len(b.Members) != 1 || b.Members[0].Path != "scrape/a/1773219000000.prom" {
		t.Errorf("%+v %v", b.Manifest, b.Members)
	}
}

func TestChangesLineByLine(t *testing.T) {
	text := "\n" + `{"at_unix_ns":5,"kind":"deployment","subject":"chat"}` + "\n" + `{"at_unix_ns":"x"}` + "\n{}\n" + strings.Repeat("x", 100<<10) + "\n" + `{"at_unix_ns":6,"kind":"other"}`
	changes, problems, err := ReadChanges(strings.NewReader(text))
	if err != nil || len(changes) != 2 || changes[1].At != 6 || len(problems) != 3 {
		t.Errorf("%v %q %v", changes, problems, err)
	}
	if Sniff([]byte(text)) != Changes || Sniff([]byte(`{"a":1}`)) != Other {
		t.Error("not recognised")
	}
}

// The example of docs/formats/bundle.md is a manifest without a problem, and comes out as it went in.
func TestTheFormatsExample(t *testing.T) {
	page, err := os.ReadFile("../docs/formats/bundle.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "\n    {\n")
	example, _, _ = strings.Cut("{\n"+example, "\n    }\n")
	m, err := ParseManifest([]byte(example + "}"))
	if err != nil || len(m.Problems) != 0 {
		t.Fatal(err, m)
	}
	want := Manifest{FormatVersion: 1, Producer: "simulator 0.3", Span: Span{From: 1773219000000000000, To: 1773219060000000000},
		Engines: []Engine{{"chat/0/0@5f0c", "vllm", "0.32.0", "acme/atlas-32b"}}, Clocks: []Clock{{"boot-1", 1773218000000000000, 40000}}}
	if diff := cmp.Diff(&want, m); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := open(t, zipped(t, *m, nil), Limits{}); !cmp.Equal(got.Manifest, m) {
		t.Errorf("%+v", got.Manifest)
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(example+"}"), &fields); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(m)
	var ours map[string]any
	json.Unmarshal(b, &ours)
	if diff := cmp.Diff(fields, ours); diff != "" {
		t.Errorf("-example +ours:\n%s", diff)
	}
}

// FuzzOpen opens whatever it is given: no panic, and nothing with a name that leads out.
func FuzzOpen(f *testing.F) {
	m, parts := sample()
	var b bytes.Buffer
	if err := WriteZip(&b, m, parts); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := Open(put(t, text), Limits{Members: 100, Bytes: 1 << 20})
		if err != nil {
			return
		}
		defer b.Close()
		for _, m := range b.Members {
			if unsafe(m.Path) != "" {
				t.Errorf("%q", m.Path)
			}
		}
		content(t, b)
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format_version":1,"producer":"p","span":{"from_unix_ns":1},"engines":[{"id":"a"}],"clocks":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m, err := ParseManifest(text); err == nil && m.FormatVersion < 1 {
			t.Errorf("version %d", m.FormatVersion)
		}
		ReadChanges(bytes.NewReader(text))
	})
}
