package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/ingest/stream"
)

// Exit statuses of [Main].
const (
	ExitOK     = 0
	ExitFailed = 1 // something could not be read, reached or written
	ExitUsage  = 2 // the command was not understood
)

const help = `whylate-agent follows the rings that the probes of this host's engines write, and forwards them to a whylate server.

It never slows an engine down: engines write into rings and know nothing of it. While the server is away, data stay in the rings,
then go to a bounded spool on disk, and are sent when the server is back. Block hashes are keyed before they leave this host.

Usage:
  whylate-agent --server ADDRESS [flags]

Examples:
  whylate-agent --server tls://whylate.example --token-file /etc/whylate/token
  whylate-agent --server unix:///run/whylate/agents.sock
  whylate-agent --server tcp://127.0.0.1:9717 --once      forward what there is now, and end

Each flag has an environment variable, which it overrides.
`

const example = "whylate-agent --server tls://whylate.example --token-file /etc/whylate/token"

// options are the command line.
type options struct {
	settings            Settings
	server, tokenFile   string
	keyFile             string
	files               stream.Files
	serverName          string
	once, version, asJS bool
	onceLimit, grace    time.Duration
}

// Main runs the agent's command line and returns the exit status. version is what the server is told.
func Main(ctx context.Context, args []string, getenv func(string) string, version string, out, errOut io.Writer) int {
	o, fs := newOptions(getenv)
	fs.SetOutput(io.Discard)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, help, "\nFlags:\n")
		fs.SetOutput(out)
		fs.PrintDefaults()
		return ExitOK
	case err != nil:
		fmt.Fprintf(errOut, "whylate-agent: %v; see 'whylate-agent --help'\n", err)
		return ExitUsage
	case fs.NArg() > 0:
		fmt.Fprintf(errOut, "whylate-agent: it takes no arguments, got %q; see 'whylate-agent --help'\n", fs.Arg(0))
		return ExitUsage
	}
	if version == "" {
		version = buildVersion()
	}
	if o.version {
		fmt.Fprintf(out, "whylate-agent %s · %s · protocol %d.%d\n", version, runtime.Version(), stream.Major, stream.Minor)
		return ExitOK
	}
	if err := o.resolve(version, errOut); err != nil {
		fmt.Fprintf(errOut, "whylate-agent: %v\n", err)
		return ExitUsage
	}
	if err := o.run(ctx, errOut); err != nil {
		fmt.Fprintf(errOut, "whylate-agent: %v\n", err)
		return ExitFailed
	}
	return ExitOK
}

// newOptions declares the flags. A default that the environment gives is shown as one.
func newOptions(getenv func(string) string) (*options, *flag.FlagSet) {
	o := &options{}
	fs := flag.NewFlagSet("whylate-agent", flag.ContinueOnError)
	text := func(to *string, name, env, fallback, usage string) {
		if v := getenv(env); v != "" {
			fallback = v
		}
		fs.StringVar(to, name, fallback, usage+" ($"+env+")")
	}
	// A value of the environment goes the way of one of the command line, so that a wrong one is refused in the same words.
	set := func(name, env string) {
		f := fs.Lookup(name)
		f.Usage += " ($" + env + ")"
		if v := getenv(env); v != "" {
			if err := fs.Set(name, v); err != nil {
				f.Value = refusedValue{fmt.Errorf("$%s: %q: %w", env, v, err)}
			} else {
				f.DefValue = f.Value.String()
			}
		}
	}
	s := &o.settings
	d := Settings{}.withDefaults()
	text(&s.RingDir, "ring-dir", "WHYLATE_RING_DIR", "/dev/shm/whylate", "`directory` of the rings")
	text(&o.server, "server", "WHYLATE_SERVER", "", "`address` of the server: tls://HOST[:"+stream.DefaultPort+"], tcp://HOST[:PORT] or unix:///PATH; without a scheme TLS, except to this host")
	text(&o.tokenFile, "token-file", "WHYLATE_TOKEN_FILE", "", "`file` with the bearer token that the server asks for")
	text(&o.files.CA, "tls-ca", "WHYLATE_TLS_CA", "", "`file` with the CA of the server's certificate; empty means the system's")
	text(&o.files.Cert, "tls-cert", "WHYLATE_TLS_CERT", "", "`file` with a client certificate, if the server asks for one")
	text(&o.files.Key, "tls-key", "WHYLATE_TLS_KEY", "", "`file` with its key")
	text(&o.serverName, "tls-name", "WHYLATE_TLS_NAME", "", "`name` to look for in the server's certificate instead of the host in its address")
	text(&s.SpoolDir, "spool-dir", "WHYLATE_SPOOL_DIR", defaultSpool(getenv), "`directory` for data while the server is away")
	text(&o.keyFile, "key-file", "WHYLATE_KEY_FILE", "", "`file` with the key of block hashes, made if it is missing; agents with one key give equal prefixes equal hashes. Default: key in the spool directory")
	s.SpoolLimit, s.MemoryLimit = d.SpoolLimit, d.MemoryLimit
	fs.Var((*size)(&s.SpoolLimit), "spool-limit", "`size` of the spool at most; beyond it the oldest data are dropped, and noted as missing")
	set("spool-limit", "WHYLATE_SPOOL_LIMIT")
	fs.Var((*size)(&s.MemoryLimit), "memory-limit", "`size` of the data in memory at most")
	set("memory-limit", "WHYLATE_AGENT_MEMORY")
	fs.DurationVar(&s.Retention, "retention", d.Retention, "how long the ring of a dead writer is kept, and longer until all of it is acknowledged")
	set("retention", "WHYLATE_RING_RETENTION")
	fs.DurationVar(&s.Liveness.StuckAfter, "stuck-after", 2*time.Second, "how long an iteration takes at least before its engine is called stuck; never under 20 typical iterations")
	set("stuck-after", "WHYLATE_STUCK_AFTER")
	fs.DurationVar(&s.PollEvery, "every", d.PollEvery, "how often the rings are read")
	fs.DurationVar(&s.HeartbeatEvery, "heartbeat", d.HeartbeatEvery, "how often an unchanged state is reported")
	fs.DurationVar(&o.grace, "grace", 5*time.Second, "how long to go on sending after SIGTERM; what is left goes into the spool")
	fs.BoolVar(&o.once, "once", false, "forward what rings and spool hold now, and end")
	fs.DurationVar(&o.onceLimit, "once-limit", time.Minute, "how long --once may take")
	fs.BoolVar(&o.asJS, "log-json", false, "write the log as JSON")
	fs.BoolVar(&o.version, "version", false, "print the version")
	return o, fs
}

