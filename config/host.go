package config

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// host is what a check looks at, as functions: tests put others in their place.
type host struct {
	readFile func(path string) ([]byte, error)
	stat     func(path string) (fs.FileInfo, error)
	readDir  func(path string) error        // whether it can be listed
	tryWrite func(dir string) error         // makes a file there and removes it
	space    func(dir string) (disk, error) // of the file system that dir is on
	now      func() time.Time
}

// disk is the room of a file system, in bytes. Free is what a user without privileges may still take.
type disk struct{ free, total uint64 }

func thisHost() host {
	return host{
		readFile: readSome,
		stat:     os.Stat,
		readDir: func(path string) error {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			_, err = f.Readdirnames(1)
			return errors.Join(ignoreEnd(err), f.Close())
		},
		tryWrite: func(dir string) error {
			f, err := os.CreateTemp(dir, ".whylate-check-*")
			if err != nil {
				return err
			}
			_, err = f.Write([]byte("whylate config check\n"))
			return errors.Join(err, f.Close(), os.Remove(f.Name()))
		},
		space: func(dir string) (disk, error) {
			var s unix.Statfs_t
			if err := unix.Statfs(dir, &s); err != nil {
				return disk{}, err
			}
			return disk{free: s.Bavail * uint64(s.Bsize), total: s.Blocks * uint64(s.Bsize)}, nil
		},
		now: time.Now,
	}
}
