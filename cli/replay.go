package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/wire"
)

func (e *env) replay() *cobra.Command {
	c := replayCommand{in: workloadInput{e: e}}
	cmd := &cobra.Command{
		Use:   "replay WORKLOAD",
		Short: "Send a workload to an engine, and record what its clients see",
		Long: `Send the requests of a workload to any OpenAI-compatible endpoint, each at its planned time whatever the server does (open loop),
and record what the client sees of each: when it was sent, when each chunk came, how it ended. With --clients there are so many
clients instead, each of which sends its next request when it has its answer and has thought about it (closed loop).

Latencies are given from the planned time as well as from the sending, so that a slow server does not hide its own delay. The
record lies beside the captures, where 'whylate explain' joins it to what the engine did.

A line of a workload: {"at_ns": 0, "prompt_tokens": 64, "output_tokens": 32}; also prefix, n, priority, logprobs, prompt_logprobs,
cancel_after_ns, cancel_after_chunks, class, id, traceparent, ignore_eos. Traces of Azure, BurstGPT and Mooncake are played as they
are; 'whylate workload convert' cuts and shortens them first. A file is checked to its end before anything is sent; WORKLOAD '-'
is standard input, which is read as it is played.`,
		Example: `  whylate replay load.jsonl --url http://127.0.0.1:8000 --model tiny
  whylate replay load.jsonl --url https://llm.example --token-file key --speed 2 --out run/client.wlc
  whylate workload convert azure.csv --first 200 --fit 4096 | whylate replay - --url http://127.0.0.1:8000
  whylate replay load.jsonl --url http://127.0.0.1:8000 --clients 8 --think 5s`,
		Args: args(1, 1, "one workload"),
		RunE: func(cmd *cobra.Command, files []string) error { return c.run(cmd, e, files[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&c.o.Base, "url", "", "the endpoint, such as http://127.0.0.1:8000 (required)")
	f.StringVar(&c.o.Model, "model", "", "model to name; empty lets the server choose")
	f.BoolVar(&c.o.Chat, "chat", false, "use /v1/chat/completions instead of /v1/completions")
	f.BoolVar(&c.o.TextPrompt, "text", false, "send prompts as text instead of token ids")
	f.Float64Var(&c.o.Speed, "speed", 1, "2 sends in half the time")
	f.Uint64Var(&c.o.Prompt.Seed, "seed", 0, "of the prompts' tokens: give a new one to an engine whose prefix cache is warm from the last replay")
	f.Float64Var(&c.o.Temperature, "temperature", 0, "sampling temperature")
	f.IntVar(&c.o.MaxInFlight, "max-in-flight", 4096, "most requests under way at once")
	f.DurationVar(&c.o.Timeout, "timeout", 10*time.Minute, "for one attempt")
	f.IntVar(&c.o.Retries, "retries", 0, "more attempts after a refusal")
	f.StringVar(&c.o.Run, "run", "", "name of this replay in its request ids")
	f.BoolVar(&c.o.NoTraceparent, "no-traceparent", false, "send no traceparent")
	f.StringVar(&c.tokenFile, "token-file", "", "file with the bearer token")
	f.StringArrayVar(&c.headers, "header", nil, "one more header, 'Name: value'; may be repeated")
	f.StringVar(&c.file, "out", "", "capture to write; default: replay-<time>.wlc in $WHYLATE_DATA_DIR")
	f.IntVar(&c.clients, "clients", 0, "let so many clients share the requests, each waiting for its answer before it sends the next; the times of the workload do not count")
	f.DurationVar(&c.think, "think", 0, "mean time from an answer to the client's next request (exponentially distributed); needs --clients")
	c.in.flags(cmd)
	c.out.flags(cmd)
	cmd.MarkFlagRequired("url")
	return cmd
}

type replayCommand struct {
	o         replay.Options
	out       output
	file      string
	tokenFile string
	headers   []string
	in        workloadInput
	clients   int
	think     time.Duration
}

func (c *replayCommand) run(cmd *cobra.Command, e *env, path string) (err error) {
	if c.clients < 0 || c.think < 0 || c.think > 0 && c.clients == 0 {
		return usageError{errors.New("--clients and --think: give 0 or more, and --think with --clients only")}
	}
	total, err := c.check(path)
	if err != nil {
		return err
	}
	in, err := c.in.open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	load := experiment.Open(in)
	if c.clients > 0 {
		load = workload.Closed(in, c.clients, c.think, c.o.Prompt.Seed)
	}
	if c.o.Token, err = readToken(c.tokenFile); err != nil {
		return err
	}
	c.o.Header = http.Header{}
	for _, h := range c.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return usageError{fmt.Errorf("--header %q: give 'Name: value'", h)}
		}
		c.o.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}

	begun := time.Now()
	if c.o.Run == "" {
		c.o.Run = begun.Format(stamp)
	}
	if c.file == "" {
		if err := os.MkdirAll(dataDir(), 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
		c.file = filepath.Join(dataDir(), "replay-"+begun.Format(stamp)+".wlc")
	}
	file, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open the record: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w, err := wire.NewCaptureWriter(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	hello, err := replay.Hello(Version, c.o.Run)
	if err != nil {
		return err
	}
	recorder, err := replay.NewRecorder(w, hello)
	if err != nil {
		return err
	}
	done, last := 0, time.Now()
	show := isTerminal(e.err)
	c.o.Recorder = func(r replay.Result) {
		recorder.Record(r)
		done++
		if show && time.Since(last) > 200*time.Millisecond {
			last = time.Now()
			fmt.Fprintf(e.err, "\r%d%s answered, %.0f s ", done, total, time.Since(begun).Seconds())
		}
	}
	summary, err := replay.Play(cmd.Context(), c.o, load)
	if show {
		fmt.Fprint(e.err, "\r\x1b[K")
	}
	err = errors.Join(err, recorder.Close())
	if perr := c.out.print(e, &summary, func() { summary.Write(e.out) }); err == nil {
		err = perr
	}
	fmt.Fprintf(e.err, "what the clients saw: %s\n", c.file)
	in.tell(e)
	if err == nil && summary.Requests == 0 {
		err = fmt.Errorf("the workload %s has no request", path)
	}
	return err
}

// check reads a file to its end, so that a bad line is told before anything is sent, and says how many requests there will be.
// What cannot be read twice is not checked.
func (c *replayCommand) check(path string) (total string, err error) {
	if info, err := os.Stat(path); path == "-" || err == nil && !info.Mode().IsRegular() {
		return "", nil
	}
	w, err := c.in.open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	n := 0
	for {
		switch _, err := w.Next(); {
		case err == io.EOF && n == 0:
			return "", fmt.Errorf("the workload %s has no request", path)
		case err == io.EOF:
			return fmt.Sprintf(" of %d", n), nil
		case err != nil:
			return "", err
		}
		n++
	}
}
