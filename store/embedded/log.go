package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// log is the write-ahead log: numbered captures of which every block was synced before it was acknowledged. Whoever appends while a
// sync is under way shares the next one.
type log struct {
	fs      vfs.FS
	dir     string
	segment int64  // bytes after which a new file is begun
	floor   uint64 // number of the first file that is not forgotten

	mu       sync.Mutex
	pending  []*batch
	writing  bool
	idle     sync.Cond // writing became false
	closed   bool
	segments []segment         // oldest first; the last one may be open
	kept     map[string]uint64 // by sourceKey: last sequence on disk
	notes    []wire.Gap        // about the log itself, not written yet
	stats    store.LogInfo

	// Of the one goroutine that writes.
	out    vfs.File
	writer *wire.CaptureWriter
	ids    map[string]uint16 // by sourceKey: number in the open file
}

// segment is one file of the log. Only its first size bytes count: what may lie behind was never acknowledged.
type segment struct {
	number uint64
	size   int64
}

// batch is what one caller appends.
type batch struct {
	records []store.Record
	raw     [][]byte // the frames' bytes, by record
	done    chan struct{}
	end     store.Position
	err     error
}

const (
	segmentSuffix = ".wlc"
	captureHeader = 16    // bytes before the first block, docs/formats/stream.md §4
	maxSources    = 50000 // of one file; a capture can number 65,535
)

func (l *log) path(number uint64) string {
	return filepath.Join(l.dir, fmt.Sprintf("%020d%s", number, segmentSuffix))
}

// sourceKey tells sources apart: a ring that is opened again is the same one, one of the same name with another hello is not.
func sourceKey(s wire.Source) string {
	hello := []byte("null")
	if len(s.Hello) > 0 {
		if b, err := json.Marshal(s.Hello); err == nil { // without its spaces, as a capture keeps it
			hello = b
		}
	}
	return fmt.Sprintf("%s#%08x", s.Name, crc32.ChecksumIEEE(hello))
}

// Append implements [store.Log].
func (l *log) Append(ctx context.Context, records []store.Record) (store.Position, error) {
	b := &batch{records: records, raw: make([][]byte, len(records)), done: make(chan struct{})}
	for i, r := range records {
		if r.Gap != nil {
			continue
		}
		b.raw[i] = r.Frame.Raw
		if b.raw[i] == nil {
			raw, err := wire.AppendFrame(nil, r.Frame)
			if err != nil {
				return store.Position{}, &store.Error{Err: store.ErrInvalid, What: "append to the log", Where: r.Source.Name, Cause: err, Remedy: "the frame is not kept"}
			}
			b.raw[i] = raw
		}
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return store.Position{}, closedError("append to the log")
	}
	l.pending = append(l.pending, b)
	if !l.writing {
		l.writing = true
		go l.write()
	}
	l.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		if l.withdraw(b) {
			return store.Position{}, ctx.Err()
		}
		<-b.done // it is being written: the records must stay ours until that is over
	}
	return b.end, b.err
}

// withdraw takes a batch back whose writing has not begun.
func (l *log) withdraw(b *batch) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.pending {
		if p == b {
			l.pending = append(l.pending[:i:i], l.pending[i+1:]...)
			return true
		}
	}
	return false
}

