// Package command is the command line of the agent: of the small program whylate-agent, and of 'whylate agent'.
package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/whylate/whylate/agent"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/internal/renew"
)

// Exit statuses.
const (
	ExitOK     = 0
	ExitFailed = 1 // something could not be read, reached or written
	ExitUsage  = 2 // the command or its settings were not understood
)

const help = `%[1]s follows the rings that the probes of this host's engines write, and forwards them to a whylate server.

It never slows an engine down: engines write into rings and know nothing of it. While the server is away, data stay in the rings,
then go to a bounded spool on disk, and are sent when the server is back. Block hashes are keyed before they leave this host.

Settings come from flags, environment variables, the file and defaults, in this order; docs/config.md lists them all.

Examples:
  %[1]s --server tls://whylate.example --token-file /etc/whylate/token
  %[1]s --config /etc/whylate/whylate.yaml
  %[1]s --server tcp://127.0.0.1:7701 --once      forward what there is now, and end

Flags:
`

// Command is one run of the agent's command line.
type Command struct {
	Program string // what it calls itself
	Version string // what the server is told; "" means the module's
	Environ []string
	Out     io.Writer
	Err     io.Writer
}

// extras are the flags that are no settings of whylate.yaml: nobody needs them in production.
type extras struct {
	once, version                                   bool
	onceLimit, grace, every, heartbeat, stuck, keep time.Duration
	memory                                          string
}

// Run runs it until ctx ends, and returns the exit status.
func (c *Command) Run(ctx context.Context, args []string) int {
	flags := config.NewFlags(config.Agents)
	set := flag.NewFlagSet(c.Program, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	flags.AddTo(set)
	x := addExtras(set)
	complain := func(status int, err error) int {
		fmt.Fprintf(c.Err, "%s: %v\n", c.Program, err)
		return status
	}
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(c.Out, help, c.Program)
		set.SetOutput(c.Out)
		set.PrintDefaults()
		return ExitOK
	case err != nil:
		return complain(ExitUsage, fmt.Errorf("%w; see '%s --help'", err, c.Program))
	case set.NArg() > 0:
		return complain(ExitUsage, fmt.Errorf("it takes no arguments, got %q; see '%s --help'", set.Arg(0), c.Program))
	}
	version := c.Version
	if version == "" {
		version = moduleVersion()
	}
	if x.version {
		fmt.Fprintf(c.Out, "%s %s · %s · protocol %d.%d\n", c.Program, version, runtime.Version(), stream.Major, stream.Minor)
		return ExitOK
	}
	conf, err := config.Load(config.Input{Environ: c.Environ, Flags: flags})
	if err != nil {
		return complain(ExitUsage, err)
	}
	log := logger(conf, c.Err)
	files := renew.NewGroup(log, nil)
	s, err := settings(conf, x, version, files)
	if err != nil {
		return complain(ExitUsage, err)
	}
	s.Log = log
	if s.GPU != nil {
		s.GPU.Log = log
	}
	if err := c.run(ctx, s, x, files); err != nil {
		return complain(ExitFailed, err)
	}
	return ExitOK
}

func addExtras(set *flag.FlagSet) *extras {
	x := &extras{}
	set.BoolVar(&x.once, "once", false, "forward what rings and spool hold now, and end")
	set.DurationVar(&x.onceLimit, "once-limit", time.Minute, "how long --once may take")
	set.DurationVar(&x.grace, "grace", 5*time.Second, "how long to go on sending after SIGTERM; what is left goes into the spool")
	set.DurationVar(&x.every, "every", 100*time.Millisecond, "how often the rings are read")
	set.DurationVar(&x.heartbeat, "heartbeat", 10*time.Second, "how often an unchanged state is reported")
	set.DurationVar(&x.stuck, "stuck-after", time.Second, "how long an iteration takes at least before its engine is called stuck; never under 20 typical ones")
	set.DurationVar(&x.keep, "keep-dead", time.Hour, "how long the ring of a dead writer is kept, and longer until all of it is acknowledged")
	set.StringVar(&x.memory, "memory", "8MiB", "`size` of the data in memory at most")
	set.BoolVar(&x.version, "version", false, "print the version")
	return x
}

