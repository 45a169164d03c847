package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
)

// output is the -o flag of every command that answers.
type output struct{ format string }

func (o *output) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.format, "output", "o", "table", "how to print: table or json")
}

// print writes v as JSON, or calls table.
func (o *output) print(e *env, v any, table func()) error {
	switch o.format {
	case "table":
		table()
		return nil
	case "json":
		return api.WriteJSON(e.out, v)
	}
	return usageError{fmt.Errorf("--output %q: give table or json", o.format)}
}
