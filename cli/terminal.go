package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether w is a terminal that wants colours.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

func (e *env) paint(code, s string) string {
	if !e.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (e *env) bold(s string) string { return e.paint("1", s) }
func (e *env) dim(s string) string  { return e.paint("2", s) }
func (e *env) red(s string) string  { return e.paint("31", s) }

// table is an aligned table. Cells must not carry colour codes: they would count as width.
func (e *env) table(head ...string) *table {
	t := &table{w: tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

type table struct{ w *tabwriter.Writer }

func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = plain(c)
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), " \t"))
}

func (t *table) end() { t.w.Flush() }

// plain makes text from outside safe to print: no control characters reach a terminal, no tab breaks a table.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '�'
		}
		return r
	}, s)
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// wrap breaks text into lines of at most width characters, each after indent.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	line := 0
	for _, word := range strings.Fields(plain(text)) {
		n := len([]rune(word))
		switch {
		case line == 0:
			b.WriteString(indent)
		case line+1+n > width:
			b.WriteString("\n" + indent)
			line = 0
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += n
	}
	return b.String()
}

// progress shows on a terminal how far a long read is; elsewhere it is silent.
type progress struct {
	w    io.Writer
	what string
	last time.Time
	on   bool
	said bool
}

func (e *env) progress(what string) *progress {
	return &progress{w: e.err, what: what, on: isTerminal(e.err), last: time.Now()}
}

func (p *progress) update(read, total int64) {
	if !p.on || time.Since(p.last) < 200*time.Millisecond {
		return
	}
	p.last, p.said = time.Now(), true
	fmt.Fprintf(p.w, "\r%s: %d %%", p.what, 100*read/max(total, 1))
}

func (p *progress) end() {
	if p.said {
		fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", len(p.what)+10))
	}
}
