package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is what we owe one module: its licences and notices.
type module struct {
	path, version string
	kinds         []string // of all its files, sorted
	licences      []file
	notices       []file
}

// file is one file of a module.
type file struct {
	name string // below the module's directory
	text string
}

var (
	licenceName = regexp.MustCompile(`(?i)^((un)?licen[cs]es?|copying|(mit|bsd|apache)[-_]licen[cs]e)([-_.].*)?$`)
	noticeName  = regexp.MustCompile(`(?i)^notices?([-_.].*)?$`)
	code        = regexp.MustCompile(`\.(go|s|c|h|py|sh|js|ts)$`)
)

// collect finds the licences of all packages: those beside a package and in the directories above it, up to its module's. A
// package with none, or a licence that is not known or not allowed, is an error; all of them are said at once.
func collect(packages []pkg) ([]module, error) {
	byPath := map[string]*module{}
	seen := map[string]bool{} // directories that were looked at
	var errs []error
	for _, p := range packages {
		m := byPath[p.module]
		if m == nil {
			m = &module{path: p.module, version: p.version}
			byPath[p.module] = m
		}
		if p.root == "" {
			errs = append(errs, fmt.Errorf("%s %s is not in the module cache: go mod download", p.module, p.version))
			continue
		}
		for dir := p.dir; ; dir = filepath.Dir(dir) {
			if !seen[dir] {
				seen[dir] = true
				if err := m.take(p.root, dir); err != nil {
					errs = append(errs, err)
				}
			}
			if dir == p.root || len(dir) <= len(p.root) {
				break
			}
		}
	}
	var modules []module
	for _, m := range byPath {
		if len(m.licences) == 0 {
			errs = append(errs, fmt.Errorf("%s %s has no licence file: look for its terms, or do without it", m.path, m.version))
		}
		for _, f := range m.licences {
			kinds := kindsOf(f.text)
			if len(kinds) == 0 {
				errs = append(errs, fmt.Errorf("%s %s: %s is no licence that is known: read it, and add its words to internal/licences/kind.go", m.path, m.version, f.name))
			}
			for _, k := range kinds {
				if !allowed[k] {
					errs = append(errs, fmt.Errorf("%s %s: %s is %s, which may not be shipped", m.path, m.version, f.name, k))
				}
				if !slices.Contains(m.kinds, k) {
					m.kinds = append(m.kinds, k)
				}
			}
		}
		slices.Sort(m.kinds)
		modules = append(modules, *m)
	}
	slices.SortFunc(modules, func(a, b module) int { return strings.Compare(a.path, b.path) })
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return modules, errors.Join(errs...)
}

// take adds the licences and notices of one directory.
func (m *module) take(root, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("look for licences of %s: %w", m.path, err)
	}
	for _, e := range entries {
		into := &m.licences
		switch name := e.Name(); {
		case e.IsDir() || code.MatchString(name):
			continue
		case noticeName.MatchString(name):
			into = &m.notices
		case !licenceName.MatchString(name):
			continue
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read a licence of %s: %w", m.path, err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		*into = append(*into, file{name: filepath.ToSlash(name), text: strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
	byName := func(a, b file) int { return cmp.Compare(a.name, b.name) }
	slices.SortFunc(m.licences, byName)
	slices.SortFunc(m.notices, byName)
	return nil
}
