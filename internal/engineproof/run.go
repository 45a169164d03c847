package engineproof

import (
	"context"
	"fmt"
	"os"
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

// Play sends one load and records what its clients saw beside the capture; change, if not nil, makes the clients special.
func (r *Run) Play(ctx context.Context, e *engineenv.Engine, load []experiment.Request, change func(*replay.Options)) ([]replay.Result, error) {
	i := r.loads
	r.loads++
	results, err := e.Play(ctx, filepath.Join(r.Dir, clientFile(i)), "proof", fmt.Sprintf("proof-%d", i), uint64(i), load, change)
	r.Results = append(r.Results, results...)
	return results, err
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
		results, err := engineenv.ReadPlayed(filepath.Join(r.Dir, clientFile(i)))
		if err != nil {
			return err
		}
		r.Results = append(r.Results, results...)
	}
	return nil
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
func (r *Run) Counter(name string) (float64, bool) { return engineenv.Counter(r.Metrics, name) }
