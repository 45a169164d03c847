// Package bundle reads and writes run bundles (docs/formats/bundle.md): what a simulation, a proof or an incident leaves behind, as a
// directory or as its zip. A bundle is a hostile file until it has been read: what of it cannot be taken is refused by name, and nothing else
// is lost by it. What the members hold is for others to understand.
package bundle

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Names of members that have a meaning by themselves, from the bundle's root.
const (
	ManifestName = "manifest.json"
	ChangesName  = "changes.jsonl"
	TruthName    = "truth.json"
)

// Limits bound what a bundle may be. Zero fields are the defaults.
type Limits struct {
	Members int   // 50,000: what comes after is refused
	Bytes   int64 // 64 GiB, of all members together, unpacked
	Ratio   int64 // 250: a packed member that unpacks to more than so many times its size, and to more than 16 MiB, is a bomb
}

func (l Limits) orDefault() Limits {
	if l.Members == 0 {
		l.Members = 50_000
	}
	if l.Bytes == 0 {
		l.Bytes = 64 << 30
	}
	if l.Ratio == 0 {
		l.Ratio = 250
	}
	return l
}

// small is what a member may unpack to whatever its ratio: a page of zeros is none of anybody's trouble.
const small = 16 << 20

// Bundle is an open bundle, or a folder or zip without a manifest. Close it.
type Bundle struct {
	Name     string    // the path that was opened
	Manifest *Manifest // nil where there is none
	Members  []Member  // what may be read, by path; the manifest is not among them
	Refused  []Refusal // what may not, by path

	root   fs.FS
	closer io.Closer
	zipped bool
}

// Member is one file of a bundle.
type Member struct {
	Path     string // from the bundle's root, with /
	Size     int64  // bytes, unpacked, as the bundle says
	Modified time.Time
}

// Refusal is a file of a bundle that is not read.
type Refusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// Is reports whether a path is a directory or a zip, by what is there and not by its name.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() { // of a pipe nobody must take what he does not use
		return err == nil && info.IsDir()
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 4)
	n, _ := io.ReadFull(f, head)
	return isZip(head[:n])
}

func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

// Open opens a directory or a zip. A manifest of a newer format is a *[NewerFormat]: what its members mean is not known here.
func Open(name string, l Limits) (*Bundle, error) {
	l = l.orDefault()
	b := &Bundle{Name: name}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	pack := packed{}
	if info.IsDir() {
		root, err := os.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		b.root, b.closer = root.FS(), root // links that lead out of it are refused by the system
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		b.closer = f
		z, err := zip.NewReader(f, info.Size())
		if err != nil {
			return nil, errors.Join(notWhole(name, err), f.Close())
		}
		b.Refused = screen(z, l, pack)
		b.root, b.zipped = z, true
	}
	if err := b.walk(l, pack); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func notWhole(name string, err error) error {
	if errors.Is(err, zip.ErrFormat) {
		return fmt.Errorf("%s: the list of members at its end is missing: it is cut short, or no zip; fetch it again, or mend it ('zip -FF')", name)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// Close closes it; what was opened of it can be read no longer.
func (b *Bundle) Close() error { return b.closer.Close() }

// walk lists what is there.
func (b *Bundle) walk(l Limits, pack packed) error {
	inner, err := onlyFolder(b.root)
	if err != nil {
		return err
	}
	if inner != "." { // zip -r makes such
		sub, err := fs.Sub(b.root, inner)
		if err != nil {
			return err
		}
		b.root = sub
	}
	if err := b.readManifest(); err != nil {
		return err
	}
	total, beyond := int64(0), 0
	err = fs.WalkDir(b.root, ".", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			b.refuse(p, err.Error())
			return nil
		case d.IsDir():
			return nil
		case p == ManifestName && b.Manifest != nil:
			return nil
		case !d.Type().IsRegular():
			b.refuse(p, "no regular file but "+kindOf(d.Type())+": it is not followed")
			return nil
		}
		info, err := d.Info()
		if err != nil {
			b.refuse(p, err.Error())
			return nil
		}
		bomb := ""
		if size, ok := pack[path.Join(inner, p)]; ok {
			bomb = tooDense(size, info.Size(), l)
		}
		switch {
		case bomb != "":
			b.refuse(p, bomb)
		case len(b.Members) == l.Members:
			beyond++
		case total+info.Size() > l.Bytes:
			b.refuse(p, fmt.Sprintf("%d bytes, with which the bundle would have over %d", info.Size(), l.Bytes))
		default:
			total += info.Size()
			b.Members = append(b.Members, Member{p, info.Size(), info.ModTime()})
		}
		return nil
	})
	if beyond > 0 {
		b.refuse(".", fmt.Sprintf("%d further files: of a bundle at most %d are read", beyond, l.Members))
	}
	slices.SortFunc(b.Refused, func(x, y Refusal) int { return strings.Compare(x.Path, y.Path) })
	return err
}

func (b *Bundle) refuse(path, why string) { b.Refused = append(b.Refused, Refusal{path, why}) }

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a link"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// onlyFolder is the folder that a bundle lies in, one below the top; "." where it lies at the top.
func onlyFolder(root fs.FS) (string, error) {
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return "", err
	}
	entries = slices.DeleteFunc(entries, func(d fs.DirEntry) bool { return d.Name() == "__MACOSX" })
	if len(entries) == 1 && entries[0].IsDir() {
		if info, err := fs.Stat(root, path.Join(entries[0].Name(), ManifestName)); err == nil && info.Mode().IsRegular() {
			return entries[0].Name(), nil
		}
	}
	return ".", nil
}

