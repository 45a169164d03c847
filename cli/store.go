package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/store/embedded"
)

func (e *env) store() *cobra.Command {
	root := &cobra.Command{
		Use:   "store",
		Short: "Look after what a server keeps: ls, verify, compact, export",
		Long: `Work on a data directory while no server has it open. Sealed periods are plain Parquet and never change: a copy of them is a backup.
docs/tables.md describes every column.`,
		Args: args(0, 0, "a command: ls, verify, compact or export"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var dir string
	root.PersistentFlags().StringVar(&dir, "data-dir", cmp.Or(os.Getenv("WHYLATE_DATA_DIR"), dataDir()), "the server's data directory ($WHYLATE_DATA_DIR)")
	open := func() (store.Store, error) {
		path := filepath.Join(dir, "store")
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: %s holds no store; a server makes one (data_dir)", errNoSource, dir)
		}
		return embedded.Open(path, embedded.Options{Writer: "whylate " + Version})
	}

	out := output{}
	ls := &cobra.Command{
		Use: "ls", Short: "List the sealed periods, and the log", Example: "  whylate store ls -o json", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(open, func(st store.Store) error {
				periods, err := st.Periods(cmd.Context())
				if err != nil {
					return err
				}
				info := st.LogInfo()
				return out.print(e, struct {
					Periods []store.PeriodInfo `json:"periods"`
					Log     store.LogInfo      `json:"log"`
				}{periods, info}, func() {
					e.printPeriods(periods)
					fmt.Fprintf(e.out, "log: %d files, %s, from %s to %s\n", info.Files, size(info.Bytes), info.First, info.Last)
				})
			})
		},
	}
	out.flags(ls)
	verify := &cobra.Command{
		Use: "verify", Short: "Read everything and hold it against its checksums", Example: "  whylate store verify", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(open, func(st store.Store) error {
				periods, err := st.Verify(cmd.Context())
				if err != nil {
					return err
				}
				e.printPeriods(periods)
				bad := 0
				for _, p := range periods {
					if p.Damaged != "" {
						bad++
					}
				}
				if bad > 0 {
					return fmt.Errorf("%d of %d periods are damaged; the rest answers. Restore them from a copy, or remove their directories", bad, len(periods))
				}
				fmt.Fprintf(e.out, "%d periods are whole\n", len(periods))
				return nil
			})
		},
	}
	var rows int64
	compact := &cobra.Command{
		Use: "compact", Short: "Merge small neighbouring periods", Example: "  whylate store compact --rows 2000000", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(open, func(st store.Store) error {
				n, err := st.Compact(cmd.Context(), rows, 2)
				if err == nil {
					fmt.Fprintf(e.out, "%d periods fewer\n", n)
				}
				return err
			})
		},
	}
	compact.Flags().Int64Var(&rows, "rows", 1_000_000, "merge while a period has fewer iterations than this")
	export := &cobra.Command{
		Use: "export DIR", Short: "Write everything sealed as plain Parquet, for DuckDB, Polars, ClickHouse or Spark",
		Example: "  whylate store export /tmp/whylate\n  duckdb -c \"select * from '/tmp/whylate/requests/*.parquet' order by e2e_ns desc limit 10\"", Args: args(1, 1, "a new directory"),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			return with(open, func(st store.Store) error {
				if err := st.Export(cmd.Context(), dirs[0]); err != nil {
					return err
				}
				fmt.Fprintf(e.out, "exported to %s\n", dirs[0])
				return nil
			})
		},
	}
	root.AddCommand(ls, verify, compact, export)
	return root
}

// with opens a store for do and closes it.
func with(open func() (store.Store, error), do func(store.Store) error) error {
	st, err := open()
	if err != nil {
		return err
	}
	err = do(st)
	if cerr := st.Close(); err == nil {
		err = cerr
	}
	return err
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
