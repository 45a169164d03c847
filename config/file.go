package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFile bounds the file: no honest one comes near, and the reader keeps all of it.
const maxFile = 1 << 20

// given is one value as it was written somewhere.
type given struct {
	key    *Key
	text   string
	source Source
}

// parseFile reads the file's text. It goes through the nodes itself, so that every complaint has its line, and none ends the reading.
func parseFile(name string, data []byte) ([]given, Problems) {
	f := file{name: name}
	at := Source{Origin: FromFile, Name: name}
	if len(data) > maxFile {
		return nil, Problems{{Source: at, Text: fmt.Sprintf("is larger than %s", FormatSize(maxFile)), Remedy: "it is not a whylate.yaml"}}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := decode(decoder, &doc); {
	case errors.Is(err, io.EOF):
		return nil, nil // empty, or comments only
	case err != nil:
		return nil, Problems{syntax(at, err)}
	}
	var more yaml.Node
	switch err := decode(decoder, &more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		return nil, Problems{syntax(at, err)}
	default:
		f.complain(&more, "", "", "is a second document", "", "remove the line ---, and what follows it")
	}
	if len(doc.Content) == 1 {
		f.section(doc.Content[0], "")
	}
	return f.values, f.problems
}

// decode is Decode; what the YAML library itself breaks on is an error like any other.
func decode(d *yaml.Decoder, into *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("cannot be read as YAML: %v", r)
		}
	}()
	return d.Decode(into)
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func syntax(at Source, err error) Problem {
	text := err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		if at.Line, _ = strconv.Atoi(m[1]); at.Line > 0 {
			at.Column = 1
		}
	}
	return Problem{Source: at, Text: "is not YAML: " + text, Remedy: "look for a tab, a missing space after a colon, or a missing quote on this line or the one before"}
}

type file struct {
	name     string
	values   []given
	problems Problems
}

func (f *file) complain(n *yaml.Node, key, value, text, allowed, remedy string) {
	f.problems = append(f.problems, Problem{Source: f.at(n), Key: key, Value: value, Text: text, Allowed: allowed, Remedy: remedy})
}

func (f *file) at(n *yaml.Node) Source {
	return Source{Origin: FromFile, Name: f.name, Line: max(n.Line, 1), Column: max(n.Column, 1)}
}

// section reads a mapping; prefix is "" at the top, else the section's name with a dot.
func (f *file) section(n *yaml.Node, prefix string) {
	name := strings.TrimSuffix(prefix, ".")
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.complain(n, name, "", "is an anchor or an alias", "", "write the value out")
		return
	case isNull(n):
		return // a section whose keys are all commented out
	case n.Kind != yaml.MappingNode:
		what := "the file"
		if name != "" {
			what = name
		}
		f.complain(n, name, "", what+" holds keys, not a single value or a list", strings.Join(children(prefix), ", "), "")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || k.Anchor != "" || k.Tag == "!!merge" {
			f.complain(k, name, "", "has a key that is not a plain word", strings.Join(children(prefix), ", "), "")
			continue
		}
		full := prefix + k.Value
		if line, ok := seen[k.Value]; ok {
			f.complain(k, shorten(full), "", fmt.Sprintf("stands twice, first on line %d", line), "", "remove one")
			continue
		}
		seen[k.Value] = k.Line
		switch key := find(full); {
		case strings.Contains(k.Value, "."):
			f.unknown(k, prefix)
		case key != nil:
			f.value(v, key)
		case isSection(full):
			f.section(v, full+".")
		default:
			f.unknown(k, prefix)
		}
	}
}

// unknown names what was probably meant. It prints no value: it may be a secret.
func (f *file) unknown(k *yaml.Node, prefix string) {
	p := Problem{Source: f.at(k), Key: shorten(prefix + k.Value), Text: "no such key", Allowed: strings.Join(children(prefix), ", ")}
	if prefix != "" {
		p.Allowed = "in " + strings.TrimSuffix(prefix, ".") + " " + p.Allowed
	}
	switch {
	case printable(k.Value) != nil:
		p.Key, p.Text = strings.TrimSuffix(prefix, "."), "has a key that is not a plain word"
	case strings.Contains(k.Value, ".") && (find(prefix+k.Value) != nil || isSection(prefix+k.Value)):
		p.Allowed, p.Remedy = "", "nest it: a line "+strings.ReplaceAll(k.Value, ".", ":, below it indented ")+":"
	default:
		if p.Nearest = Nearest(k.Value, children(prefix)); p.Nearest != "" {
			p.Nearest = prefix + p.Nearest
		} else {
			p.Nearest = elsewhere(prefix + k.Value)
		}
	}
	f.problems = append(f.problems, p)
}

// elsewhere looks for a key that stands in another section: by its full name, else by its last word where only one key has it.
func elsewhere(full string) string {
	var names, ends []string
	for i := range keys {
		names = append(names, keys[i].Name)
		ends = append(ends, last(keys[i].Name))
	}
	if n := Nearest(full, names); n != "" {
		return n
	}
	end := Nearest(last(full), ends)
	found := ""
	for i, e := range ends {
		if end == "" || e != end {
			continue
		}
		if found != "" {
			return ""
		}
		found = names[i]
	}
	return found
}

func last(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

func (f *file) value(n *yaml.Node, key *Key) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		f.complain(n, key.Name, "", "is an anchor or an alias", "", "write the value out")
	case n.Kind == yaml.SequenceNode && key.kind.list:
		f.values = append(f.values, given{key, oneLine(n), f.at(n)})
	case n.Kind != yaml.ScalarNode:
		f.complain(n, key.Name, "", "holds a list or keys", key.allowed(), "")
	case n.Style&yaml.TaggedStyle != 0:
		f.complain(n, key.Name, "", "has a YAML tag", key.allowed(), "remove the tag "+shorten(n.Tag))
	case isNull(n):
		f.complain(n, key.Name, "", "has no value", key.allowed(), "remove the line to have the default, or write \"\" for none")
	default:
		f.values = append(f.values, given{key, n.Value, f.at(n)})
	}
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// children are the words that may stand in a section, in the order of the keys.
func children(prefix string) []string {
	var names []string
	for i := range keys {
		rest, ok := strings.CutPrefix(keys[i].Name, prefix)
		if !ok {
			continue
		}
		name, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func isSection(name string) bool { return len(children(name+".")) > 0 }
