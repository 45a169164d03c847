package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/server"
)

var errNoSource = errors.New("nothing to read")

// demoName is what --from calls the recorded run that is built in.
const demoName = "demo"

//go:embed demo.wlc
var demoCapture []byte

// source is the --from flag of every reading command.
type source struct {
	e      *env
	from   []string
	server serverFlags
}

func (s *source) flags(cmd *cobra.Command) {
	s.server.flags(cmd)
	cmd.Flags().StringArrayVar(&s.from, "from", nil, "what to read: a capture (.wlc, it may be growing), a run bundle (directory or .zip), a ring or ring directory, a data directory, or 'demo'; may be repeated. Default: the server if one runs, else the newest capture in $WHYLATE_DATA_DIR, with the replays recorded since it began")
}

// open returns what answers: a server if one runs and no source is named, else the sources, read into memory.
func (s *source) open() (api.Service, error) {
	if len(s.from) == 0 {
		if svc, err := s.server.running(); svc != nil || err != nil {
			return svc, err
		}
	}
	b, err := s.book()
	if err != nil {
		return nil, err
	}
	return server.NewLocal(b), nil
}

// book reads the sources into memory, whether a server runs or not.
func (s *source) book() (*ledger.Book, error) {
	paths := s.from
	if len(paths) == 0 {
		var err error
		if paths, err = newest(dataDir()); err != nil {
			return nil, err
		}
	}
	a := ingest.New()
	if err := s.e.load(paths, a); err != nil {
		return nil, err
	}
	return a.Book(), nil
}

// load reads the sources that --from names into memory.
func (e *env) load(paths []string, a *ingest.Assembler) error {
	p := e.progress("reading " + strings.Join(paths, ", "))
	defer p.end()
	for _, path := range paths {
		var err error
		switch {
		case path == demoName:
			err = ingest.ReadCapture(bytes.NewReader(demoCapture), "the built-in demo", a)
		case isDataDir(path):
			var files []string
			if files, err = newest(path); err == nil {
				err = a.Load(files, time.Now().UnixNano(), p.update)
			}
		default:
			err = a.Load([]string{path}, time.Now().UnixNano(), p.update)
		}
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", errNoSource, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// dataDir is where captures and replays are kept: $WHYLATE_DATA_DIR, else the user's own data folder.
func dataDir() string {
	if d := os.Getenv("WHYLATE_DATA_DIR"); d != "" {
		return d
	}
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "whylate")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "whylate-data"
	}
	return filepath.Join(home, ".local", "share", "whylate")
}

// isDataDir reports whether path is a directory that captures and replays are kept in: of those only the newest is meant. Any other
// directory is a run bundle, and all of it is meant.
func isDataDir(path string) bool {
	if _, err := os.Stat(filepath.Join(path, "manifest.json")); err == nil {
		return false
	}
	captures, _ := filepath.Glob(filepath.Join(path, "capture-*.wlc"))
	return len(captures) > 0
}

// stamp is the time in the names of captures and replays: it sorts as text.
const stamp = "20060102-150405"

// newest is the newest capture in dir and the replays recorded since it began.
func newest(dir string) ([]string, error) {
	captures, _ := filepath.Glob(filepath.Join(dir, "capture-*.wlc"))
	if len(captures) == 0 {
		return nil, fmt.Errorf("%w: no capture in %s; record one with 'whylate capture', name one with --from FILE, or try --from demo", errNoSource, dir)
	}
	slices.Sort(captures)
	last := captures[len(captures)-1]
	begun := strings.TrimPrefix(filepath.Base(last), "capture-")
	paths := []string{last}
	replays, _ := filepath.Glob(filepath.Join(dir, "replay-*.wlc"))
	for _, r := range replays {
		if strings.TrimPrefix(filepath.Base(r), "replay-") >= begun {
			paths = append(paths, r)
		}
	}
	return paths, nil
}
