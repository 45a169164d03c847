package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/ledger"
)

func (e *env) importCommand() *cobra.Command {
	srv, out := serverFlags{}, output{}
	cmd := &cobra.Command{
		Use:   "import FILE|DIR|BUNDLE…",
		Short: "Put captures and run bundles into a running server",
		Long: `Send captures (.wlc), or what lies in a folder or run bundle (docs/formats/bundle.md), to a server, which keeps it like what it recorded
itself: captures, and changes as if they had been told. What it has already is counted and changes nothing, so an import may be repeated after a
failure. Each file that is not taken is listed with the reason; 'whylate look' reads a bundle whole.`,
		Example: `  whylate import crash.wlc
  whylate import run-bundle.zip --server https://whylate.example --token-file key`,
		Args: args(1, 1000, "at least one file"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			c, err := srv.client()
			if err != nil {
				return err
			}
			answer := imported{Captures: []*api.ImportResult{}, NotTaken: []bundle.Refusal{}}
			i := importer{e: e, to: c, answer: &answer}
			for _, p := range paths {
				if err := i.path(cmd.Context(), p); err != nil {
					return fmt.Errorf("import %s: %w", p, err)
				}
			}
			return out.print(e, answer, func() { e.printImported(&answer) })
		},
	}
	srv.flags(cmd)
	out.flags(cmd)
	return cmd
}

// imported is what became of an import.
type imported struct {
	Captures []*api.ImportResult `json:"captures"`
	Changes  int                 `json:"changes"`   // told; those that were known are among them
	NotTaken []bundle.Refusal    `json:"not_taken"` // files, and why
}

// importer sends files to a server.
type importer struct {
	e  *env
	to interface {
		api.Importer
		api.Teller
	}
	answer *imported
}

func (i *importer) path(ctx context.Context, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !bundle.Is(path) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		return i.capture(ctx, filepath.Base(path), path, info.Size(), f)
	}
	b, err := bundle.Open(path, bundle.Limits{})
	if err != nil {
		return err
	}
	defer b.Close()
	before := len(i.answer.Captures) + i.answer.Changes
	for _, m := range b.Members {
		if err := i.member(ctx, b, m); err != nil {
			return fmt.Errorf("%s: %w", m.Path, err)
		}
	}
	i.answer.NotTaken = append(i.answer.NotTaken, b.Refused...)
	if len(i.answer.Captures)+i.answer.Changes == before {
		return fmt.Errorf("no capture (*.wlc) and no change in it")
	}
	return nil
}

// member sends one of a bundle. What cannot be read of the bundle costs that member; what the server refuses ends the import.
func (i *importer) member(ctx context.Context, b *bundle.Bundle, m bundle.Member) error {
	kind, err := b.Kind(m)
	if err == nil && kind != bundle.Capture && kind != bundle.Changes {
		i.not(m.Path, whyNot(m, kind))
		return nil
	}
	var f io.ReadCloser
	if err == nil {
		f, err = b.Open(m)
	}
	if err != nil {
		i.not(m.Path, err.Error())
		return nil
	}
	if kind == bundle.Capture {
		return i.capture(ctx, m.Path, filepath.Join(b.Name, m.Path), m.Size, f)
	}
	defer f.Close()
	changes, problems, err := bundle.ReadChanges(f)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, p := range problems {
		i.not(m.Path, p)
	}
	return i.tell(ctx, m.Path, changes)
}

func whyNot(m bundle.Member, kind bundle.Kind) string {
	_, _, scrape := bundle.ScrapeOf(m.Path)
	switch {
	case kind == bundle.Truth:
		return "the truth is for whoever marks the answer"
	case kind == bundle.Ring:
		return "a ring is read where it lies: 'whylate capture' makes a capture of it"
	case scrape:
		return "a saved scrape: an import takes captures and changes; 'whylate look' reads it"
	}
	return "no capture and no change: 'whylate look' reads what else there is"
}

func (i *importer) not(path, why string) {
	i.answer.NotTaken = append(i.answer.NotTaken, bundle.Refusal{Path: path, Why: why})
}

func (i *importer) capture(ctx context.Context, name, shown string, size int64, f io.ReadCloser) error {
	defer f.Close()
	p := i.e.progress("importing " + shown)
	defer p.end()
	r, err := i.to.Import(ctx, api.ImportQuery{Name: name}, &watched{f, 0, func(n int64) { p.update(n, size) }})
	if err != nil {
		return err
	}
	i.answer.Captures = append(i.answer.Captures, r)
	return nil
}

// tell tells the server of changes, each under an id that is its own: told again, it is the same.
func (i *importer) tell(ctx context.Context, path string, changes []ledger.Change) error {
	for _, c := range changes {
		c.ID = cmp.Or(c.ID, c.Key())
		_, err := i.to.Tell(ctx, c)
		var unsound *api.InvalidArgument
		switch {
		case errors.As(err, &unsound):
			i.not(path, fmt.Sprintf("%s %s: %v", c.Kind, c.Subject, err))
		case err != nil:
			return err
		default:
			i.answer.Changes++
		}
	}
	return nil
}

func (e *env) printImported(a *imported) {
	if len(a.Captures) > 0 {
		t := e.table("FILE", "RECORDS", "NEW", "THERE ALREADY", "REFUSED", "GAPS", "BYTES")
		for _, r := range a.Captures {
			t.row(r.Name, fmt.Sprint(r.Frames), fmt.Sprint(r.New), fmt.Sprint(r.Duplicate), fmt.Sprint(r.Refused), fmt.Sprint(r.Gaps), fmt.Sprint(r.Bytes))
		}
		t.end()
	}
	if a.Changes > 0 {
		fmt.Fprintf(e.out, "%d changes told.\n", a.Changes)
	}
	for n, r := range a.NotTaken {
		if n == 20 {
			fmt.Fprintf(e.out, "… and %d more files not taken; -o json has them all.\n", len(a.NotTaken)-n)
			break
		}
		fmt.Fprintf(e.out, "not taken: %s: %s\n", plain(r.Path), plain(r.Why))
	}
}

// watched tells how far a file has been read.
type watched struct {
	in   io.Reader
	n    int64
	tell func(int64)
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.in.Read(p)
	w.n += int64(n)
	w.tell(w.n)
	return n, err
}