// Open opens a member. One of a zip gives no more bytes than its size says; a file in a directory may be growing.
func (b *Bundle) Open(m Member) (io.ReadCloser, error) {
	f, err := b.root.Open(m.Path)
	if err != nil {
		return nil, err
	}
	if !b.zipped {
		return f, nil
	}
	return &bounded{f, m.Size, m.Path}, nil
}

// bounded ends with an error where there is more than was said.
type bounded struct {
	fs.File
	left int64
	path string
}

func (r *bounded) Read(p []byte) (int, error) {
	n, err := r.File.Read(p)
	if r.left -= int64(n); r.left < 0 {
		return max(0, n+int(r.left)), fmt.Errorf("%s: it holds more than the size that it is listed with", r.path)
	}
	return n, err
}

// Kind is what a member is.
type Kind string

// The kinds.
const (
	Capture Kind = "capture" // docs/formats/stream.md
	Ring    Kind = "ring"    // likewise: what a crashed engine left
	Changes Kind = "changes"
	Truth   Kind = "truth" // it is never opened but by whoever marks an answer
	Archive Kind = "archive"
	Other   Kind = "other" // metrics, logs, traces and what else 'look' knows
)

// Kind recognises a member by content, not by name. A truth is the exception: to look into it would be to open it.
func (b *Bundle) Kind(m Member) (Kind, error) {
	if IsTruth(m.Path) {
		return Truth, nil
	}
	f, err := b.Open(m)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return "", err
	}
	return Sniff(head[:n]), nil
}

// IsTruth reports whether a path is that of a bundle's truth.
func IsTruth(p string) bool { return path.Base(p) == TruthName }

// Sniff is what a file is that begins so.
func Sniff(head []byte) Kind {
	switch {
	case bytes.HasPrefix(head, []byte("WHYLATE\n")):
		return Capture
	case bytes.HasPrefix(head, []byte("WLRING\r\n")):
		return Ring
	case isZip(head):
		return Archive
	case isChange(head):
		return Changes
	}
	return Other
}

var scrapePath = regexp.MustCompile(`^scrape/(.+)/(\d{13})\.[^/]+$`)

// ScrapeOf is whom a scrape speaks of, and when it was taken in Unix ms: what its path says.
func ScrapeOf(path string) (target string, ms int64, ok bool) {
	m := scrapePath.FindStringSubmatch(path)
	if m == nil {
		return "", 0, false
	}
	target, err := url.PathUnescape(m[1])
	if err != nil {
		target = m[1]
	}
	ms, _ = strconv.ParseInt(m[2], 10, 64)
	return target, ms, true
}

// ScrapePath is where the scrape of a target lies that was taken at a moment in Unix ms.
func ScrapePath(target string, ms int64) string {
	return fmt.Sprintf("scrape/%s/%013d.prom", strings.ReplaceAll(url.PathEscape(target), "..", "%2E%2E"), ms)
}

// unsafe says why a name of a zip's member is none that may be used; "" where it may.
func unsafe(name string) string {
	switch {
	case strings.ContainsFunc(name, unicode.IsControl):
		return "control characters are in its name"
	case strings.Contains(name, `\`) || len(name) > 1 && name[1] == ':':
		return "its name is a path of another system: write it with /, from the bundle's root"
	case !fs.ValidPath(strings.TrimSuffix(name, "/")):
		return "its name leads out of the bundle, or is no plain path from its root"
	}
	return ""
}
