package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// writeTable writes one line a module.
func writeTable(w io.Writer, modules []module) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range modules {
		fmt.Fprintf(t, "%s\t%s\t%s\n", m.path, m.version, strings.Join(m.kinds, ", "))
	}
	return t.Flush()
}

const rule = "--------------------------------------------------------------------------------\n"

// writeLicences writes the list of modules, and then every licence in full.
func writeLicences(w io.Writer, modules []module) error {
	var b strings.Builder
	fmt.Fprintf(&b, "whylate is made of its own code, under the Apache License 2.0 (LICENSE), and of these:\n\n")
	if err := writeTable(&b, modules); err != nil {
		return err
	}
	for _, m := range modules {
		for _, f := range m.licences {
			fmt.Fprintf(&b, "\n%s%s %s · %s\n%s\n%s\n", rule, m.path, m.version, f.name, rule, strings.TrimSpace(f.text))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeNotice writes our notice, and below it those that others want to be handed on.
func writeNotice(w io.Writer, ours []byte, modules []module) error {
	var b strings.Builder
	b.Write(ours)
	for _, m := range modules {
		for _, f := range m.notices {
			fmt.Fprintf(&b, "\n%s%s %s · %s\n%s\n%s\n", rule, m.path, m.version, f.name, rule, strings.TrimSpace(f.text))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