// write commits what is pending until nothing is.
func (l *log) write() {
	for {
		l.mu.Lock()
		group := l.pending
		l.pending = nil
		if len(group) == 0 {
			l.writing = false
			l.idle.Broadcast()
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		end, err := l.commit(group)
		for _, b := range group {
			b.end, b.err = end, err
			close(b.done)
		}
	}
}

// commit writes a group of batches and syncs once. After an error the file is cut back to what was acknowledged and never
// written again: after a failed sync nobody knows what is on the disk.
func (l *log) commit(group []*batch) (store.Position, error) {
	if l.writer == nil || l.current().size >= l.segment || len(l.ids) > maxSources {
		if err := l.rotate(); err != nil {
			l.fail()
			return store.Position{}, err
		}
	}
	marks := map[string]uint64{}
	var appended, passed uint64
	err := l.putAll(group, marks, &appended, &passed)
	if err == nil {
		err = l.writer.Flush()
	}
	if err == nil {
		err = l.out.Sync()
	}
	if err != nil {
		err = diskError("append to the log", l.path(l.current().number), err)
		l.abandon()
		l.fail()
		return store.Position{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, sequence := range marks {
		l.kept[key] = sequence
	}
	l.notes = nil
	s := &l.segments[len(l.segments)-1]
	l.stats.Bytes += l.writer.Size() - s.size
	s.size = l.writer.Size()
	l.stats.Appended += appended
	l.stats.Passed += passed
	return store.Position{Segment: s.number, Offset: s.size}, nil
}

// fail counts an append that was not acknowledged.
func (l *log) fail() {
	l.mu.Lock()
	l.stats.Failed++
	l.mu.Unlock()
}

func (l *log) current() segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 {
		return segment{}
	}
	return l.segments[len(l.segments)-1]
}

// putAll hands the records of a group to the writer, but for frames that are on disk already.
func (l *log) putAll(group []*batch, marks map[string]uint64, appended, passed *uint64) error {
	for _, g := range l.notes { // only this goroutine changes them after the opening
		if err := l.writer.Gap(0, g); err != nil {
			return err
		}
	}
	var last wire.Source // records of one source come together: its key is made once
	var key string
	for _, b := range group {
		for i, r := range b.records {
			if key == "" || r.Source.Name != last.Name || string(r.Source.Hello) != string(last.Hello) {
				last, key = r.Source, sourceKey(r.Source)
			}
			before, ok := marks[key]
			if !ok {
				l.mu.Lock()
				before = l.kept[key]
				l.mu.Unlock()
			}
			if r.Gap == nil && r.Frame.Sequence <= before {
				*passed++
				continue
			}
			id, ok := l.ids[key]
			if !ok {
				var err error
				if id, err = l.writer.Source(r.Source); err != nil {
					return err
				}
				l.ids[key] = id
			}
			if r.Gap != nil {
				if err := l.writer.Gap(id, *r.Gap); err != nil {
					return err
				}
			} else {
				if err := l.writer.Frame(id, wire.Frame{Raw: b.raw[i]}); err != nil {
					return err
				}
				marks[key] = r.Frame.Sequence
			}
			*appended++
		}
	}
	return nil
}

// rotate closes the open file, if there is one, and begins the next.
func (l *log) rotate() error {
	if l.writer != nil {
		l.letGo()
	}
	number := max(l.current().number+1, l.floor)
	path := l.path(number)
	out, err := l.fs.Create(path)
	if err != nil {
		return diskError("begin a file of the log", path, err)
	}
	writer, err := wire.NewCaptureWriter(out)
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		out.Close()
		_ = l.fs.Remove(path) // if it stays, it is swept at the next open
		return diskError("begin a file of the log", path, err)
	}
	l.out, l.writer, l.ids = out, writer, map[string]uint16{}
	l.mu.Lock()
	l.segments = append(l.segments, segment{number: number, size: writer.Size()})
	l.stats.Bytes += writer.Size()
	l.mu.Unlock()
	return nil
}

// letGo closes the open file.
func (l *log) letGo() {
	l.writer.Discard()
	l.out.Close()
	l.writer, l.out, l.ids = nil, nil, nil
}

// abandon cuts the open file back to what was acknowledged, as far as the disk lets it, and begins no other. What it cannot cut is
// known to be beyond the file's size as long as the process lives; after that, whole blocks may come to light that were
// written and not acknowledged, which loses nothing and doubles nothing.
func (l *log) abandon() {
	if err := l.out.Truncate(l.current().size); err == nil {
		_ = l.out.Sync()
	}
	l.letGo()
}

// Kept implements [store.Log].
func (l *log) Kept(s wire.Source) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept[sourceKey(s)]
}

// LogInfo implements [store.Log].
func (l *log) LogInfo() store.LogInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	info := l.stats
	info.Files = len(l.segments)
	if n := len(l.segments); n > 0 {
		info.First = store.Position{Segment: l.segments[0].number}
		info.Last = store.Position{Segment: l.segments[n-1].number, Offset: l.segments[n-1].size}
	}
	return info
}

// Forget implements [store.Log].
func (l *log) Forget(ctx context.Context, before store.Position) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n+1 < len(l.segments) && l.segments[n].number < before.Segment { // the newest file stays
		n++
	}
	if n == 0 {
		return nil
	}
	// First the marks: without them a sender could append again what is about to be forgotten.
	b, err := json.Marshal(keptMarks{Begin: l.segments[n].number, Kept: l.kept})
	if err != nil {
		return err
	}
	if err := vfs.WriteFile(l.fs, filepath.Join(l.dir, keptFile), b); err != nil {
		return diskError("forget the log up to "+before.String(), keptFile, err)
	}
	for n > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := l.segments[0]
		if err := l.fs.Remove(l.path(s.number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError("forget the log up to "+before.String(), l.path(s.number), err)
		}
		l.segments = l.segments[1:]
		l.stats.Bytes -= s.size
		n--
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return diskError("forget the log up to "+before.String(), l.dir, err)
	}
	return nil
}

// close waits for what is being written and closes the open file.
func (l *log) close() {
	l.mu.Lock()
	l.closed = true
	for l.writing {
		l.idle.Wait()
	}
	l.mu.Unlock()
	if l.writer != nil {
		l.letGo()
	}
}

// diskError says what the system's error means for the store.
func diskError(what, where string, err error) error {
	e := &store.Error{Err: store.ErrCorrupt, What: what, Where: where, Cause: err, Remedy: "what was acknowledged before is not touched; look at the disk (dmesg), then try again"}
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		e.Err, e.Remedy = store.ErrFull, "what was acknowledged before is not touched; free space or shorten the retention: the next append tries again"
	case errors.Is(err, syscall.EIO):
	default:
		e.Err = errDisk
	}
	return e
}

// errDisk is a failure of the system that is neither a full disk nor a broken one.
var errDisk = errors.New("the system refused")

func closedError(what string) error {
	return &store.Error{Err: store.ErrClosed, What: what, Remedy: "open it again"}
}
