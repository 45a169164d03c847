package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Part is a file that becomes a member.
type Part struct {
	Path string // in the bundle, from its root, with /
	Open func() (io.ReadCloser, error)
}

// WriteZip writes a bundle as a zip. The same manifest and parts, in whatever order, give the same bytes.
func WriteZip(w io.Writer, m Manifest, parts []Part) error {
	parts, err := all(m, parts)
	if err != nil {
		return err
	}
	z := zip.NewWriter(w)
	for _, p := range parts {
		h := &zip.FileHeader{Name: p.Path, Method: zip.Deflate} // without a time, which would not be the same the next time
		if path.Ext(p.Path) == ".wlc" {
			h.Method = zip.Store // it is packed already
		}
		out, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if err := p.copy(out); err != nil {
			return err
		}
	}
	return z.Close()
}

// WriteDir writes a bundle as a directory, which must not be there yet.
func WriteDir(dir string, m Manifest, parts []Part) error {
	parts, err := all(m, parts)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for _, p := range parts {
		name := filepath.Join(dir, filepath.FromSlash(p.Path))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(p.copy(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// all are the parts and the manifest, by path; a path that a reader would refuse is an error.
func all(m Manifest, parts []Part) ([]Part, error) {
	m.FormatVersion = FormatVersion
	m.Engines, m.Clocks = append([]Engine{}, m.Engines...), append([]Clock{}, m.Clocks...) // [] and not null
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	parts = append(slices.Clone(parts), Text(ManifestName, append(text, '\n')))
	slices.SortFunc(parts, func(a, b Part) int { return strings.Compare(a.Path, b.Path) })
	files, folders := map[string]bool{}, map[string]bool{}
	for _, p := range parts {
		if why := unsafe(p.Path); why != "" {
			return nil, fmt.Errorf("bundle member %.200q: %s", p.Path, why)
		}
		for dir := path.Dir(p.Path); dir != "."; dir = path.Dir(dir) {
			folders[dir] = true
		}
		if files[p.Path] {
			return nil, fmt.Errorf("bundle member %s is there twice", printable(p.Path))
		}
		files[p.Path] = true
	}
	for _, p := range parts {
		if folders[p.Path] {
			return nil, fmt.Errorf("bundle member %s is a file and a folder", printable(p.Path))
		}
	}
	return parts, nil
}

// Text is a part that is in memory.
func Text(path string, text []byte) Part {
	return Part{path, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}
}

func (p *Part) copy(out io.Writer) error {
	in, err := p.Open()
	if err != nil {
		return fmt.Errorf("bundle member %s: %w", p.Path, err)
	}
	defer in.Close()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("bundle member %s: %w", p.Path, err)
	}
	return nil
}
