package engineenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/wire"
)

// Build builds the program whylate into dir and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "whylate")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/whylate").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build whylate: %w\n%s", err, out)
	}
	return binary, nil
}

// Capture is a running 'whylate capture'.
type Capture struct{ cmd *exec.Cmd }

// Record begins to record the rings of a directory into file.
func Record(binary, rings, file string) (*Capture, error) {
	cmd := exec.Command(binary, "capture", "--ring-dir", rings, file)
	cmd.Stderr = os.Stderr
	return &Capture{cmd}, cmd.Start()
}

// Stop ends it as a person would, and waits until the file is whole.
func (c *Capture) Stop() error {
	c.cmd.Process.Signal(syscall.SIGINT)
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("whylate capture: %w", err)
	}
	return nil
}

// Kill ends it anyhow, after a failure.
func (c *Capture) Kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

// Play plays a load and writes what its clients saw into file, as a capture of its own; it also returns it. name and run say whose
// records they are; change, if not nil, makes the clients special.
func (e *Engine) Play(ctx context.Context, file, name, run string, seed uint64, load []experiment.Request, change func(*replay.Options)) (results []replay.Result, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := wire.NewCaptureWriter(f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	hello, err := replay.Hello(name, run)
	if err != nil {
		return nil, err
	}
	recorder, err := replay.NewRecorder(w, hello)
	if err != nil {
		return nil, err
	}
	o := replay.Options{Base: e.URL, Model: Model, Run: run, Seed: seed, Prompt: experiment.PromptOptions{Seed: seed},
		Recorder: func(r replay.Result) { recorder.Record(r); results = append(results, r) }}
	if change != nil {
		change(&o)
	}
	_, err = replay.Run(ctx, o, load)
	return results, errors.Join(err, recorder.Close())
}

// ReadPlayed takes up again what the clients of a load saw, from the file that [Engine.Play] wrote.
func ReadPlayed(file string) ([]replay.Result, error) {
	r, err := wire.OpenCapture(file)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var results []replay.Result
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return results, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		var c wire.Client
		if record.Opened != nil || record.Gap != nil || record.Frame.Type != wire.TypeClient || wire.Decode(record.Frame, &c) != nil {
			continue
		}
		res := replay.Result{Planned: c.Planned, Sent: c.Time, First: c.First, End: c.End, Status: int(c.Status), Outcome: replay.Outcome(c.Outcome),
			OutputTokens: int(c.Output), RequestID: c.RequestID, Traceparent: c.Traceparent, Class: c.Class, Error: c.Error}
		at := c.Time
		for _, g := range c.Gaps {
			at += int64(g) * 1000
			res.Chunks = append(res.Chunks, replay.Chunk{At: at})
		}
		results = append(results, res)
	}
}

// Counter is the value of a counter or gauge in an engine's metrics, the sum over its series; false if there is none.
func Counter(metrics, name string) (float64, bool) {
	var sum float64
	found := false
	for _, line := range strings.Split(metrics, "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok && (strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, " ")) {
			fields := strings.Fields(rest)
			if v, err := strconv.ParseFloat(fields[len(fields)-1], 64); err == nil {
				sum += v
				found = true
			}
		}
	}
	return sum, found
}
