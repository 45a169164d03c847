package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// keptFile holds the last sequences of all sources as of the last [log.Forget].
const keptFile = "kept.json"

// keptMarks is its content.
type keptMarks struct {
	Begin uint64            `json:"begin"` // files before this one are forgotten, whether or not they are gone
	Kept  map[string]uint64 `json:"kept"`  // by sourceKey
}

// openLog finds the files of a log, cuts torn tails and learns what is kept of each source. It always begins a new file to
// write to, at the first append.
func openLog(f vfs.FS, dir string, segmentBytes int64) (*log, error) {
	l := &log{fs: f, dir: dir, segment: segmentBytes, kept: map[string]uint64{}}
	l.idle.L = &l.mu
	if err := f.Mkdir(dir); err != nil {
		return nil, diskError("open the log", dir, err)
	}
	var marks keptMarks
	switch b, err := vfs.ReadFile(f, filepath.Join(dir, keptFile)); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, diskError("open the log", keptFile, err)
	case json.Unmarshal(b, &marks) != nil:
		marks = keptMarks{}
		l.notes = append(l.notes, wire.Gap{Why: "the log's " + keptFile + " is damaged: frames that had been forgotten may be taken up again if their senders repeat them"})
	}
	maps.Copy(l.kept, marks.Kept)
	l.floor = marks.Begin
	list, err := f.ReadDir(dir)
	if err != nil {
		return nil, diskError("open the log", dir, err)
	}
	for _, e := range list {
		digits, ok := strings.CutSuffix(e.Name, segmentSuffix)
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil || e.Dir {
			continue
		}
		if number < marks.Begin { // a forgetting that was not finished
			if err := f.Remove(filepath.Join(dir, e.Name)); err != nil {
				return nil, diskError("open the log", filepath.Join(dir, e.Name), err)
			}
			continue
		}
		l.segments = append(l.segments, segment{number: number, size: e.Size})
	}
	slices.SortFunc(l.segments, func(a, b segment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	var whole []segment
	for _, s := range l.segments {
		if err := l.recover(&s); err != nil {
			return nil, err
		}
		l.stats.Bytes += s.size
		whole = append(whole, s)
	}
	l.segments = whole
	return l, nil
}

// recover reads a file to its end. A torn tail is cut off; damage before a whole block stays where it is and is told by [log.Replay].
func (l *log) recover(s *segment) error {
	path := l.path(s.number)
	end, err := l.scan(s, captureHeader, func(r *wire.CaptureReader, record wire.Record) error { return nil })
	if err != nil {
		return err
	}
	if end == s.size {
		return nil
	}
	cut := s.size - end
	l.stats.Cut += cut
	l.notes = append(l.notes, wire.Gap{Why: fmt.Sprintf("%s was cut at byte %d: the %d bytes behind were no whole block. They had not been acknowledged, unless the disk lost them", filepath.Base(path), end, cut)})
	out, err := l.fs.OpenEdit(path)
	if err != nil {
		return diskError("cut the torn tail of the log", path, err)
	}
	err = out.Truncate(end)
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return diskError("cut the torn tail of the log", path, err)
	}
	s.size = end
	return nil
}

