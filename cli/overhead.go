package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/overhead"
	"github.com/whylate/whylate/experiment/workload"
)

func (e *env) bench() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure what whylate costs",
		Args:  args(0, 0, "one of its commands"),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(e.overhead())
	return cmd
}

func (e *env) overhead() *cobra.Command {
	c := overheadCommand{}
	cmd := &cobra.Command{
		Use:   "overhead [flags] -- COMMAND...",
		Short: "Compare an engine with the probe to the same engine without it",
		Long: `Start COMMAND, a vLLM server's command line, afresh for each run, in pairs with the probe on and off (WHYLATE_PROBE); play the
same load to each, open loop; and say what differs: throughput, TTFT, ITL, the gap between iterations, processor time, bytes.

The first start is not measured: it fills caches, and shows whether the probe records. Then each pair is two runs, in an order
drawn with --seed. A run is: start, warm-up, load, burst, stop. {port} in COMMAND becomes a free port. With the probe on, a
reader follows the rings as in production: by default 'whylate agent', which sends to a server inside this command.

The run is the replicate. Each measure has the mean of on − off in pairs, its 95 % interval (Student's, checked by flipping signs),
half of it as what so many pairs can resolve, and a verdict that claims no more. --sham compares off with off: the noise.

With --on and --off two servers that run already take the load in turns; what else differs between them is in the result.

Ctrl-C stops the servers and shows the whole pairs so far, if they are 3 or more.`,
		Example: `  whylate bench overhead -- python -m vllm.entrypoints.openai.api_server --model M --port {port} --enable-logging-iteration-details
  whylate bench overhead --pairs 12 --rate 8 --for 60s --prompt-tokens 512 --output-tokens 128 -o json -- vllm serve M --port {port}
  whylate bench overhead --sham -- vllm serve M --port {port}
  whylate bench overhead --workload load.jsonl --on http://10.0.0.1:8000 --off http://10.0.0.2:8000`,
		RunE: func(cmd *cobra.Command, command []string) error {
			c.command.Args = command
			return c.run(cmd, e)
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.bench.Pairs, "pairs", 6, fmt.Sprintf("pairs of runs, %d to %d", overhead.MinPairs, overhead.MaxPairs))
	f.Uint64Var(&c.bench.Seed, "seed", 1, "of the order within pairs, and of the prompts")
	f.BoolVar(&c.bench.Sham, "sham", false, "both runs of a pair have the probe off")
	f.StringVar(&c.endpoints.On, "on", "", "a running endpoint with the probe, instead of COMMAND")
	f.StringVar(&c.endpoints.Off, "off", "", "a running endpoint without it")
	f.StringVar(&c.command.URL, "url", "", "where COMMAND answers; default: http://127.0.0.1:{port}")
	f.DurationVar(&c.command.Limit, "start-limit", 10*time.Minute, "how long COMMAND may take until /health is well")
	f.StringVar(&c.command.Read.Kind, "reader", overhead.Agent, "who reads the rings where the probe is on: "+strings.Join(overhead.Kinds, ", "))
	f.StringVar(&c.workload, "workload", "", "play this workload (JSONL, as 'whylate replay' reads it), instead of:")
	f.Float64Var(&c.rate, "rate", 4, "requests a second, at equal distances")
	f.DurationVar(&c.length, "for", 30*time.Second, "length of the load")
	f.IntVar(&c.prompt, "prompt-tokens", 256, "tokens of each prompt")
	f.IntVar(&c.output, "output-tokens", 64, "tokens of each answer")
	f.IntVar(&c.bench.Load.Burst, "burst", 64, "then so many at once, for the most that the server can do; 0 = none")
	f.DurationVar(&c.bench.Load.WarmUp, "warm-up", 5*time.Second, "of the load's beginning, its first request at least; played once before and not measured")
	f.IntVar(&c.bench.MaxErrors, "max-errors", 0, "requests of a part of a run that may fail")
	f.StringVar(&c.bench.Replay.Model, "model", "", "model to name; empty lets the server choose")
	f.BoolVar(&c.bench.Replay.Chat, "chat", false, "use /v1/chat/completions instead of /v1/completions")
	f.BoolVar(&c.bench.Replay.TextPrompt, "text", false, "send prompts as text instead of token ids")
	f.DurationVar(&c.bench.Replay.Timeout, "timeout", 10*time.Minute, "for one request")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token of the endpoints")
	f.StringVar(&c.dir, "dir", "", "keep logs and captures here; default: a temporary directory, removed at the end")
	c.out.flags(cmd)
	return cmd
}

type overheadCommand struct {
	bench     overhead.Bench
	command   overhead.Command
	endpoints overhead.Endpoints
	out       output
	tokenFile string
	workload  string
	rate      float64
	length    time.Duration
	prompt    int
	output    int
	dir       string
}

func (c *overheadCommand) run(cmd *cobra.Command, e *env) (err error) {
	if err := c.check(); err != nil {
		return usageError{err}
	}
	if c.bench.Load.Workload, err = c.load(e); err != nil {
		return err
	}
	if err := c.bench.Check(); err != nil {
		return usageError{err}
	}
	if c.bench.Replay.Token, err = readToken(c.tokenFile); err != nil {
		return err
	}
	c.bench.Servers = c.endpoints
	if len(c.command.Args) > 0 {
		clean, err := c.prepare()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, clean()) }()
		c.bench.Servers = &c.command
	}
	c.bench.Said = func(text string) { fmt.Fprintf(e.err, "%s  %s\n", time.Now().Format(time.TimeOnly), text) }
	report, err := c.bench.Run(cmd.Context())
	if report == nil {
		return err
	}
	return errors.Join(err, c.out.print(e, report, func() { report.Write(e.out) }))
}

