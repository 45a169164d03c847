package config

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// writeNested writes the keys as the sections of a YAML file. value gives a key's lines: comments first, its value last. mark
// stands before each line that sets a key.
func writeNested(w io.Writer, value func(*Key) []string, mark string) error {
	var open []string
	for i := range keys {
		k := &keys[i]
		words := strings.Split(k.Name, ".")
		sections := words[:len(words)-1]
		same := 0
		for same < len(open) && same < len(sections) && open[same] == sections[same] {
			same++
		}
		if same == 0 && i > 0 && (len(open) > 0 || mark != "") {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		for d := same; d < len(sections); d++ {
			if _, err := fmt.Fprintf(w, "%s%s:\n", strings.Repeat("  ", d), sections[d]); err != nil {
				return err
			}
		}
		open = sections
		indent := strings.Repeat("  ", len(sections))
		lines := value(k)
		for _, comment := range lines[:len(lines)-1] {
			if _, err := fmt.Fprintf(w, "%s# %s\n", indent, comment); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "%s%s%s: %s\n", indent, mark, words[len(words)-1], lines[len(lines)-1]); err != nil {
			return err
		}
	}
	return nil
}

// quote writes a scalar that YAML reads as the same text.
func quote(s string) string {
	if s == "" {
		return `""`
	}
	plain := strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("./_-:~", r)
	}) < 0
	if plain && !strings.ContainsRune("-.:", rune(s[0])) && !strings.HasSuffix(s, ":") && !slices.Contains([]string{"~", "null", "Null", "NULL"}, s) {
		return s
	}
	return strconv.Quote(s)
}

// WriteExample writes a file with every key, each at its default and commented out.
func WriteExample(w io.Writer) error {
	fmt.Fprint(w, `# whylate.yaml: every key at its default. Take away the # before a key to set it; docs/config.md has more.
# Written by 'go test ./config -update'.
#
# A flag goes before an environment variable, that before this file, and this before the default.
# 'whylate config check' says what is wrong with it. No secret belongs in here, only the path of its file.

`)
	return writeNested(w, func(k *Key) []string {
		return append(wrap(strings.ReplaceAll(k.Doc, "`", "")+k.choices(), 110), quote(k.Default))
	}, "#")
}

func (k *Key) choices() string {
	switch {
	case len(k.OneOf) > 0:
		return " One of " + strings.Join(k.OneOf, ", ") + "."
	case k.Least != "" && k.Most != "":
		return fmt.Sprintf(" From %s to %s.", k.Least, k.Most)
	case k.Least != "":
		return fmt.Sprintf(" At least %s.", k.Least)
	}
	return ""
}

func wrap(s string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return append(lines, line)
}

// kinds in the order of the reference page.
var kinds = []kind{address, target, receiver, path, secretPath, duration, retention, size, count, boolean, word, words, jobs, aliases, text}

// WriteReference writes docs/config.md.
func WriteReference(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# Configuration

<!-- Written by 'go test ./config -update' from config/keys.go; a test fails when it is stale. -->

` + "`whylate serve` and `whylate agent` read one file, `whylate.yaml`: the one that `--config` names, else `$" + FileVariable + "`, else `" + DefaultFile + "` if it is there. " +
		"Nothing has to be set. [`deploy/whylate.example.yaml`](../deploy/whylate.example.yaml) has every key at its default.\n\n" +
		"**One precedence**: flag, then environment variable, then file, then default. `whylate config show KEY` says which one a value came from and what it hides.\n\n" +
		"`whylate config check --config FILE` says everything that is wrong, each with line, column, what may be written, and the key that was probably meant; it also looks at the " +
		"files, directories, permissions and the disk. A key that does not exist, stands twice or has no value is an error, and so is a YAML anchor, alias or tag.\n\n" +
		"**No secret stands in the file**, only the paths of files that hold one. A value that does not look like a path is refused there, and is not printed.\n\n" +
		"An empty environment variable counts as not set. Relative paths are below the directory of the file, those of variables and flags below the current one; `~/` is `$HOME`.\n\n")

	b.WriteString("| type | what may be written |\n|---|---|\n")
	for _, k := range kinds {
		if k.name == text.name || k.name == boolean.name {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.allowed)
	}
	b.WriteString("\nSizes: `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024, `kB`, `MB`, `GB`, `TB` of 1000.\n")

	section := "-"
	for i := range keys {
		k := &keys[i]
		top, _, nested := strings.Cut(k.Name, ".")
		if !nested {
			top = ""
		}
		if top != section {
			section = top
			title := "`" + top + "`"
			if top == "" {
				title = "`" + k.Name + "`"
			}
			fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | environment · flag | meaning |\n|---|---|---|---|---|\n", title)
			section = top
			if top == "" {
				section = k.Name
			}
		}
		def := "none"
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		var flags []string
		for _, r := range []Role{Server, Agents} {
			if k.For&r == 0 {
				continue
			}
			f := "`--" + k.Flag(r) + "`"
			if len(flags) == 0 || flags[0] != f {
				flags = append(flags, f)
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` · %s | %s%s |\n", k.Name, k.kind.name, def, k.Env(), strings.Join(flags, ", "), strings.ReplaceAll(k.Doc, "|", `\|`), k.choices())
	}
	b.WriteString("\nFlags of `agent` keys are those of `whylate agent`, which also takes `rings.dir` and `log`; all others are those of `whylate serve`.\n")
	_, err := io.WriteString(w, b.String())
	return err
}
