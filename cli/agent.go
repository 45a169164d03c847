package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/agent/command"
)

// agent is whylate-agent as a subcommand: the same program, flags and exit statuses, for a host that has the whole binary anyway.
func (e *env) agent() *cobra.Command {
	return &cobra.Command{
		Use:                "agent",
		Short:              "Forward the rings of this host to a server (the same as whylate-agent)",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, given []string) error {
			switch status := command.Main(cmd.Context(), "whylate agent", Version, given); status {
			case ExitOK:
				return nil
			case ExitUsage:
				return usageError{fmt.Errorf("the agent was not started; see 'whylate agent --help'")}
			default:
				return fmt.Errorf("the agent ended with status %d", status)
			}
		},
	}
}
