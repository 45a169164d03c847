package look

import (
	"archive/zip"
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// told is what is said of inputs, word by word.
func told(t *testing.T, c fieldCase, inputs []Input) string {
	t.Helper()
	scene, err := Read(context.Background(), inputs, Options{Interval: c.interval})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Judge(scene).Text(&b, 110); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// contentOf is what an input holds.
func contentOf(t *testing.T, in Input) []byte {
	t.Helper()
	f, err := in.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shuffledPage has the lines of each family in another order; comments stay where they are.
func shuffledPage(page []byte, r *rand.Rand) []byte {
	var out, block []string
	flush := func() {
		r.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
		out, block = append(out, block...), nil
	}
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "" {
			flush()
			out = append(out, line)
			continue
		}
		block = append(block, strings.TrimRight(line, "\n")+"\n")
	}
	flush()
	return []byte(strings.Join(out, ""))
}

// TestOrderDoesNotMatter reads each case with its files, and the lines of its pages, in another order.
func TestOrderDoesNotMatter(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := told(t, c, inputsOf(t, c.name))
			for seed := range uint64(3) {
				r := rand.New(rand.NewPCG(seed, 1))
				inputs := inputsOf(t, c.name)
				if c.name != "C28" { // whose line has a number
					for i, in := range inputs {
						if strings.HasSuffix(in.Name, ".prom") {
							b := shuffledPage(contentOf(t, in), r)
							inputs[i].Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
						}
					}
				}
				r.Shuffle(len(inputs), func(i, j int) { inputs[i], inputs[j] = inputs[j], inputs[i] })
				inOrderOfFiles(inputs)
				if got := told(t, c, inputs); got != want {
					t.Fatalf("lines in another order (seed %d):\n%s\ninstead of\n%s", seed, got, want)
				}
			}
		})
	}
}

// TestFolderOrZip reads each case from its files, a folder of them, and a zip: the same is said but for the names of files.
func TestFolderOrZip(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			files := inputsOf(t, c.name)
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			var packed bytes.Buffer
			z := zip.NewWriter(&packed)
			for _, in := range files {
				b := contentOf(t, in)
				if err := os.WriteFile(filepath.Join(dir, in.Name), b, 0o644); err != nil {
					t.Fatal(err)
				}
				w, err := z.Create(in.Name)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			if err := z.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(dir+".zip", packed.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			read := func(path string) string {
				inputs, err := Files(path)
				if err != nil {
					t.Fatal(err)
				}
				for i := range inputs {
					inputs[i].Modified = files[0].Modified
				}
				text := strings.Join(strings.Fields(told(t, c, inputs)), " ")
				return regexp.MustCompile(`\brun(\.zip)?/`).ReplaceAllString(text, "")
			}
			fromFolder, fromZip := read(dir), read(dir+".zip")
			for _, text := range []string{fromFolder, fromZip} {
				for _, want := range c.says {
					if !regexp.MustCompile(want).MatchString(text) {
						t.Errorf("it does not say %q:\n%s", want, text)
					}
				}
				for _, bad := range c.never {
					if m := regexp.MustCompile(bad).FindString(text); m != "" && !strings.Contains(m, "\n") {
						t.Errorf("it says %q", m)
					}
				}
			}
		})
	}
}

// TestStrangerChangesNothing adds a target that has nothing to do with a case: all that was said of its own targets stays.
func TestStrangerChangesNothing(t *testing.T) {
	stranger := texts("stranger.prom", "# TYPE node_load1 gauge\nnode_load1 3\n# TYPE http_requests_total counter\nhttp_requests_total{code=\"200\"} 7\n")
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			facts := func(inputs []Input) (said []string) {
				scene, err := Read(context.Background(), inputs, Options{Interval: c.interval})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range Judge(scene).Facts {
					said = append(said, f.Text+f.Instead+f.Do)
				}
				return said
			}
			alone, beside := facts(inputsOf(t, c.name)), facts(append(inputsOf(t, c.name), stranger...))
			for _, f := range alone {
				if !slices.Contains(beside, f) {
					t.Errorf("it is not said any more: %s\nbut\n%s", f, strings.Join(beside, "\n"))
				}
			}
			if len(beside) > len(alone) {
				t.Errorf("%d facts, %d without the stranger", len(beside), len(alone))
			}
		})
	}
}