// scan reads the records of a file from an offset on, notes the sequences, and returns where the last whole block ends.
func (l *log) scan(s *segment, from int64, each func(*wire.CaptureReader, wire.Record) error) (int64, error) {
	path := l.path(s.number)
	in, err := l.fs.Open(path)
	if err != nil {
		return 0, diskError("read the log", path, err)
	}
	defer in.Close()
	if s.size < captureHeader {
		return 0, nil // nothing was ever acknowledged of it
	}
	var header [captureHeader]byte
	if _, err := in.ReadAt(header[:], 0); err != nil {
		return 0, diskError("read the log", path, err)
	}
	from = max(from, captureHeader)
	body := io.NewSectionReader(in, from, max(0, s.size-from))
	r, err := wire.NewCaptureReader(io.MultiReader(bytes.NewReader(header[:]), body))
	switch {
	case errors.Is(err, wire.ErrNewerMajor):
		return 0, &store.Error{Err: store.ErrNewer, What: "read the log", Where: path, Cause: err, Remedy: "open it with the whylate that wrote it, or a newer one"}
	case errors.Is(err, wire.ErrMagic) && bytes.Count(header[:], []byte{0}) == captureHeader:
		return 0, nil // the power went before its header was on disk
	case errors.Is(err, wire.ErrMagic):
		return s.size, each(nil, wire.Record{Gap: &wire.Gap{Why: filepath.Base(path) + ": its header is damaged; nothing of it can be read", Bytes: s.size}})
	case err != nil:
		return 0, diskError("read the log", path, err)
	}
	defer r.Close()
	keys := map[uint16]string{}
	torn := false
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, diskError("read the log", path, err)
		}
		torn = record.Gap != nil && record.Gap.Bytes > 0
		switch {
		case record.Opened != nil:
			keys[record.Source] = sourceKey(*record.Opened)
		case record.Gap == nil:
			if key := keys[record.Source]; key != "" && record.Frame.Sequence > l.kept[key] {
				l.kept[key] = record.Frame.Sequence
			}
		}
		if err := each(r, record); err != nil {
			return 0, err
		}
	}
	if !torn {
		return s.size, nil
	}
	end, err := wire.CaptureEnd(io.MultiReader(bytes.NewReader(header[:]), io.NewSectionReader(in, from, max(0, s.size-from))))
	if err != nil {
		return 0, diskError("read the log", path, err)
	}
	return end - captureHeader + from, nil
}

// Replay implements [store.Log].
func (l *log) Replay(ctx context.Context, from store.Position, sink wire.Sink) (store.Position, error) {
	l.mu.Lock()
	segments := slices.Clone(l.segments)
	notes := slices.Clone(l.notes)
	l.mu.Unlock()
	p := &player{sink: sink, last: map[string]uint64{}, ids: map[string]uint16{}}
	at := from
	for _, s := range segments {
		if s.number < from.Segment {
			continue
		}
		begin := int64(captureHeader)
		if s.number == from.Segment {
			begin = max(begin, from.Offset)
		}
		p.keys = map[uint16]string{}
		reader := &log{fs: l.fs, dir: l.dir, kept: map[string]uint64{}} // a reader of its own: the marks are the writer's
		_, err := reader.scan(&s, begin, func(_ *wire.CaptureReader, r wire.Record) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return p.play(filepath.Base(l.path(s.number)), r)
		})
		if err != nil {
			return at, err
		}
		at = store.Position{Segment: s.number, Offset: s.size}
	}
	for _, g := range notes {
		if err := sink.Gap(noSource, g); err != nil {
			return at, err
		}
	}
	return at, nil
}

// noSource is the number of no source: a gap under it concerns the log as a whole.
const noSource = ^uint16(0)

// player hands the records of several files to one sink, each frame once: a block that was written and not acknowledged may have been
// written again into the next file.
type player struct {
	sink wire.Sink
	keys map[uint16]string // the file's numbers of its sources → their keys
	ids  map[string]uint16 // keys → the sink's numbers
	last map[string]uint64
}

func (p *player) play(file string, r wire.Record) error {
	if r.Opened != nil {
		key := sourceKey(*r.Opened)
		p.keys[r.Source] = key
		if _, known := p.ids[key]; known {
			return nil
		}
		id, err := p.sink.Source(*r.Opened)
		p.ids[key] = id
		return err
	}
	key, known := p.keys[r.Source]
	if r.Gap != nil {
		g := *r.Gap
		id := noSource
		if known {
			id = p.ids[key]
		} else if g.Bytes > 0 {
			g.Why = file + ": " + g.Why
		}
		return p.sink.Gap(id, g)
	}
	if !known { // the record that introduced it is damaged
		key = fmt.Sprintf("%s#%d", file, r.Source)
		p.keys[r.Source] = key
		id, err := p.sink.Source(wire.Source{Name: key})
		if err != nil {
			return err
		}
		p.ids[key] = id
	}
	if r.Frame.Sequence <= p.last[key] {
		return nil
	}
	p.last[key] = r.Frame.Sequence
	return p.sink.Frame(p.ids[key], r.Frame)
}
