package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/query"
)

// site is a running engine whose rings are recorded.
type site struct {
	*engineproof.Run
	version string
	engine  *engineenv.Engine
	rings   string
	capture *exec.Cmd // nil: nobody records
}

// folder is where a version's probe, model and compile caches lie; they are made on first use.
func (b *bench) folder(ctx context.Context, version string) (python, dir string, err error) {
	if python, err = engineenv.Python(ctx, version); err != nil {
		return "", "", err
	}
	dir, made := b.prepared[version]
	if made {
		return python, dir, nil
	}
	dir = filepath.Join(b.dir, "vllm-"+version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if err := engineenv.Prepare(ctx, python, dir); err != nil {
		return "", "", err
	}
	b.prepared[version] = dir
	return python, dir, nil
}

// launch starts an engine of a version in a folder of its own, with the version's warm compile caches. change, if not nil, makes it special.
func (b *bench) launch(ctx context.Context, version, name string, change func(*engineenv.Options)) (*site, error) {
	python, dir, err := b.folder(ctx, version)
	if err != nil {
		return nil, err
	}
	own := filepath.Join(b.dir, name)
	if err := os.RemoveAll(own); err != nil {
		return nil, err
	}
	rings := filepath.Join(own, "rings")
	if err := os.MkdirAll(rings, 0o700); err != nil {
		return nil, err
	}
	o := engineenv.Options{Python: python, Dir: dir, Rings: rings, Log: filepath.Join(own, "engine.log"), Env: []string{"WHYLATE_DEPLOYMENT=proof", "WHYLATE_REPLICA=" + name}}
	if change != nil {
		change(&o)
	}
	e, err := engineenv.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	fmt.Printf("vLLM %s (%s) healthy after %.0f s\n", version, name, time.Since(e.Started).Seconds())
	return &site{Run: &engineproof.Run{Dir: own}, version: version, engine: e, rings: o.Rings}, nil
}

// record launches an engine and records its rings.
func (b *bench) record(ctx context.Context, version, name string, change func(*engineenv.Options)) (*site, error) {
	s, err := b.launch(ctx, version, name, change)
	if err != nil {
		return nil, err
	}
	s.capture = exec.Command(b.binary, "capture", "--ring-dir", s.rings, filepath.Join(s.Dir, engineproof.Capture))
	s.capture.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.capture.Start(); err != nil {
		s.engine.Stop()
		return nil, err
	}
	return s, nil
}

// common is the server of those scenarios that kill nothing.
func (b *bench) common(ctx context.Context) (*site, error) {
	var err error
	if b.shared == nil {
		b.shared, err = b.record(ctx, b.newest(), "shared", nil)
	}
	return b.shared, err
}

// ledger is what has been recorded until now, the clients' views included. A capture is behind by a second at most.
func (s *site) ledger() (*query.Ledger, error) {
	time.Sleep(2 * time.Second)
	return s.Open(nil, s.Files()...)
}

// stop ends recorder and engine, and gives the rings' memory back.
func (s *site) stop() {
	s.engine.Stop()
	if s.capture != nil {
		s.capture.Process.Signal(syscall.SIGINT)
		s.capture.Wait()
	}
	os.RemoveAll(s.rings)
}
