package look

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Input is something to read.
type Input struct {
	Name   string // of its file
	Target string // whom it speaks of: what several scrapes of one target share
	Order  int64  // among the inputs of its target
	At     int64  // Unix ns, where the name says it; else 0
	Open   func() (io.ReadCloser, error)

	Modified time.Time // of its file; zero where that is not known
}

// Files are the inputs that paths name: files, and folders with all that lies in them. Scrapes of one target are those whose names differ in
// their order or time alone: engine.t0.prom and engine.t1.prom, or 1773219000000.prom and 1773219060000.prom in one folder.
func Files(paths ...string) ([]Input, error) {
	var inputs []Input
	for _, path := range paths {
		err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.Type().IsRegular() || p == path && !d.IsDir():
				in := file(p, filepath.Dir(path))
				if info, err := os.Stat(p); err == nil {
					in.Modified = info.ModTime()
				}
				inputs = append(inputs, in)
			case !d.IsDir():
				return nil // a link or a pipe inside a folder
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, errors.Unwrap(err))
		}
	}
	slices.SortStableFunc(inputs, func(a, b Input) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(a.Order, b.Order), cmp.Compare(a.Name, b.Name))
	})
	return inputs, nil
}

var (
	numbered = regexp.MustCompile(`^(?:(.*)[.\-_])?(?:t(\d{1,6})|(\d{9,19}))$`)
	unixMS   = regexp.MustCompile(`^\d{13}$`)
)

func file(path, root string) Input {
	name, err := filepath.Rel(root, path)
	if err != nil {
		name = path
	}
	in := Input{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
	base := filepath.Base(path)
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
