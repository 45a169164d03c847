package engineproof

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// Run is one engine under load, and what each source said of it. Its files lie in Dir: [Capture] and a client-<i>.wlc for each load.
type Run struct {
	Dir     string
	Results []replay.Result // what the clients saw
	Log     []LogLine       // the engine's own iteration log
	Metrics string          // its counters

	loads int
}

// Capture is the name of the file with the probe's records.
const Capture = "capture.wlc"

// Build makes the program.
func Build(ctx context.Context, binary string) error {
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("build whylate: %w\n%s", err, out)
	}
	return nil
}

// Play sends one load and records what its clients saw beside the capture; change, if not nil, makes the clients special.
func (r *Run) Play(ctx context.Context, e *engineenv.Engine, load []experiment.Request, change func(*replay.Options)) (results []replay.Result, err error) {
	i := r.loads
	r.loads++
	f, err := os.Create(filepath.Join(r.Dir, clientFile(i)))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := wire.NewCaptureWriter(f)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	name := fmt.Sprintf("proof-%d", i)
	hello, err := replay.Hello("proof", name)
	if err != nil {
		return nil, err
	}
	recorder, err := replay.NewRecorder(w, hello)
	if err != nil {
		return nil, err
	}
	o := replay.Options{Base: e.URL, Model: engineenv.Model, Run: name, Seed: uint64(i), Prompt: experiment.PromptOptions{Seed: uint64(i)},
		Recorder: func(c replay.Result) { recorder.Record(c); results = append(results, c) }}
	if change != nil {
		change(&o)
	}
	_, err = replay.Run(ctx, o, load)
	r.Results = append(r.Results, results...)
	return results, errors.Join(err, recorder.Close())
}

func clientFile(i int) string { return fmt.Sprintf("client-%d.wlc", i) }

// Files are the names of all captures of the run, the probe's first.
func (r *Run) Files() []string {
	names := []string{Capture}
	for i := range r.loads {
		names = append(names, clientFile(i))
	}
	return names
}

// Reload takes up the results of an earlier run of so many loads from its files.
func (r *Run) Reload(loads int) error {
	r.loads = loads
	for i := range loads {
		c, err := wire.OpenCapture(filepath.Join(r.Dir, clientFile(i)))
		if err != nil {
			return err
		}
		for {
			record, err := c.Next()
			if err != nil {
				break
			}
			var m wire.Client
			if record.Opened != nil || record.Gap != nil || record.Frame.Type != wire.TypeClient || wire.Decode(record.Frame, &m) != nil {
				continue
			}
			r.Results = append(r.Results, result(&m))
		}
		c.Close()
	}
	return nil
}

func result(m *wire.Client) replay.Result {
	r := replay.Result{Planned: m.Planned, Sent: m.Time, First: m.First, End: m.End, Status: int(m.Status), Outcome: replay.Outcome(m.Outcome),
		OutputTokens: int(m.Output), RequestID: m.RequestID, Traceparent: m.Traceparent, Class: m.Class, Error: m.Error}
	at := m.Time
	for _, g := range m.Gaps {
		at += int64(g) * 1000
		r.Chunks = append(r.Chunks, replay.Chunk{At: at})
	}
	return r
}

// Open reads captures of the run, frames passing through edit if it is not nil.
func (r *Run) Open(edit func(wire.Frame) (wire.Frame, bool), names ...string) (*query.Ledger, error) {
	a := ingest.New()
	for _, name := range names {
		f, err := os.Open(filepath.Join(r.Dir, name))
		if err != nil {
			return nil, err
		}
		err = ingest.ReadCapture(f, name, editing{a, edit})
		f.Close()
		if err != nil {
			return nil, err
		}
	}
	return query.Open(a.Book()), nil
}

// editing is a sink that drops or changes frames on their way.
type editing struct {
	wire.Sink
	edit func(wire.Frame) (wire.Frame, bool)
}

func (d editing) Frame(source uint16, f wire.Frame) error {
	if d.edit != nil {
		var keep bool
		if f, keep = d.edit(f); !keep {
			return nil
		}
	}
	return d.Sink.Frame(source, f)
}

// LogLine is one line of the engine's own iteration log: 0-based, empty steps left out, recompute counted as generation.
type LogLine struct {
	Index   int
	Tokens  int     // context and generation
	Elapsed float64 // ms, of waiting for the result alone
}

var iterationLine = regexp.MustCompile(`Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, (\d+) generation tokens, iteration elapsed time: ([0-9.]+) ms`)

// ReadLog reads the engine's log. It fails if the log says that a hook of the probe disabled itself.
func (r *Run) ReadLog(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r.Log = nil
	for _, m := range iterationLine.FindAllStringSubmatch(string(b), -1) {
		n := make([]int, 6)
		for i := 1; i < 6; i++ {
			n[i], _ = strconv.Atoi(m[i])
		}
		elapsed, _ := strconv.ParseFloat(m[6], 64)
		if tokens := n[3] + n[5]; tokens > 0 { // older versions log empty steps, too
			r.Log = append(r.Log, LogLine{n[1], tokens, elapsed})
		}
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, "whylate disabled a hook") {
			return fmt.Errorf("a hook of the probe disabled itself: %s", strings.TrimSpace(line))
		}
	}
	return nil
}

// Counter is the value of a counter among the engine's metrics, the sum over its series.
func (r *Run) Counter(name string) (float64, bool) {
	var sum float64
	found := false
	for line := range strings.Lines(r.Metrics) {
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
