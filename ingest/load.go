package ingest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/wire"
)

// Progress is told how many bytes of how many have been read; it may be nil.
type Progress func(read, total int64)

// Load reads captures, rings, and folders and run bundles of them into a, in the order given. A file that cannot be read at all is an error by
// name; a damaged one is read as far as it goes, and its damage becomes gap records, as do the members of a bundle that cannot be read.
func (a *Assembler) Load(paths []string, now int64, progress Progress) error {
	var files []recording
	for _, p := range paths {
		found, done, err := expand(p)
		if err != nil {
			return err
		}
		defer done()
		files = append(files, found...)
	}
	var total, before int64
	for _, f := range files {
		total += f.size
	}
	for _, f := range files {
		err := a.load(f, now, func(read int64) {
			if progress != nil {
				progress(before+read, total)
			}
		})
		if err != nil && f.member && len(files) > 1 {
			err = a.Gap(noSource, wire.Gap{Why: err.Error()})
		}
		if err != nil {
			return err
		}
		before += f.size
	}
	return nil
}

// recording is a capture or a ring.
type recording struct {
	name   string
	size   int64
	open   func() (io.ReadCloser, error)
	ring   bool
	member bool // of a bundle: one that cannot be read does not cost the others
}

func file(path string, size int64) recording {
	return recording{name: path, size: size, ring: filepath.Ext(path) == ".ring", open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// expand is what there is to read at a path: the file itself, or the captures of a folder or bundle, or if there are none its rings.
func expand(path string) (files []recording, done func() error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	if !bundle.Is(path) {
		return []recording{file(path, info.Size())}, func() error { return nil }, nil
	}
	b, err := bundle.Open(path, bundle.Limits{})
	if err != nil {
		return nil, nil, fmt.Errorf("read %w", err)
	}
	var rings []recording
	for _, m := range b.Members {
		s := recording{name: path + ":" + m.Path, size: m.Size, open: func() (io.ReadCloser, error) { return b.Open(m) }, member: true}
		switch kind, err := b.Kind(m); {
		case err != nil && filepath.Ext(m.Path) == ".wlc":
			s.open = func() (io.ReadCloser, error) { return nil, err }
			files = append(files, s)
		case kind == bundle.Capture:
			files = append(files, s)
		case kind == bundle.Ring && info.IsDir(): // it is read where it lies
			rings = append(rings, file(filepath.Join(path, m.Path), m.Size))
		}
	}
	for _, r := range b.Refused {
		if filepath.Ext(r.Path) == ".wlc" {
			files = append(files, recording{name: path + ":" + r.Path, open: func() (io.ReadCloser, error) { return nil, errors.New(r.Why) }, member: true})
		}
	}
	if len(files) == 0 {
		files = rings
	}
	if len(files) == 0 {
		return nil, nil, errors.Join(fmt.Errorf("read %s: no capture (*.wlc) and no ring (*.ring) in it", path), b.Close())
	}
	return files, b.Close, nil
}

func (a *Assembler) load(f recording, now int64, progress func(int64)) error {
	if f.ring {
		_, err := wire.CopyRings([]string{f.name}, a, now)
		return err
	}
	in, err := f.open()
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	defer in.Close()
	return ReadCapture(&countingReader{in: in, progress: progress}, f.name, a)
}

// ReadCapture reads one capture from in into a sink, mostly an [Assembler]; name is what errors and gap records call it.
// Sources get the sink's numbers, so several captures can go into one.
func ReadCapture(in io.Reader, name string, sink wire.Sink) error {
	r, err := wire.NewCaptureReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer r.Close()
	ids := map[uint16]uint16{} // the capture's numbers of its sources → the sink's
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = pass(record, name, ids, sink)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

// noSource is the number of no source: a gap under it concerns the capture as a whole.
const noSource = ^uint16(0)

// pass hands one record of a capture on.
func pass(record wire.Record, name string, ids map[uint16]uint16, sink wire.Sink) (err error) {
	if record.Opened != nil {
		ids[record.Source], err = sink.Source(*record.Opened)
		return err
	}
	id, known := ids[record.Source]
	if record.Gap != nil {
		g := *record.Gap
		if !known {
			if g.Why == wire.WhyTruncated {
				g.Why = "the file ends inside a block: it is still being written, or was cut"
			}
			id, g.Why = noSource, name+": "+g.Why
		}
		return sink.Gap(id, g)
	}
	if !known { // the record that introduced it is damaged
		if id, err = sink.Source(wire.Source{Name: fmt.Sprintf("%s#%d", name, record.Source)}); err != nil {
			return err
		}
		ids[record.Source] = id
	}
	return sink.Frame(id, record.Frame)
}

// countingReader reports how far a file has been read.
type countingReader struct {
	in       io.Reader
	n        int64
	progress func(int64)
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	if c.progress != nil {
		c.progress(c.n)
	}
	return n, err
}