// defaultSpool is where systemd says that state belongs, else where it belongs by custom.
func defaultSpool(getenv func(string) string) string {
	if d := getenv("STATE_DIRECTORY"); d != "" {
		return filepath.Join(d, "spool")
	}
	if d := getenv("WHYLATE_DATA_DIR"); d != "" {
		return filepath.Join(d, "agent")
	}
	if d := getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "whylate", "agent")
	}
	if d := getenv("HOME"); d != "" && os.Getuid() != 0 {
		return filepath.Join(d, ".local", "share", "whylate", "agent")
	}
	return "/var/lib/whylate-agent/spool"
}

// resolve turns the options into settings.
func (o *options) resolve(version string, errOut io.Writer) error {
	s := &o.settings
	if o.server == "" {
		return fmt.Errorf("no server: give --server or $WHYLATE_SERVER, such as\n  %s", example)
	}
	target, err := stream.ParseTarget(o.server)
	if err != nil {
		return err
	}
	for name, d := range map[string]time.Duration{"--every": s.PollEvery, "--heartbeat": s.HeartbeatEvery, "--stuck-after": s.Liveness.StuckAfter, "--retention": s.Retention} {
		if d <= 0 {
			return fmt.Errorf("%s %v: give a time above 0", name, d)
		}
	}
	if s.MemoryLimit < 1<<20 || s.SpoolLimit < 1<<20 {
		return errors.New("--memory-limit and --spool-limit must be at least 1MiB")
	}
	s.Server = stream.Dialer{Target: target, Clock: pair, Agent: Identify(version)}
	if target.TLS {
		if s.Server.TLS, err = o.files.ClientTLS(o.serverName); err != nil {
			return err
		}
	} else if o.files != (stream.Files{}) {
		return fmt.Errorf("the --tls flags need a tls:// address, not %s", target)
	}
	if o.tokenFile != "" {
		s.Server.Token = func() (string, error) {
			tokens, err := stream.ReadTokens(o.tokenFile)
			if err != nil {
				return "", err
			}
			return tokens[0], nil
		}
		if _, err := s.Server.Token(); err != nil {
			return err
		}
	}
	if o.keyFile == "" {
		o.keyFile = filepath.Join(s.SpoolDir, "key")
	}
	if s.Key, err = LoadKey(o.keyFile); err != nil {
		return err
	}
	s.Jitter = rand.Float64
	var handler slog.Handler = slog.NewTextHandler(errOut, nil)
	if o.asJS {
		handler = slog.NewJSONHandler(errOut, nil)
	}
	s.Log = slog.New(handler)
	return nil
}

// run runs the agent until ctx ends, or once.
func (o *options) run(ctx context.Context, errOut io.Writer) error {
	a, err := New(o.settings)
	if a == nil {
		return err
	}
	if err != nil {
		o.settings.Log.Warn("part of the spool cannot be read", "error", err)
	}
	if !o.once {
		debug.SetMemoryLimit(48<<20 + 3*o.settings.MemoryLimit)
		o.settings.Log.Info("following", "rings", o.settings.RingDir, "server", o.settings.Server.Target.String(), "spool", o.settings.SpoolDir)
		return a.Run(ctx, o.grace)
	}
	ctx, cancel := context.WithTimeout(ctx, o.onceLimit)
	defer cancel()
	err = a.Once(ctx)
	fmt.Fprintf(errOut, "%d records read, %d acknowledged\n", a.counts.Frames, a.counts.Acked)
	return err
}

// Identify says who this process is.
func Identify(version string) stream.Identity {
	i := stream.Identity{PID: os.Getpid(), Version: version, Start: processStart()}
	i.Host, _ = os.Hostname()
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		i.Boot = strings.TrimSpace(string(b))
	}
	return i
}

// processStart is when this process began, in clock ticks since boot: field 22 of /proc/self/stat, behind the name, which may hold anything.
func processStart() uint64 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64)
	return n
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "development"
}

// size is a number of bytes on the command line.
type size int64

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func (s *size) String() string {
	for _, u := range units {
		if n := int64(*s); n != 0 && n%u.bytes == 0 {
			return fmt.Sprintf("%d%s", n/u.bytes, u.name)
		}
	}
	return "0"
}

// Set reads 512MiB, 2GiB, 1048576.
func (s *size) Set(text string) error {
	factor := int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			text, factor = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > 1<<62/factor {
		return errors.New("write a size as 512MiB or 2GiB")
	}
	*s = size(n * factor)
	return nil
}

// refusedValue is a flag whose environment variable is wrong. It refuses everything, which tells why.
type refusedValue struct{ error }

func (r refusedValue) String() string   { return "" }
func (r refusedValue) Set(string) error { return r.error }
