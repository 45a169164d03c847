package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/wire"
)

func (e *env) simulate() *cobra.Command {
	c := simulateCommand{e: e, in: workloadInput{e: e}}
	i := incidentCommand{simulateCommand: &c}
	cmd := &cobra.Command{
		Use:   "simulate WORKLOAD | INCIDENT | --list | --check CAPTURE...",
		Short: "Play a workload or an incident on simulated engines, and record what their probes would",
		Long: `Play a workload on engines that decide as vLLM's scheduler does, in virtual time, and write the capture that their probes, front ends,
clients and GPU samplers would have left. Every command reads it. Its sources name whylate-simulate as their producer.

With --like, settings and version are those of a recorded engine, and iterations take as long as its did (its own spread, drawn
again), or as --time says, a file of 'whylate calibrate'. With --preset they are reckoned from data sheets: only quotients of such
times mean anything. With none of them the engine is made up. --set changes a setting.

An incident is one of those that --list shows: a fault whose cause is known, with a severity, an onset and a duration, on an engine like
that of the demo (or --like, or --preset). What is written is a run bundle, a directory, with pages, spans, logs, captures and the truth
(docs/incidents.md). --sham plays the same without the fault.

With --check, nothing is made: each recorded engine's decisions are made again, from its settings and an empty cache, given only
what it was given, and held against its own one by one (docs/fidelity.md).`,
		Example: `  whylate simulate load.jsonl --like capture.wlc -o out.wlc
  whylate simulate load.jsonl --preset h100-8b --set max_num_batched_tokens=1024 --replicas 2 --router least-loaded -o out.wlc
  whylate simulate --list
  whylate simulate long-prefill --severity 0.7 --seed 7 -o run
  whylate simulate --check capture.wlc`,
		Args: func(cmd *cobra.Command, given []string) error {
			switch {
			case c.check:
				return args(1, 1000, "captures to check")(cmd, given)
			case i.list:
				return args(0, 0, "nothing beside --list")(cmd, given)
			}
			return args(1, 1, "one workload, or one incident")(cmd, given)
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			switch {
			case c.check:
				return c.checkAll(given)
			case i.list:
				return i.printList()
			case i.means(given[0]):
				return i.run(cmd, given[0])
			}
			return c.run(cmd.Context(), given[0])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&c.check, "check", false, "hold the simulator against recorded engines")
	f.StringVar(&c.like, "like", "", "capture of the engine to be like: its settings, its version, its times")
	f.StringVar(&c.engine, "engine", "", "of --like: which engine (a beginning of its id), where there are several")
	f.StringVar(&c.time, "time", "", "how long iterations take: a file that 'whylate calibrate' wrote")
	f.StringVar(&c.preset, "preset", "", "times from data sheets: h100-8b or h100-70b-tp4")
	f.StringArrayVar(&c.set, "set", nil, "change a setting of the engines, 'name=value'; may be repeated")
	f.StringVar(&c.version, "vllm", "", "version of vLLM whose rules hold; default that of --like, else 0.32.0")
	f.Uint64Var(&c.seed, "seed", 0, "of all that is random: one seed gives one capture, byte for byte")
	f.IntVar(&c.replicas, "replicas", 1, "how many hosts with an engine")
	f.IntVar(&c.ranks, "ranks", 1, "data-parallel engines behind each front end")
	f.StringVar(&c.router, "router", "round-robin", "how attempts are routed: round-robin, least-loaded or prefix-aware")
	f.BoolVar(&c.gpus, "gpus", true, "give each engine a GPU and sample it every second; not with the times of an engine without one")
	f.IntVar(&c.clients, "clients", 0, "let so many clients share the requests, each waiting for its answer before it sends the next")
	f.DurationVar(&c.think, "think", 0, "mean time from an answer to the client's next request; needs --clients")
	f.DurationVar(&c.client.Timeout, "timeout", 0, "after which clients give an attempt up; 0 = never")
	f.IntVar(&c.client.Retries, "retries", 0, "more attempts after a time-out or a refusal")
	f.DurationVar(&c.until, "for", 0, "stop after this much simulated time; 0 = when all is answered")
	f.StringVarP(&c.path, "out", "o", "simulated.wlc", "what to write: a capture; of an incident a directory, named like it by default")
	f.StringVar(&c.out.format, "output", "table", "how to print: table or json")
	c.in.flags(cmd)
	i.flags(cmd)
	return cmd
}

type simulateCommand struct {
	e                     *env
	in                    workloadInput
	out                   output
	check, gpus           bool
	like, engine, version string
	time, preset          string
	router, path          string
	set                   []string
	seed                  uint64
	replicas, ranks       int
	clients               int
	think, until          time.Duration
	client                world.Client
	front                 world.Front
}

func (c *simulateCommand) run(ctx context.Context, path string) (err error) {
	config, err := c.config()
	if err != nil {
		return err
	}
	config.Wait = func(time.Duration) error { return ctx.Err() }
	in, err := c.in.open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	requests := experiment.Stream(in)
	if c.preset != "" {
		p, err := timing.PresetNamed(c.preset)
		if err != nil {
			return usageError{err}
		}
		requests = workload.Stretch(in, p.Stretch())
	}
	config.Workload = experiment.Open(requests)
	if c.clients > 0 {
		config.Workload = workload.Closed(requests, c.clients, c.think, c.seed)
	}
	if _, err := world.New(config); err != nil { // before it costs a file
		return err
	}
	file, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open the capture: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w, err := wire.NewCaptureWriter(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	config.Recorder = world.NewFrames(w)
	played, err := world.New(config)
	if err != nil {
		return err
	}
	summary, err := played.Run()
	in.tell(c.e)
	if err != nil {
		return err
	}
	return c.out.print(c.e, &summary, func() { c.print(&summary, timing.UnitOf(config.Replicas[0].Ranks[0].Model)) })
}

func (c *simulateCommand) print(s *world.Summary, unit timing.Unit) {
	fmt.Fprintf(c.e.out, "%d requests in %d attempts: %d answered, %d refused, %d timed out, %d hung up", s.Requests, s.Attempts, s.Complete, s.Refused, s.TimedOut, s.HungUp)
	if s.Broken > 0 {
		fmt.Fprintf(c.e.out, ", %d broken", s.Broken)
	}
	if s.Unfinished > 0 {
		fmt.Fprintf(c.e.out, ", %d not at their end", s.Unfinished)
	}
	fmt.Fprintf(c.e.out, ".\n%d iterations, %d tokens", s.Iterations, s.Tokens)
	if unit == timing.Seconds {
		fmt.Fprintf(c.e.out, ", %s of simulated time.\n", s.End.Round(time.Millisecond))
	} else {
		fmt.Fprintf(c.e.out, ". Its times are reckoned from data sheets: 1 s stands for a decode iteration of one\nsequence, and only quotients mean anything. The workload's times were stretched accordingly; --timeout, --think and --for are in this unit.\n")
	}
	fmt.Fprintf(c.e.out, "written: %s; 'whylate requests --from %s' lists them\n", c.path, c.path)
}

// config makes the world that the flags describe, but for its workload.
func (c *simulateCommand) config() (world.Config, error) {
	if c.replicas < 1 || c.ranks < 1 || c.clients < 0 || c.think < 0 || c.think > 0 && c.clients == 0 {
		return world.Config{}, usageError{errors.New("--replicas and --ranks: give 1 or more; --clients and --think 0 or more, and --think with --clients only")}
	}
	if c.preset != "" && (c.like != "" || c.time != "") {
		return world.Config{}, usageError{errors.New("--preset: give it without --like and --time")}
	}
	router, err := routerNamed(c.router)
	if err != nil {
		return world.Config{}, err
	}
	rank, model, err := c.kind()
	if err != nil {
		return world.Config{}, err
	}
	config := world.Config{Seed: c.seed, Until: c.until, Version: numbered(), Router: router, Client: c.client}
	if len(rank.GPUs) > 0 {
		config.Sampling = time.Second
	}
	for i := range c.replicas {
		r := world.Replica{Name: fmt.Sprintf("replica-%d", i), Front: c.front}
		for k := range c.ranks {
			one := rank
			if one.Model, err = model(c.seed + uint64(i*c.ranks+k)); err != nil {
				return config, err
			}
			r.Ranks = append(r.Ranks, one)
		}
		config.Replicas = append(config.Replicas, r)
	}
	return config, nil
}

// Of the prefix-aware router: how many blocks it remembers, and how many exchanges more a replica may have open than the least loaded.
const (
	routedBlocks     = 1 << 20
	routingImbalance = 16
)

func routerNamed(name string) (world.Router, error) {
	switch name {
	case "round-robin":
		return world.RoundRobin(), nil
	case "least-loaded":
		return world.LeastLoaded(), nil
	case "prefix-aware":
		return world.PrefixAware(routedBlocks, routingImbalance), nil
	}
	return nil, usageError{fmt.Errorf("--router %q: give round-robin, least-loaded or prefix-aware", name)}
}

// kind is one engine without its model, and what makes models of its kind.
func (c *simulateCommand) kind() (world.Rank, func(seed uint64) (timing.Model, error), error) {
	c.front = world.DefaultFront
	rank := world.Rank{Version: "0.32.0", Settings: world.DefaultSettings(), Accept: acceptance}
	if c.gpus {
		rank.GPUs = []world.GPU{world.DefaultGPU}
	}
	calibration, err := c.calibration(&rank)
	if err != nil {
		return rank, nil, err
	}
	rank.Version = cmp.Or(c.version, rank.Version)
	for _, pair := range c.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return rank, nil, usageError{fmt.Errorf("--set %q: give 'name=value'", pair)}
		}
		if err := world.Set(rank.Settings, name, value); err != nil {
			return rank, nil, usageError{fmt.Errorf("--set: %w", err)}
		}
	}
	switch {
	case calibration != nil:
		if !calibration.Provenance.Device { // no rank of it timed a device: it computed on its host, as far as is known
			rank.GPUs = nil
		}
		return rank, func(seed uint64) (timing.Model, error) { return calibration.Model(seed), nil }, nil
	case c.preset != "":
		p, err := timing.PresetNamed(c.preset)
		if err != nil {
			return rank, nil, usageError{err}
		}
		_, s, err := simulate.FromHello(rank.Version, rank.Settings)
		return rank, func(uint64) (timing.Model, error) { return p.Model(s.Blocks, s.BlockSize) }, err
	}
	made := timing.MadeUp()
	return rank, func(seed uint64) (timing.Model, error) { return made.Model(seed), nil }, made.Validate()
}

// acceptance of a speculated token.
const acceptance = 0.7

// calibration is what --time and --like say of an engine's times, nil if neither is given; --like also gives the engine's settings.
func (c *simulateCommand) calibration(rank *world.Rank) (calibration *timing.Calibration, err error) {
	if c.like != "" {
		a := ingest.New()
		if err := c.e.load([]string{c.like}, a); err != nil {
			return nil, err
		}
		b := a.Book()
		e, err := server.FindEngine(b, c.engine)
		if err != nil {
			return nil, fmt.Errorf("--like %s: %w", c.like, err)
		}
		c.front = world.FrontLike(b)
		rank.Version, rank.Settings = e.Version, maps.Clone(e.Settings)
		if c.time == "" {
			calibration, err = timing.Calibrate(e, func(uint64) bool { return true })
			return calibration, err
		}
	}
	if c.time == "" {
		return nil, nil
	}
	f, err := os.Open(c.time)
	if err != nil {
		return nil, fmt.Errorf("--time: %w", err)
	}
	defer f.Close()
	if calibration, err = timing.Read(f); err != nil {
		err = fmt.Errorf("--time %s: %w", c.time, err)
	}
	return calibration, err
}
