package config

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Explanation says where a value came from.
type Explanation struct {
	Key    string
	Value  string // as it would be written in the file
	Source Source
	Hidden []Hidden // what the same key was also given, the nearest to winning first
}

// Hidden is a value that another one took precedence over.
type Hidden struct {
	Source Source
	Value  string
}

// Explain says which value the key has, where it stands, and what it hides.
func (c *Config) Explain(name string) (Explanation, error) {
	k := find(name)
	if k == nil {
		if n := elsewhere(name); n != "" {
			return Explanation{}, fmt.Errorf("%s: no such key; did you mean %s?", name, n)
		}
		return Explanation{}, fmt.Errorf("%s: no such key; docs/config.md lists them", name)
	}
	e := Explanation{Key: name}
	layers := c.layers[name]
	for i := len(layers) - 1; i >= 0; i-- {
		if i == len(layers)-1 {
			e.Value, e.Source = layers[i].value, layers[i].source
			continue
		}
		e.Hidden = append(e.Hidden, Hidden{layers[i].source, layers[i].value})
	}
	return e, nil
}

// String is one line.
func (e Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s = %s, from %s", e.Key, quote(e.Value), e.Source)
	for i, h := range e.Hidden {
		sep := ", "
		if i == 0 {
			sep = "; hides "
		}
		fmt.Fprintf(&b, "%s%s from %s", sep, quote(h.Value), h.Source)
	}
	return b.String()
}

// Getenv answers for every key's variable with what was settled, and asks next for the others: what reads its settings from the
// environment then has flags, file and defaults too. A size is a number of bytes.
func (c *Config) Getenv(next func(string) string) func(string) string {
	return func(name string) string {
		for i := range keys {
			if k := &keys[i]; k.Env() == name {
				v := get(k.field(c))
				if n, ok := v.(int64); ok {
					return strconv.FormatInt(n, 10)
				}
				return k.kind.format(v)
			}
		}
		return next(name)
	}
}

// Source is where the key's value stands.
func (c *Config) Source(name string) Source {
	e, err := c.Explain(name)
	if err != nil {
		return Source{}
	}
	return e.Source
}

// WriteYAML writes all settings as a file that Load reads as the same ones. A comment says where each came from.
func (c *Config) WriteYAML(w io.Writer) error {
	return writeNested(w, func(k *Key) (lines []string) {
		line := quote(k.kind.format(get(k.field(c))))
		if s := c.Source(k.Name); s.Origin != FromDefault {
			line += " # " + s.String()
		}
		return []string{line}
	}, "")
}
