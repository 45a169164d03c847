package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// pkg is one linked package, and the module it is from.
type pkg struct {
	path, dir string
	module    string // "" is ours
	version   string
	root      string // the module's directory; packages are at it or below
}

// standard is the module that the standard library counts as.
const standard = "Go standard library"

// list asks the go command for all packages that the given ones are linked from.
func list(run func(args ...string) ([]byte, error), patterns []string) ([]pkg, error) {
	out, err := run("env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, err
	}
	goroot, version, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if !ok {
		return nil, fmt.Errorf("go env GOROOT GOVERSION printed %q", out)
	}
	out, err = run(append([]string{"list", "-deps", "-json=ImportPath,Dir,Standard,Module", "--"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var packages []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("read what go list printed: %w", err)
		}
		switch {
		case p.Standard:
			packages = append(packages, pkg{path: p.ImportPath, dir: goroot, module: standard, version: version, root: goroot})
		case p.Module == nil:
			return nil, fmt.Errorf("package %s belongs to no module, so its licence is not known", p.ImportPath)
		case p.Module.Main:
		default:
			m := p.Module
			if m.Replace != nil {
				m = m.Replace
			}
			packages = append(packages, pkg{path: p.ImportPath, dir: filepath.Clean(p.Dir), module: p.Module.Path, version: m.Version, root: filepath.Clean(m.Dir)})
		}
	}
}

type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *listedModule
}

type listedModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listedModule
}
