package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/config"
)

func (e *env) config() *cobra.Command {
	root := &cobra.Command{
		Use:   "config",
		Short: "Check settings, and say where each comes from",
		Long:  "Settings come from flags, environment variables, the file and defaults, in this order. docs/config.md lists them all.",
		Args:  args(0, 0, "a command: check or show"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var file string
	root.PersistentFlags().StringVar(&file, "config", "", "the file to look at; default: $"+config.FileVariable+", else "+config.DefaultFile+" if it is there")
	out := output{}
	check := &cobra.Command{
		Use: "check", Short: "Say what is wrong with the settings, and what may become so", Example: "  whylate config check --config whylate.yaml", Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			problems := config.Check(file)
			if c, err := config.Load(config.Input{File: file, Environ: os.Environ()}); err == nil {
				problems = append(problems, checkScrape(c)...)
			}
			wrong := 0
			for _, p := range problems {
				if p.Severity == config.Error {
					wrong++
				}
			}
			if err := out.print(e, problems, func() {
				for _, p := range problems {
					fmt.Fprintln(e.out, plain(p.Error()))
				}
				if len(problems) == 0 {
					fmt.Fprintln(e.out, "nothing is wrong with the settings")
				}
			}); err != nil {
				return err
			}
			if wrong > 0 {
				return usageError{fmt.Errorf("%d settings cannot be used", wrong)}
			}
			return nil
		},
	}
	out.flags(check)
	show := &cobra.Command{
		Use: "show [KEY]", Short: "Print all settings, or where one comes from", Example: "  whylate config show store.hot_period", Args: args(0, 1, "at most one key"),
		RunE: func(cmd *cobra.Command, key []string) error {
			c, err := config.Load(config.Input{File: file, Environ: os.Environ()})
			if err != nil {
				return usageError{err}
			}
			if len(key) == 0 {
				return c.WriteYAML(e.out)
			}
			x, err := c.Explain(key[0])
			if err != nil {
				return usageError{err}
			}
			fmt.Fprintln(e.out, x)
			return nil
		},
	}
	root.AddCommand(check, show)
	return root
}
