// Package cli is the command line: one file a command. Commands ask an [api.Service] and print what it answers; they
// compute nothing themselves.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/query"
)

// Exit statuses.
const (
	ExitOK       = 0
	ExitFailed   = 1 // something could not be read, reached or written
	ExitUsage    = 2 // the command was not understood
	ExitNotFound = 3 // no such request, or more than one
	ExitNoSource = 4 // there is nothing to read
)

// env is what a command may touch of the world.
type env struct {
	in       io.Reader
	out, err io.Writer
	color    bool // the output is a terminal
	// atOnce lets interrupt and terminate end the program where it stands, from when on nothing is left to put in order.
	atOnce func()
}

// Main runs the command line and returns the exit status. Interrupt and terminate end a command in good order.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	e := &env{in: in, out: out, err: errOut, color: isTerminal(out), atOnce: func() { signal.Reset(syscall.SIGINT, syscall.SIGTERM) }}
	root := e.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(errOut, "whylate: %v\n", err)
		return status(err)
	}
	return ExitOK
}

// usageError marks an error of the command's own words.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func status(err error) int {
	var usage usageError
	var missing *query.NotFound
	var several *query.Ambiguous
	var argument *api.InvalidArgument
	switch {
	case errors.As(err, &usage), errors.As(err, &argument):
		return ExitUsage
	case errors.As(err, &missing), errors.As(err, &several):
		return ExitNotFound
	case errors.Is(err, errNoSource):
		return ExitNoSource
	}
	return ExitFailed
}

func (e *env) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "whylate",
		Short: "Tells why a token is late, and proves it",
		Long: `whylate accounts for every millisecond of a request that a self-hosted LLM engine answered.

It reads what the probe in the engine recorded of the scheduler's decisions, iteration by iteration, and says which part of
a request's time was whose doing.

Exit status: 0 answered · 1 failed · 2 wrong usage · 3 no such request, or several · 4 nothing to read.`,
		Example: `  whylate demo                          see it on a recorded run of a real engine
  whylate capture                       record the engines of this host
  whylate requests --sort ttft          the slowest requests
  whylate explain cli-7                 why cli-7 was slow`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; 'whylate --help' lists them", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see '%s --help'", err, cmd.CommandPath())}
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(e.look(), e.signals(), e.demo(), e.explain(), e.requests(), e.iterations(), e.capture(), e.replay(), e.workload(), e.simulate(), e.calibrate(), e.serve(), e.agent(), e.top(), e.gpu(), e.targets(), e.changes(), e.change(), e.importCommand(), e.export(), e.bundle(), e.doctor(), e.bench(), e.store(), e.config(), e.ping(), e.version())
	return root
}

// args checks the number of arguments; a wrong one is an error of usage.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) < least || len(given) > most {
			return usageError{fmt.Errorf("%s takes %s, got %d arguments; see '%s --help'", cmd.CommandPath(), what, len(given), cmd.CommandPath())}
		}
		return nil
	}
}