// check looks at what contradicts itself, before a server is started for it.
func (c *overheadCommand) check() error {
	endpoints := c.endpoints.On != "" || c.endpoints.Off != ""
	switch {
	case endpoints && len(c.command.Args) > 0:
		return errors.New("give a COMMAND to start, or --on and --off of running servers, not both")
	case endpoints && (c.endpoints.On == "" || c.endpoints.Off == ""):
		return errors.New("--on and --off: give both")
	case endpoints && c.bench.Sham:
		return errors.New("--sham with --on and --off: give two servers without the probe as --on and --off instead")
	case !endpoints && len(c.command.Args) == 0:
		return errors.New("nothing to compare: give the server's command line behind --, or --on and --off; see 'whylate bench overhead --help'")
	case c.out.format != "table" && c.out.format != "json":
		return fmt.Errorf("--output %q: give table or json", c.out.format)
	case len(c.command.Args) > 0:
		if err := c.command.Check(); err != nil {
			return err
		}
	}
	return nil
}

// load reads the workload, or makes the steady one.
func (c *overheadCommand) load(e *env) ([]experiment.Request, error) {
	if c.workload == "" {
		w, err := overhead.Steady(c.rate, c.length, c.prompt, c.output)
		if err != nil {
			return nil, usageError{err}
		}
		return w, nil
	}
	in := workloadInput{e: e}
	w, err := in.open(c.workload)
	if errors.Is(err, workload.ErrEmpty) {
		return nil, usageError{err}
	}
	if err != nil {
		return nil, err
	}
	all, err := experiment.ReadAll(w)
	return all, errors.Join(err, w.Close())
}

// prepare makes the directories of a bench that starts servers. What it returns removes those that nobody asked to keep.
func (c *overheadCommand) prepare() (clean func() error, err error) {
	if c.command.Read.Program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program, which is also the reader: %w", err)
	}
	var made []string
	clean = func() error {
		var err error
		for _, dir := range made {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return err
	}
	if c.command.Dir = c.dir; c.dir == "" {
		if c.command.Dir, err = os.MkdirTemp("", "whylate-overhead-"); err != nil {
			return nil, fmt.Errorf("make a directory for logs: %w", err)
		}
		made = append(made, c.command.Dir)
	} else if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a directory for logs: %w", err)
	}
	memory := filepath.Dir(defaultRingDir) // a ring on a disk would be measured slower than it is
	if info, err := os.Stat(memory); err != nil || !info.IsDir() {
		memory = ""
	}
	if c.command.Rings, err = os.MkdirTemp(memory, "whylate-overhead-"); err != nil {
		return nil, errors.Join(fmt.Errorf("make a directory for rings: %w", err), clean())
	}
	made = append(made, c.command.Rings)
	return clean, nil
}
