package main

import (
	"regexp"
	"strings"
)

// allowed are the licences that we may ship under Apache-2.0 without asking anybody: they want their text beside the binary,
// and nothing of ours.
var allowed = map[string]bool{"Apache-2.0": true, "MIT": true, "BSD-2-Clause": true, "BSD-3-Clause": true, "ISC": true, "0BSD": true, "Unlicense": true, "CC0-1.0": true, "Zlib": true}

// phrases tell licences by words that no other has; all of a line must be in the text. They are as [normal] leaves them.
var phrases = []struct {
	kind string
	all  []string
	not  string
}{
	{kind: "Apache-2.0", all: []string{"apache license version 2.0 january 2004", "terms and conditions for use"}},
	{kind: "Apache-2.0", all: []string{"licensed under the apache license version 2.0"}},
	{kind: "MIT", all: []string{"permission is hereby granted free of charge to any person obtaining a copy", "the software is provided as is"}},
	{kind: "BSD-3-Clause", all: []string{"redistribution and use in source and binary forms", "neither the name"}},
	{kind: "BSD-3-Clause", all: []string{"redistribution and use in source and binary forms", "may not be used to endorse"}},
	{kind: "BSD-2-Clause", all: []string{"redistribution and use in source and binary forms", "this software is provided"}, not: "endorse"},
	{kind: "ISC", all: []string{"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted", "provided that the above copyright notice"}},
	{kind: "0BSD", all: []string{"permission to use copy modify and or distribute this software for any purpose with or without fee is hereby granted"}, not: "provided that the above copyright notice"},
	{kind: "Unlicense", all: []string{"this is free and unencumbered software released into the public domain"}},
	{kind: "CC0-1.0", all: []string{"creative commons", "cc0 1.0 universal"}},
	{kind: "Zlib", all: []string{"altered source versions must be plainly marked as such"}},
	{kind: "MPL", all: []string{"mozilla public license"}},
	{kind: "GPL", all: []string{"gnu general public license"}},
	{kind: "LGPL", all: []string{"gnu lesser general public license"}},
	{kind: "AGPL", all: []string{"gnu affero general public license"}},
	{kind: "EPL", all: []string{"eclipse public license"}},
	{kind: "CDDL", all: []string{"common development and distribution license"}},
	{kind: "SSPL", all: []string{"server side public license"}},
	{kind: "BUSL", all: []string{"business source license"}},
}

// kindsOf names the licences that a text holds, in the order of phrases; it may hold several, for several parts of a module.
func kindsOf(text string) []string {
	t := normal(text)
	var kinds []string
	for _, p := range phrases {
		ok := p.not == "" || !strings.Contains(t, p.not)
		for _, s := range p.all {
			ok = ok && strings.Contains(t, s)
		}
		if ok && (len(kinds) == 0 || kinds[len(kinds)-1] != p.kind) {
			kinds = append(kinds, p.kind)
		}
	}
	return kinds
}

var between = regexp.MustCompile(`[^a-z0-9.]+`)

// normal is the text's words: lower case, one space between, without punctuation but the points of numbers.
func normal(text string) string {
	return strings.ReplaceAll(between.ReplaceAllString(strings.ToLower(text), " "), ". ", " ")
}
