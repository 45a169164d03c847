package look

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/bundle"
)

// Input is something to read.
type Input struct {
	Name    string // of its file
	Target  string // whom it speaks of: what several scrapes of one target share
	Order   int64  // among the inputs of its target
	At      int64  // Unix ns, where the name says it; else 0
	From    string // the path that was given, in which it lies; "" where it is none of a file's
	Refused string // why it is not opened; "" where it is
	Open    func() (io.ReadCloser, error)

	Modified time.Time // of its file; zero where that is not known

	manifest *bundle.Manifest // of a bundle, in place of content
}

// Files are the inputs that paths name: files, folders and run bundles, with all that lies in them. Scrapes of one target are those whose names
// differ in their order or time alone: engine.t0.prom and engine.t1.prom, or 1773219000000.prom and 1773219060000.prom in one folder.
func Files(paths ...string) ([]Input, error) {
	var inputs []Input
	for _, path := range paths {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
		case bundle.Is(path):
			inputs = append(inputs, members(path)...)
		default:
			in := named(filepath.Base(path))
			in.From, in.Modified, in.Open = path, info.ModTime(), func() (io.ReadCloser, error) { return os.Open(path) }
			inputs = append(inputs, in)
		}
	}
	inOrderOfFiles(inputs)
	return inputs, nil
}

func inOrderOfFiles(inputs []Input) {
	slices.SortStableFunc(inputs, func(a, b Input) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
}

// members are what lies in a folder, a run bundle, or a zip of either. Its files are closed when nobody can read them any more.
func members(path string) (inputs []Input) {
	base := filepath.Base(path)
	b, err := bundle.Open(path, bundle.Limits{})
	if err != nil {
		return []Input{{Name: base, From: path, Refused: err.Error()}}
	}
	if b.Manifest != nil {
		inputs = append(inputs, Input{Name: base, From: path, manifest: b.Manifest})
	}
	for _, m := range b.Members {
		in := named(filepath.ToSlash(filepath.Join(base, m.Path)))
		in.From, in.Modified, in.Open = path, m.Modified, func() (io.ReadCloser, error) { return b.Open(m) }
		if target, _, ok := bundle.ScrapeOf(m.Path); ok {
			in.Target = target
		}
		if bundle.IsTruth(m.Path) {
			in.Refused = "the truth is for whoever marks the answer"
		}
		inputs = append(inputs, in)
	}
	for _, r := range b.Refused {
		inputs = append(inputs, Input{Name: base + "/" + r.Path, From: path, Refused: r.Why})
	}
	return inputs
}

var (
	numbered = regexp.MustCompile(`^(?:(.*)[.\-_])?(?:t(\d{1,6})|(\d{9,19}))$`)
	unixMS   = regexp.MustCompile(`^\d{13}$`)
)

// named is an input as far as its name tells.
func named(name string) Input {
	in := Input{Name: name}
	base := filepath.Base(name)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	in.Target = strings.TrimSuffix(name, filepath.Ext(name))
	if m := numbered.FindStringSubmatch(stem); m != nil {
		in.Target = filepath.Join(filepath.Dir(name), m[1])
		if m[1] == "" { // a bundle: the folder is the target's
			in.Target = filepath.Dir(name)
		}
		in.Order, _ = strconv.ParseInt(m[2]+m[3], 10, 64)
		if unixMS.MatchString(m[3]) {
			in.At = in.Order * 1e6
		}
	}
	return in
}
