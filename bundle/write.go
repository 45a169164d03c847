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
	d, err := CreateDir(dir)
	if err != nil {
		return err
	}
	for _, p := range parts {
		f, err := d.Create(p.Path)
		if err != nil {
			return err
		}
		if err := errors.Join(p.copy(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// Dir is a bundle that is written as a directory, member by member.
type Dir struct{ path string }

// CreateDir begins a bundle in a directory that must not be there yet.
func CreateDir(path string) (*Dir, error) { return &Dir{path}, os.Mkdir(path, 0o755) }

// Create makes a member, which must not be there yet. The caller closes it.
func (d *Dir) Create(path string) (io.WriteCloser, error) {
	if why := unsafe(path); why != "" {
		return nil, fmt.Errorf("bundle member %.200q: %s", path, why)
	}
	name := filepath.Join(d.path, filepath.FromSlash(path))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// Close writes the manifest: with it the bundle is whole.
func (d *Dir) Close(m Manifest) error {
	text, err := m.text()
	if err != nil {
		return err
	}
	out, err := d.Create(ManifestName)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return errors.Join(err, out.Close())
}

// text is the manifest as it is written.
func (m Manifest) text() ([]byte, error) {
	m.FormatVersion = FormatVersion
	m.Engines, m.Clocks = append([]Engine{}, m.Engines...), append([]Clock{}, m.Clocks...) // [] and not null
	text, err := json.MarshalIndent(m, "", "  ")
	return append(text, '\n'), err
}

// all are the parts and the manifest, by path; a path that a reader would refuse is an error.
func all(m Manifest, parts []Part) ([]Part, error) {
	text, err := m.text()
	if err != nil {
		return nil, err
	}
	parts = append(slices.Clone(parts), Text(ManifestName, text))
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
