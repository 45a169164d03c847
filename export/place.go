package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/whylate/whylate/internal/vfs"
)

// placeFile is where the place is kept in the data directory.
const placeFile = "export.json"

// Place remembers up to which end of a request everything has been dealt with, so that a restart does not send it again. What ended at
// that time or before is not offered again; what lay in the queue is, under the same ids.
type Place struct {
	fs   vfs.FS
	dir  string
	kept place
}

type place struct {
	Through int64 `json:"through_unix_ns"`
}

// OpenPlace reads the place in a data directory. Where none has been kept yet it is now (Unix ns): the past is not exported.
func OpenPlace(disk vfs.FS, dir string, now int64) (*Place, error) {
	p := &Place{fs: disk, dir: dir, kept: place{now}}
	if err := disk.Mkdir(dir); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	path := filepath.Join(dir, placeFile)
	b, err := vfs.ReadFile(disk, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := json.Unmarshal(b, &p.kept); err != nil || p.kept.Through <= 0 {
		return nil, fmt.Errorf("%s does not hold the place of the export; remove it, and requests are exported from then on", path)
	}
	return p, nil
}

// Through is the end, in Unix ns, up to which everything has been dealt with. It is read before the exporter runs.
func (p *Place) Through() int64 { return p.kept.Through }

// keep writes the place down if it has moved on.
func (p *Place) keep(through int64) error {
	if through <= p.kept.Through {
		return nil
	}
	b, err := json.Marshal(place{through})
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, placeFile)
	f, err := p.fs.Create(path + ".new")
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := p.fs.Rename(path+".new", path); err != nil {
		return err
	}
	if err := p.fs.SyncDir(p.dir); err != nil {
		return err
	}
	p.kept.Through = through
	return nil
}
