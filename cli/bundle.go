package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
)

func (e *env) bundle() *cobra.Command {
	root := &cobra.Command{
		Use:   "bundle",
		Short: "Make run bundles of what an incident leaves behind, list and verify them",
		Long: `A run bundle (docs/formats/bundle.md) holds captures, scrapes, traces, logs and changes of one stretch of time, as a directory or a zip. 'whylate
look', 'whylate import' and --from of the other commands read it. It carries no prompts and no answers as long as what is put in has none.`,
		Args: args(0, 0, "a command: make, ls or verify"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(e.bundleMake(), e.bundleList(), e.bundleVerify())
	return root
}

func (e *env) bundleMake() *cobra.Command {
	in := lookFlags{}
	m := making{taken: map[string]bool{}}
	cmd := &cobra.Command{
		Use:   "make OUT FILE|DIR|URL...",
		Short: "Put files, pages of addresses and a server's changes into a bundle",
		Long: `Make a bundle, OUT: a zip if it ends in .zip, else a directory, which must not be there. Captures, saved scrapes, traces, logs and changes are
put where they belong, by what they hold; an address that speaks metrics is read for --for. With --changes the server's changes of the bundle's time
are put in too.`,
		Example: `  whylate bundle make incident.zip capture.wlc engine.log http://vllm-0:8000/metrics
  whylate bundle make run/ scrapes/ --changes --since 2h`,
		Args: args(2, 10_000, "what to make, and what of"),
		RunE: func(cmd *cobra.Command, given []string) error {
			m.now = time.Now()
			srv := serverFlags{address: in.server, tokenFile: os.Getenv("WHYLATE_TOKEN_FILE")}
			return m.run(cmd.Context(), e, given[0], given[1:], srv, in)
		},
	}
	cmd.Flags().BoolVar(&m.changes, "changes", false, "put in the changes that the server knows")
	cmd.Flags().StringVar(&m.since, "since", "24h", "changes of the time since then: 24h, 14:05 (local), or RFC 3339")
	in.flags(cmd)
	cmd.Flags().Lookup("server").Usage = "server to ask for changes ($WHYLATE_SERVER); default " + defaultServer
	return cmd
}

// making is one bundle in the making.
type making struct {
	changes bool
	since   string
	now     time.Time

	parts   []bundle.Part
	taken   map[string]bool // paths
	told    []ledger.Change
	targets []string
	span    bundle.Span
}

func (m *making) run(ctx context.Context, e *env, out string, given []string, srv serverFlags, in lookFlags) error {
	inputs, err := e.inputs(ctx, given, in)
	if err != nil {
		return err
	}
	for _, i := range inputs {
		if err := m.take(i); err != nil {
			fmt.Fprintf(e.err, "whylate: left out: %s: %v\n", plain(i.Name), err)
		}
	}
	if m.changes {
		if err := m.ask(ctx, srv); err != nil {
			return err
		}
	}
	if len(m.told) > 0 {
		var b bytes.Buffer
		if err := bundle.WriteChanges(&b, m.told); err != nil {
			return err
		}
		m.parts = append(m.parts, bundle.Text(bundle.ChangesName, b.Bytes()))
	}
	if len(m.parts) == 0 {
		return fmt.Errorf("%w that belongs into a bundle", errNoSource)
	}
	if err := m.write(out); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "%s: %d files. 'whylate look %s' reads it.\n", plain(out), len(m.parts)+1, plain(out))
	return nil
}

// take puts an input where it belongs.
func (m *making) take(in look.Input) error {
	if bundle.IsTruth(in.Name) {
		return errors.New("a truth does not go into a bundle that is made of files")
	}
	if in.Refused != "" || in.Open == nil {
		return errors.New(cmp.Or(in.Refused, "it is the manifest of another bundle"))
	}
	f, err := in.Open()
	if err != nil {
		return err
	}
	head := make([]byte, 64<<10)
	n, err := io.ReadFull(f, head)
	f.Close()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	head = head[:n]
	base := path.Base(filepath.ToSlash(in.Name))
	switch kind := bundle.Sniff(head); {
	case kind == bundle.Capture:
		m.put(m.free(strings.TrimSuffix(base, ".wlc")+".wlc"), in)
	case kind == bundle.Changes:
		return m.merge(in)
	case kind == bundle.Traces:
		m.put(m.free("otlp/"+strings.TrimSuffix(base, ".jsonl")+".jsonl"), in)
	case kind != bundle.Other:
		return fmt.Errorf("%s does not belong into a bundle", kind)
	case look.IsMetrics(head):
		at := cmp.Or(in.At/1e6, in.Order, in.Modified.UnixMilli())
		if in.At == 0 && in.Order < 1e11 && !in.Modified.IsZero() { // t0, t1: an order and no time
			at = in.Modified.UnixMilli()
		}
		m.span.From, m.span.To = earliest(m.span.From, at*1e6), max(m.span.To, at*1e6)
		if !slices.Contains(m.targets, in.Target) {
			m.targets = append(m.targets, in.Target)
		}
		m.put(m.freeScrape(in.Target, at), in)
	default:
		m.put(m.free("log/"+base), in)
	}
	return nil
}

func earliest(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func (m *making) put(path string, in look.Input) {
	m.taken[path] = true
	m.parts = append(m.parts, bundle.Part{Path: path, Open: in.Open})
}

// free is a path that is not taken yet.
func (m *making) free(want string) string {
	name, n := want, 1
	for m.taken[name] {
		n++
		ext := path.Ext(want)
		name = fmt.Sprintf("%s-%d%s", strings.TrimSuffix(want, ext), n, ext)
	}
	return name
}

// freeScrape is the path of a scrape: two of one millisecond are one after the other.
func (m *making) freeScrape(target string, ms int64) string {
	for m.taken[bundle.ScrapePath(target, ms)] {
		ms++
	}
	return bundle.ScrapePath(target, ms)
}

func (m *making) merge(in look.Input) error {
	f, err := in.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	changes, problems, err := bundle.ReadChanges(f)
	m.told = append(m.told, changes...)
	if len(problems) > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines are no changes; the first: %s", len(problems), problems[0]))
	}
	return err
}

// ask takes the server's changes.
func (m *making) ask(ctx context.Context, srv serverFlags) error {
	from, err := sinceOf(m.since, m.now)
	if err != nil {
		return err
	}
	c, err := srv.client()
	if err != nil {
		return err
	}
	l, err := c.Changes(ctx, api.ChangesQuery{From: from})
	if err != nil {
		return err
	}
	for _, change := range slices.Backward(l.Changes) {
		m.told = append(m.told, change)
	}
	return nil
}

// write writes the bundle: a zip gets its name when it is whole.
func (m *making) write(out string) (err error) {
	manifest := bundle.Manifest{Producer: named(), Span: m.span}
	for _, t := range m.targets {
		manifest.Engines = append(manifest.Engines, bundle.Engine{ID: t})
	}
	if !strings.HasSuffix(out, ".zip") {
		return bundle.WriteDir(out, manifest, m.parts)
	}
	if _, err := os.Lstat(out); err == nil {
		return fmt.Errorf("%s is there already: remove it, or give another name", out)
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".bundle-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(bundle.WriteZip(f, manifest, m.parts), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}

// listed is a bundle as 'bundle ls' and 'bundle verify' show it.
type listed struct {
	Manifest *bundle.Manifest `json:"manifest,omitempty"`
	Problems []string         `json:"problems,omitempty"`
	Members  []listedMember   `json:"members"`
	Refused  []bundle.Refusal `json:"refused"`
}

type listedMember struct {
	Path  string      `json:"path"`
	Kind  bundle.Kind `json:"kind"`
	Bytes int64       `json:"bytes"`
}

func (e *env) bundleList() *cobra.Command {
	out := output{}
	cmd := &cobra.Command{
		Use: "ls BUNDLE", Short: "List what is in a bundle, and what of it is refused", Example: "  whylate bundle ls run.zip", Args: args(1, 1, "one bundle"),
		RunE: func(cmd *cobra.Command, given []string) error {
			l, err := list(given[0], false)
			if err != nil {
				return err
			}
			return out.print(e, l, func() { e.printListed(l) })
		},
	}
	out.flags(cmd)
	return cmd
}

func (e *env) bundleVerify() *cobra.Command {
	out := output{}
	cmd := &cobra.Command{
		Use: "verify BUNDLE", Short: "Read a bundle to its end", Long: "Read every member to its end, held against the zip's checksums, each line of changes among them. It fails if anything is refused or damaged.",
		Example: "  whylate bundle verify run.zip", Args: args(1, 1, "one bundle"),
		RunE: func(cmd *cobra.Command, given []string) error {
			l, err := list(given[0], true)
			if err != nil {
				return err
			}
			if err := out.print(e, l, func() {
				e.printListed(l)
				if l.Manifest != nil && len(l.Refused)+len(l.Problems) == 0 {
					fmt.Fprintln(e.out, "All of it was read to its end, and nothing is damaged.")
				}
			}); err != nil {
				return err
			}
			switch {
			case l.Manifest == nil:
				return fmt.Errorf("%s has no manifest: it is a folder, no bundle", plain(given[0]))
			case len(l.Refused)+len(l.Problems) > 0:
				return fmt.Errorf("%s: %d of its files are refused or damaged, %d fields of its manifest; the rest can be read", plain(given[0]), len(l.Refused), len(l.Problems))
			}
			return nil
		},
	}
	out.flags(cmd)
	return cmd
}

// list lists a bundle; whole says that it is read to its end.
func list(path string, whole bool) (*listed, error) {
	b, err := bundle.Open(path, bundle.Limits{})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	l := &listed{Manifest: b.Manifest, Members: []listedMember{}, Refused: append([]bundle.Refusal{}, b.Refused...)}
	if b.Manifest != nil {
		l.Problems = b.Manifest.Problems
	}
	for _, m := range b.Members {
		kind, err := b.Kind(m)
		if err == nil && whole && kind != bundle.Truth {
			err = readWhole(b, m, kind)
		}
		if err != nil {
			l.Refused = append(l.Refused, bundle.Refusal{Path: m.Path, Why: err.Error()})
			continue
		}
		l.Members = append(l.Members, listedMember{m.Path, kind, m.Size})
	}
	return l, nil
}

func readWhole(b *bundle.Bundle, m bundle.Member, kind bundle.Kind) error {
	f, err := b.Open(m)
	if err != nil {
		return err
	}
	defer f.Close()
	if kind == bundle.Changes {
		_, problems, err := bundle.ReadChanges(f)
		if err == nil && len(problems) > 0 {
			err = errors.New(problems[0])
		}
		return err
	}
	_, err = io.Copy(io.Discard, f)
	return err
}

func (e *env) printListed(l *listed) {
	if m := l.Manifest; m != nil {
		engines := fmt.Sprintf("%d engines", len(m.Engines))
		if len(m.Engines) == 1 {
			engines = "1 engine"
		}
		fmt.Fprintf(e.out, "Format %d, made by %s, %s.\n", m.FormatVersion, plain(cmp.Or(m.Producer, "nobody who says so")), engines)
	} else {
		fmt.Fprintln(e.out, "No manifest: a folder.")
	}
	for _, p := range l.Problems {
		fmt.Fprintf(e.out, "manifest: %s\n", plain(p))
	}
	t := e.table("FILE", "KIND", "BYTES")
	for _, m := range l.Members {
		kind := string(m.Kind)
		if in, _, ok := strings.Cut(m.Path, "/"); ok && m.Kind == bundle.Other && (in == "scrape" || in == "log") {
			kind = in // where it lies says what it is to be; 'look' says what it is
		}
		t.row(exposition.Printable(m.Path, 100), kind, fmt.Sprint(m.Bytes))
	}
	t.end()
	for _, r := range l.Refused {
		fmt.Fprintf(e.out, "refused: %s: %s\n", plain(r.Path), plain(r.Why))
	}
}
