package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
		Long: `Send captures (.wlc) and OTLP traces (JSON, JSON lines or protobuf, plain or gzipped), or what lies in a folder or run bundle
(docs/formats/bundle.md), to a server, which keeps it like what it recorded itself: captures, traces, changes as if they had been told, and series,
of scrapes (scrape/TARGET/UNIX_MS.prom) and of engines' logs (log/*), at their own times.
What it has already changes nothing, so an import may be repeated after a failure. Each file that is not taken is listed with the reason.`,
		Example: `  whylate import crash.wlc
  whylate import traces.otlp.jsonl
  whylate import run-bundle.zip --server https://whylate.example --token-file key`,
		Args: args(1, 1000, "at least one file"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			c, err := srv.client()
			if err != nil {
				return err
			}
			answer := imported{Captures: []*api.ImportResult{}, Series: []api.ImportedSeries{}, NotTaken: []api.ImportRefusal{}}
			i := importer{to: c, series: &seriesSender{to: c}, answer: &answer, watch: e.watched}
			for _, p := range paths {
				if err := i.path(cmd.Context(), p); err != nil {
					return fmt.Errorf("import %s: %w", p, err)
				}
			}
			if err := out.print(e, answer, func() { e.printImported(&answer) }); err != nil {
				return err
			}
			return answer.nothing()
		},
	}
	srv.flags(cmd)
	out.flags(cmd)
	return cmd
}

// imported is what became of an import.
type imported struct {
	Captures []*api.ImportResult  `json:"captures"`
	Series   []api.ImportedSeries `json:"series"`
	Changes  int                  `json:"changes"`   // told; those that were known are among them
	NotTaken []api.ImportRefusal  `json:"not_taken"` // files, and why
}

func (a *imported) not(path, why string) {
	a.NotTaken = append(a.NotTaken, api.ImportRefusal{Path: path, Why: why})
}

// of adds up what became of the scrapes of one target.
func (a *imported) of(s api.ImportedSeries) {
	k := slices.IndexFunc(a.Series, func(o api.ImportedSeries) bool { return o.Kind == s.Kind && o.Target == s.Target })
	if k < 0 {
		a.Series = append(a.Series, s)
		return
	}
	o := &a.Series[k]
	if s.Samples > 0 {
		o.To = max(o.To, s.To)
		if o.From == 0 || s.From < o.From {
			o.From = s.From
		}
	}
	o.Files, o.Samples, o.Guarded, o.Late = o.Files+s.Files, o.Samples+s.Samples, o.Guarded+s.Guarded, o.Late+s.Late
	o.Lines, o.LeftOut, o.Changes, o.Note = o.Lines+s.Lines, o.LeftOut+s.LeftOut, o.Changes+s.Changes, cmp.Or(o.Note, s.Note)
}

// nothing is an error where nothing was taken.
func (a *imported) nothing() error {
	if len(a.Captures) > 0 || a.Changes > 0 || slices.ContainsFunc(a.Series, func(s api.ImportedSeries) bool { return s.Samples > 0 || s.Changes > 0 }) {
		return nil
	}
	if len(a.NotTaken) == 0 {
		return errors.New("nothing was taken: no capture (*.wlc), traces, scrapes, logs or changes are in it")
	}
	return fmt.Errorf("nothing was taken; of %d files the first, %s: %s", len(a.NotTaken), plain(a.NotTaken[0].Path), plain(a.NotTaken[0].Why))
}

// importer takes in files and bundles: at the command line by sending them, at a server by keeping them.
type importer struct {
	to interface {
		api.Importer
		api.Teller
	}
	series seriesTaker
	answer *imported
	watch  func(shown string, size int64, f io.Reader) (watched io.Reader, end func())
}

// seriesTaker takes what series are made of.
type seriesTaker interface {
	// take takes scrapes and logs of a bundle, the scrapes in the order of their times.
	take(context.Context, *bundle.Bundle, []bundle.Member, *imported) error
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
	return i.bundle(ctx, b)
}

