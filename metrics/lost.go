package metrics

import (
	"os"
	"path/filepath"
	"time"
)

// Lost is what a damaged log cost.
type Lost struct {
	Store string    // detail or rollup
	At    string    // the file of the log that was damaged
	Bytes int64     // of the log, that could not be read or lay behind what could not
	After time.Time // of the newest sample that is left: those that are lost are younger, or of other series
}

// Lost is what was lost when the directory was opened, none where its logs were whole.
func (db *DB) Lost() (out []Lost) {
	for _, p := range []*part{db.detail, db.rollup} {
		if p.lost != nil {
			out = append(out, *p.lost)
		}
	}
	return out
}

// wal are the files of a log with their sizes.
type wal map[string]int64

// walOf lists the two logs of a store: in order, and out of order.
func walOf(dir string) wal {
	w := wal{}
	for _, sub := range []string{"wal", "wbl"} {
		files, _ := os.ReadDir(filepath.Join(dir, sub)) // none yet is none lost
		for _, f := range files {
			if info, err := f.Info(); err == nil && info.Mode().IsRegular() {
				w[filepath.Join(sub, f.Name())] = info.Size()
			}
		}
	}
	return w
}

// lost compares a log before it was opened with what is there now: a repair cuts the damaged file and drops those behind it. What was cut
// in whole blocks is a checkpoint, and not lost: a store has none while it opens.
func (before wal) lost(dir string) *Lost {
	var l Lost
	now := walOf(dir)
	for name, size := range before {
		if left := now[name]; left < size {
			l.Bytes += size - left
			if l.At == "" || name < l.At {
				l.At = name
			}
		}
	}
	if l.Bytes == 0 {
		return nil
	}
	return &l
}
