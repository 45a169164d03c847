package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// All that any package of this module is linked from may be shipped, and the libraries that are required for what is being
// built may be too.
func TestRealModules(t *testing.T) {
	packages, err := list(goTool, []string{"github.com/whylate/whylate/..."})
	if err != nil {
		t.Fatal(err)
	}
	modules, err := collect(packages)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{}
	for _, m := range modules {
		kinds[m.path] = strings.Join(m.kinds, ", ")
	}
	for path, want := range map[string]string{standard: "BSD-3-Clause", "github.com/spf13/cobra": "Apache-2.0", "golang.org/x/sys": "BSD-3-Clause", "go.yaml.in/yaml/v3": "Apache-2.0, MIT"} {
		if kinds[path] != want {
			t.Errorf("%s is %q, want %q", path, kinds[path], want)
		}
	}
	var text, notice bytes.Buffer
	if err := writeLicences(&text, modules); err != nil {
		t.Fatal(err)
	}
	if err := writeNotice(&notice, []byte("whylate\n"), modules); err != nil {
		t.Fatal(err)
	}
	for _, m := range modules {
		if !strings.Contains(text.String(), m.path+" "+m.version+" · ") {
			t.Errorf("the licence of %s is not in the text", m.path)
		}
	}
	if strings.Contains(text.String(), "/pkg/mod/") {
		t.Error("the text names directories of this machine")
	}
	if !strings.HasPrefix(notice.String(), "whylate\n") || !strings.Contains(notice.String(), "go.yaml.in/yaml/v3") {
		t.Errorf("notice:\n%s", &notice)
	}
}

// module on disk, with its files; a name with a slash is in a package below.
func onDisk(t *testing.T, files map[string]string) []pkg {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []pkg{{path: "m", dir: root, module: "m", version: "v1", root: root}, {path: "m/a/b", dir: filepath.Join(root, "a", "b"), module: "m", version: "v1", root: root}}
}

const mit = `Permission is hereby granted, free of charge, to any
person obtaining a copy … THE SOFTWARE IS PROVIDED "AS IS", …`

func TestCollect(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // of the error; else kinds
	}{
		"one":           {map[string]string{"LICENSE": mit, "a/b/x.go": ""}, "MIT"},
		"licence below": {map[string]string{"LICENCE.md": mit, "a/b/LICENSE-APACHE": "Licensed under the Apache License, Version 2.0"}, "Apache-2.0, MIT"},
		"none":          {map[string]string{"README": mit, "license.go": mit, "a/b/x.go": ""}, "m v1 has no licence file: look for its terms, or do without it"},
		"unknown":       {map[string]string{"LICENSE": "Do no evil.", "a/b/x.go": ""}, "m v1: LICENSE is no licence that is known: read it, and add its words to internal/licences/kind.go"},
		"not allowed":   {map[string]string{"COPYING": "GNU GENERAL PUBLIC LICENSE Version 3", "a/b/x.go": ""}, "m v1: COPYING is GPL, which may not be shipped"},
		"both":          {map[string]string{"LICENSE": mit, "a/COPYING.LESSER": "GNU Lesser General Public License", "a/b/x.go": ""}, "m v1: a/COPYING.LESSER is LGPL, which may not be shipped"},
	} {
		t.Run(name, func(t *testing.T) {
			modules, err := collect(onDisk(t, c.files))
			got := ""
			switch {
			case err != nil:
				got = err.Error()
			case len(modules) == 1:
				got = strings.Join(modules[0].kinds, ", ")
			}
			if got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
	if _, err := collect([]pkg{{path: "m", module: "m", version: "v1"}}); err == nil || !strings.Contains(err.Error(), "is not in the module cache") {
		t.Errorf("%v", err)
	}
}

func TestKinds(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or without modification … THIS SOFTWARE IS PROVIDED BY …"
	for text, want := range map[string][]string{
		mit: {"MIT"},
		bsd: {"BSD-2-Clause"},
		bsd + " Neither the name of X may be used to endorse":                                                                                                                   {"BSD-3-Clause"},
		"Apache License\n  Version 2.0, January 2004\n … TERMS AND CONDITIONS FOR USE, REPRODUCTION":                                                                            {"Apache-2.0"},
		"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee is hereby granted, provided that the above copyright notice and": {"ISC"},
		"Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted.":                                               {"0BSD"},
		"Mozilla Public License Version 2.0": {"MPL"},
		"anything":                           nil,
	} {
		if got := kindsOf(text); !slices.Equal(got, want) {
			t.Errorf("%.40q…: %v, want %v", text, got, want)
		}
	}
}