// settings turns what was configured into the agent's settings. Certificates and tokens are what g takes up.
func settings(c *config.Config, x *extras, version string, g *renew.Group) (agent.Settings, error) {
	for name, d := range map[string]time.Duration{"--every": x.every, "--heartbeat": x.heartbeat, "--stuck-after": x.stuck, "--keep-dead": x.keep, "--once-limit": x.onceLimit} {
		if d <= 0 {
			return agent.Settings{}, fmt.Errorf("%s %v: give a time above 0", name, d)
		}
	}
	memory, err := config.ParseSize(x.memory)
	if err != nil || memory < 1<<20 {
		return agent.Settings{}, fmt.Errorf("--memory %s: give a size of at least 1MiB", x.memory)
	}
	target, err := stream.ParseTarget(c.Agent.Server)
	if err != nil {
		return agent.Settings{}, err
	}
	s := agent.Settings{RingDir: c.Rings.Dir, SpoolDir: c.Agent.SpoolDir, SpoolLimit: c.Agent.SpoolBytes, MemoryLimit: memory, PollEvery: x.every,
		HeartbeatEvery: x.heartbeat, Retention: x.keep, Liveness: agent.LivenessSettings{StuckAfter: x.stuck}, Jitter: rand.Float64,
		Server: stream.Dialer{Target: target, Agent: agent.Identify(version)}}
	files := renew.TLS{Cert: c.Agent.TLS.Cert, Key: c.Agent.TLS.Key, CA: c.Agent.TLS.CA}
	switch {
	case target.TLS:
		if s.Server.TLS, err = files.Client(g, c.Agent.TLS.Name); err != nil {
			return s, err
		}
	case files != renew.TLS{}:
		return s, fmt.Errorf("agent.tls is set, but %s is no tls:// address; write agent.server as tls://HOST:PORT", target)
	}
	if c.GPU.Sample && !x.once {
		s.GPU = &gpu.Settings{Every: c.GPU.Every, Helper: c.GPU.Helper, SMI: c.GPU.SMI}
	}
	if path := c.Agent.TokenFile; path != "" {
		tokens, err := stream.OpenTokens(g, path)
		if err != nil {
			return s, err
		}
		s.Server.Token = func() (string, error) { return tokens.Get()[0], nil }
	}
	s.Key, err = agent.LoadKey(c.Agent.KeyFile)
	return s, err
}

func logger(c *config.Config, w io.Writer) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.Log.Level)) // config has checked it
	o := &slog.HandlerOptions{Level: level}
	if c.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// run runs the agent until ctx ends, or once.
func (c *Command) run(ctx context.Context, s agent.Settings, x *extras, files *renew.Group) error {
	a, err := agent.New(s)
	if a == nil {
		return err
	}
	if err != nil {
		s.Log.Warn("part of the spool cannot be read", "error", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go files.Run(ctx, renew.Every, nil)
	if !x.once {
		debug.SetMemoryLimit(32<<20 + 3*s.MemoryLimit)
		s.Log.Info("following", "rings", s.RingDir, "server", s.Server.Target.String(), "spool", s.SpoolDir)
		return a.Run(ctx, x.grace)
	}
	ctx, cancel = context.WithTimeout(ctx, x.onceLimit)
	defer cancel()
	err = a.Once(ctx)
	counts := a.Counts()
	fmt.Fprintf(c.Err, "%d records read, %d acknowledged\n", counts.Frames, counts.Acked)
	return err
}

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") {
		return info.Main.Version
	}
	return "development"
}

// Main runs the command with this process's environment and streams.
func Main(ctx context.Context, program, version string, args []string) int {
	c := &Command{Program: program, Version: version, Environ: os.Environ(), Out: os.Stdout, Err: os.Stderr}
	return c.Run(ctx, args)
}
