package ingest

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/whylate/whylate/wire"
)

// Progress is told how many bytes of how many have been read; it may be nil.
type Progress func(read, total int64)

// Load reads captures, rings, directories of them and zipped run bundles into a, in the order given. A file that cannot be read at all is an error
// by name; a damaged one is read as far as it goes, and its damage becomes gap records.
func (a *Assembler) Load(paths []string, now int64, progress Progress) error {
	files, err := expand(paths)
	if err != nil {
		return err
	}
	var total, before int64
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			total += info.Size()
		}
	}
	for _, f := range files {
		done := func(read int64) {
			if progress != nil {
				progress(before+read, total)
			}
		}
		var err error
		switch filepath.Ext(f) {
		case ".ring":
			_, err = wire.CopyRings([]string{f}, a, now)
		case ".zip":
			err = a.loadZip(f, done)
		default:
			err = a.loadCapture(f, done)
		}
		if err != nil {
			return err
		}
		if info, err := os.Stat(f); err == nil {
			before += info.Size()
		}
	}
	return nil
}

// expand replaces directories by the captures in them, or if there are none by their rings.
func expand(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p, err)
		}
		if !info.IsDir() {
			files = append(files, p)
			continue
		}
		found, _ := filepath.Glob(filepath.Join(p, "*.wlc"))
		if len(found) == 0 {
			found, _ = filepath.Glob(filepath.Join(p, "*.ring"))
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("read %s: no capture (*.wlc) and no ring (*.ring) in this directory", p)
		}
		slices.Sort(found)
		files = append(files, found...)
	}
	return files, nil
}

func (a *Assembler) loadCapture(path string, progress func(int64)) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read capture: %w", err)
	}
	defer file.Close()
	return ReadCapture(&countingReader{in: file, progress: progress}, path, a)
}

// loadZip reads the captures of a run bundle that is packed as a zip. Nothing is unpacked onto disk, and a capture reads no
// more than its blocks say, so a bomb has no room to go off.
func (a *Assembler) loadZip(path string, progress func(int64)) error {
	z, err := zip.OpenReader(path)
	if err != nil {
		return fmt.Errorf("read bundle %s: %w", path, err)
	}
	defer z.Close()
	found := 0
	var before int64
	for _, f := range z.File {
		if filepath.Ext(f.Name) != ".wlc" {
			continue
		}
		found++
		in, err := f.Open()
		if err != nil {
			return fmt.Errorf("read bundle %s: %w", path, err)
		}
		err = ReadCapture(in, path+":"+f.Name, a)
		in.Close()
		if err != nil {
			return err
		}
		before += int64(f.CompressedSize64)
		progress(before)
	}
	if found == 0 {
		return fmt.Errorf("read bundle %s: it holds no capture (*.wlc)", path)
	}
	return nil
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