// bundle takes in a bundle. What cannot be read of it costs that member; what the server refuses ends the import.
func (i *importer) bundle(ctx context.Context, b *bundle.Bundle) error {
	var series []bundle.Member
	for _, m := range b.Members {
		kind, err := b.Kind(m)
		switch {
		case err != nil:
			i.answer.not(m.Path, err.Error())
		case kind == bundle.Other && isSeries(m):
			series = append(series, m)
		default:
			if err := i.member(ctx, b, m, kind); err != nil {
				return fmt.Errorf("%s: %w", m.Path, err)
			}
		}
	}
	slices.SortStableFunc(series, func(x, y bundle.Member) int {
		_, a, _ := bundle.ScrapeOf(x.Path) // 0 of a log
		_, b, _ := bundle.ScrapeOf(y.Path)
		return cmp.Compare(a, b)
	})
	if err := i.series.take(ctx, b, series, i.answer); err != nil {
		return err
	}
	for _, r := range b.Refused {
		i.answer.not(r.Path, r.Why)
	}
	return nil
}

// isSeries reports whether series may be made of a member.
func isSeries(m bundle.Member) bool {
	_, _, scrape := bundle.ScrapeOf(m.Path)
	return scrape || strings.HasPrefix(m.Path, "log/")
}

func (i *importer) member(ctx context.Context, b *bundle.Bundle, m bundle.Member, kind bundle.Kind) error {
	if kind != bundle.Capture && kind != bundle.Traces && kind != bundle.Changes {
		i.answer.not(m.Path, whyNot(kind))
		return nil
	}
	f, err := b.Open(m)
	if err != nil {
		i.answer.not(m.Path, err.Error())
		return nil
	}
	if kind != bundle.Changes {
		return i.capture(ctx, m.Path, filepath.Join(b.Name, m.Path), m.Size, f)
	}
	defer f.Close()
	changes, problems, err := bundle.ReadChanges(f)
	if err != nil {
		problems = append(problems, err.Error())
	}
	for _, p := range problems {
		i.answer.not(m.Path, p)
	}
	return i.tell(ctx, m.Path, changes)
}

func whyNot(kind bundle.Kind) string {
	switch kind {
	case bundle.Truth:
		return "the truth is for whoever marks the answer"
	case bundle.Ring:
		return "a ring is read where it lies: 'whylate capture' makes a capture of it"
	case bundle.Archive:
		return "a zip inside of the bundle: import it by itself"
	}
	return "neither capture, traces, changes, scrape/TARGET/UNIX_MS.prom nor log/NAME: 'whylate look' reads what else there is"
}

func (i *importer) capture(ctx context.Context, name, shown string, size int64, f io.ReadCloser) error {
	defer f.Close()
	in, end := i.watch(shown, size, f)
	defer end()
	r, err := i.to.Import(ctx, api.ImportQuery{Name: name}, in)
	if err != nil {
		return err
	}
	i.answer.Captures = append(i.answer.Captures, r)
	return nil
}

// watched shows how far a file has been read.
func (e *env) watched(shown string, size int64, f io.Reader) (io.Reader, func()) {
	p := e.progress("importing " + shown)
	return &watched{f, 0, func(n int64) { p.update(n, size) }}, p.end
}

// tell tells the server of changes, each under an id that is its own: told again, it is the same.
func (i *importer) tell(ctx context.Context, path string, changes []ledger.Change) error {
	for _, c := range changes {
		c.ID = cmp.Or(c.ID, c.Key())
		_, err := i.to.Tell(ctx, c)
		var unsound *api.InvalidArgument
		switch {
		case errors.As(err, &unsound):
			i.answer.not(path, fmt.Sprintf("%s %s: %v", c.Kind, c.Subject, err))
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
			t.row(r.Name, fmt.Sprint(r.Frames+r.Spans), fmt.Sprint(r.New), fmt.Sprint(r.Duplicate), fmt.Sprint(r.Refused), fmt.Sprint(r.Gaps), fmt.Sprint(r.Bytes))
		}
		t.end()
	}
	if len(a.Series) > 0 {
		t := e.table("SERIES OF", "FROM", "FILES", "TIME", "SAMPLES", "GUARDED", "LATE", "LEFT OUT")
		for _, r := range a.Series {
			t.row(plain(r.Target), r.Kind, fmt.Sprint(r.Files), spanOf(r), fmt.Sprint(r.Samples), fmt.Sprint(r.Guarded), fmt.Sprint(r.Late), fmt.Sprint(r.LeftOut))
		}
		t.end()
		for _, r := range a.Series {
			if r.Note != "" {
				fmt.Fprintf(e.out, "%s: %s\n", plain(r.Target), plain(r.Note))
			}
		}
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

// spanOf is the time of series.
func spanOf(s api.ImportedSeries) string {
	if s.Samples == 0 {
		return "–"
	}
	at := func(ns int64) string { return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05") }
	return at(s.From) + " to " + at(s.To)
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
