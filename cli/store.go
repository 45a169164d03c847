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
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
)

func (e *env) store() *cobra.Command {
	k := keeping{}
	root := &cobra.Command{
		Use:   "store",
		Short: "Look after what a server keeps: ls, verify, compact, export",
		Long: `Ask the server if one runs (--server, else the default address); where none does, or with --data-dir, open the files themselves. One
process has a data directory open. Sealed periods are plain Parquet and never change: a copy of them is a backup.
docs/tables.md describes every column. verify, compact and export need a token of the role operator, where the server has tokens.`,
		Args: args(0, 0, "a command: ls, verify, compact or export"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	out := output{}
	ls := &cobra.Command{
		Use: "ls", Short: "List the sealed periods, and the log", Example: "  whylate store ls -o json", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.with(cmd, func(ctx context.Context, k api.Keeper) error {
				s, err := k.StoreState(ctx)
				if err != nil {
					return err
				}
				return out.print(e, s, func() { e.printStore(s) })
			})
		},
	}
	verify := &cobra.Command{
		Use: "verify", Short: "Read everything and hold it against its checksums", Example: "  whylate store verify", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.with(cmd, func(ctx context.Context, k api.Keeper) error {
				v, err := k.VerifyStore(ctx)
				if err != nil {
					return err
				}
				if err := out.print(e, v, func() { e.printVerified(v) }); err != nil {
					return err
				}
				if v.Damaged > 0 {
					return fmt.Errorf("%d of %d periods are damaged; the rest answers. Restore them from a copy, or remove their directories", v.Damaged, len(v.Periods))
				}
				return nil
			})
		},
	}
	var rows int64
	compact := &cobra.Command{
		Use: "compact", Short: "Merge small neighbouring periods", Example: "  whylate store compact --rows 2000000", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if rows < 1 {
				return usageError{fmt.Errorf("--rows %d: give a number from 1", rows)}
			}
			return k.with(cmd, func(ctx context.Context, k api.Keeper) error {
				c, err := k.CompactStore(ctx, api.CompactQuery{Rows: rows})
				if err != nil {
					return err
				}
				return out.print(e, c, func() { fmt.Fprintf(e.out, "%d periods fewer\n", c.Fewer) })
			})
		},
	}
	compact.Flags().Int64Var(&rows, "rows", 1_000_000, "merge while a period has fewer iterations than this")
	export := &cobra.Command{
		Use: "export DIR", Short: "Write everything sealed as plain Parquet, for DuckDB, Polars, ClickHouse or Spark",
		Example: "  whylate store export /tmp/whylate\n  duckdb -c \"select * from '/tmp/whylate/requests/*.parquet' order by e2e_ns desc limit 10\"", Args: args(1, 1, "a new directory"),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			return k.with(cmd, func(ctx context.Context, k api.Keeper) error {
				if err := e.exportTo(ctx, k, dirs[0]); err != nil {
					return err
				}
				fmt.Fprintf(e.out, "exported to %s\n", dirs[0])
				return nil
			})
		},
	}
	for _, cmd := range []*cobra.Command{ls, verify, compact} {
		out.flags(cmd)
	}
	k.flags(root.PersistentFlags())
	root.AddCommand(ls, verify, compact, export)
	return root
}

// keeping is where the store is: at a server, or in a directory.
type keeping struct {
	server serverFlags
	dir    string
}

func (k *keeping) flags(set *pflag.FlagSet) {
	k.server.addTo(set)
	set.StringVar(&k.dir, "data-dir", cmp.Or(os.Getenv("WHYLATE_DATA_DIR"), dataDir()), "the data directory of a server that does not run ($WHYLATE_DATA_DIR); given here, no server is asked")
}

// with does something with the store: the server's if one runs, else that in the files.
func (k *keeping) with(cmd *cobra.Command, do func(context.Context, api.Keeper) error) error {
	if !cmd.Flags().Changed("data-dir") {
		if svc, err := k.server.running(); err != nil {
			return err
		} else if svc != nil {
			remote, ok := svc.(api.Keeper)
			if !ok {
				return errors.New("BUG: a client that keeps no store")
			}
			return do(cmd.Context(), remote)
		}
	}
	path := filepath.Join(k.dir, "store")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("%w: %s holds no store; a server makes one (data_dir)", errNoSource, k.dir)
	}
	st, err := embedded.Open(path, embedded.Options{Writer: named()})
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), server.NewKeeper(st)), st.Close())
}

// exportTo writes an export into a new directory.
func (e *env) exportTo(ctx context.Context, k api.Keeper, dir string) error {
	write, err := store.ExportInto(vfs.OS{}, dir)
	if err != nil {
		return err
	}
	s, err := k.StoreState(ctx)
	if err != nil {
		return err
	}
	var done, total int64
	for _, p := range s.Periods {
		total += p.Size()
	}
	p := e.progress("exporting to " + dir)
	defer p.end()
	return k.ExportStore(ctx, func(name string, size int64, in io.Reader) error {
		p.update(min(done, total), total)
		done += size
		return write(name, size, in)
	})
}

func (e *env) printStore(s *api.StoreState) {
	e.printPeriods(s.Periods)
	fmt.Fprintf(e.out, "log: %d files, %s, from %s to %s\n", s.Log.Files, size(s.Log.Bytes), s.Log.First, s.Log.Last)
}

func (e *env) printVerified(v *api.StoreVerified) {
	e.printPeriods(v.Periods)
	if v.Damaged == 0 {
		fmt.Fprintf(e.out, "%d periods are whole\n", len(v.Periods))
	}
}

func (e *env) printPeriods(periods []store.PeriodInfo) {
	t := e.table("PERIOD", "ENGINE", "ITERATIONS", "REQUESTS", "FROM", "TO", "SIZE", "DETAIL", "DAMAGE")
	for _, p := range periods {
		detail := "yes"
		if !p.Detail {
			detail = "let go"
		}
		t.row(p.ID, p.Engine.String(), fmt.Sprintf("%d to %d", p.First, p.Last), fmt.Sprint(p.Requests), diagnose.Clock(p.From), diagnose.Clock(p.To), size(p.Size()), detail, dash(p.Damaged))
	}
	t.end()
}
