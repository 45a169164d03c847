package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

func (e *env) importCommand() *cobra.Command {
	srv, out := serverFlags{}, output{}
	cmd := &cobra.Command{
		Use:   "import FILE|DIR…",
		Short: "Put captures and run bundles into a running server",
		Long: `Send captures (.wlc) and OTLP traces (JSON, JSON lines or protobuf, plain or gzipped), or all of them that a directory has, to a server, which
keeps them like what it recorded itself. What it has already is counted and changes nothing, so an import may be repeated after a failure.`,
		Example: `  whylate import crash.wlc
  whylate import traces.otlp.jsonl
  whylate import run-bundle/ --server https://whylate.example --token-file key`,
		Args: args(1, 1000, "at least one file"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			c, err := srv.client()
			if err != nil {
				return err
			}
			var files []string
			for _, p := range paths {
				found := []string{p}
				if info, err := os.Stat(p); err != nil {
					return fmt.Errorf("import: %w", err)
				} else if info.IsDir() {
					if found = importable(p); len(found) == 0 {
						return fmt.Errorf("import %s: no capture (*.wlc) and no traces (otlp/*.jsonl, *.otlp.json, *.otlp.jsonl) in this directory", p)
					}
				}
				files = append(files, found...)
			}
			var results []*api.ImportResult
			for _, path := range files {
				r, err := e.importFile(cmd, c, path)
				if err != nil {
					return fmt.Errorf("import %s: %w", path, err)
				}
				results = append(results, r)
			}
			return out.print(e, results, func() {
				t := e.table("FILE", "RECORDS", "NEW", "THERE ALREADY", "REFUSED", "GAPS", "BYTES")
				for _, r := range results {
					t.row(r.Name, fmt.Sprint(r.Frames+r.Spans), fmt.Sprint(r.New), fmt.Sprint(r.Duplicate), fmt.Sprint(r.Refused), fmt.Sprint(r.Gaps), fmt.Sprint(r.Bytes))
				}
				t.end()
			})
		},
	}
	srv.flags(cmd)
	out.flags(cmd)
	return cmd
}

// importable are the files of a directory that a server takes.
func importable(dir string) (found []string) {
	for _, pattern := range []string{"*.wlc", "*.otlp.json", "*.otlp.jsonl", "otlp/*.jsonl"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are right
		slices.Sort(files)
		found = append(found, files...)
	}
	return found
}

func (e *env) importFile(cmd *cobra.Command, c api.Importer, path string) (*api.ImportResult, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	p := e.progress("importing " + path)
	defer p.end()
	return c.Import(cmd.Context(), api.ImportQuery{Name: filepath.Base(path)}, &watched{f, 0, func(n int64) { p.update(n, info.Size()) }})
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
