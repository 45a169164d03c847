package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/whylate/whylate/experiment/simulate/fidelity"
)

// checked is what --check found in one capture.
type checked struct {
	File    string            `json:"file"`
	Engines []fidelity.Result `json:"engines"`
}

// checkAll holds the simulator against captures. One that cannot be read is an error; an engine that cannot be played again is told.
func (c *simulateCommand) checkAll(files []string) error {
	var all []checked
	for _, name := range files {
		engines, err := checkCapture(name)
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", errNoSource, err)
		}
		if err != nil {
			return fmt.Errorf("check %s: %w", name, err)
		}
		all = append(all, checked{name, engines})
	}
	return c.out.print(c.e, all, func() { c.printChecked(all) })
}

func checkCapture(name string) ([]fidelity.Result, error) {
	var in io.ReadCloser = io.NopCloser(bytes.NewReader(demoCapture))
	if name != demoName {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		in = f
	}
	defer in.Close()
	return fidelity.ReadCapture(in, name)
}

func (c *simulateCommand) printChecked(all []checked) {
	t := c.e.table("CAPTURE", "ENGINE", "VERSION", "SCHEDULING", "DECISIONS", "RIGHT", "NON-TRIVIAL", "RIGHT OF THEM", "BASELINE", "… OF THEM")
	for _, file := range all {
		for _, r := range file.Engines {
			if r.Refused != "" {
				t.row(file.File, r.Engine, r.Version, r.Settings, "refused", "", "", "", "", "")
				continue
			}
			t.row(file.File, r.Engine, r.Version, r.Settings, fmt.Sprint(r.Free.Decisions), share(r.Free.Right, r.Free.Decisions), fmt.Sprint(r.Free.Nontrivial),
				share(r.Free.RightOfThem, r.Free.Nontrivial), share(r.Baseline.Right, r.Baseline.Decisions), share(r.Baseline.RightOfThem, r.Baseline.Nontrivial))
		}
	}
	t.end()
	for _, file := range all {
		for _, r := range file.Engines {
			if r.Refused != "" {
				fmt.Fprintf(c.e.out, "%s, %s: not played again: %s\n", file.File, r.Engine, plain(r.Refused))
			}
			for _, kind := range slices.Sorted(maps.Keys(r.Free.Kinds)) {
				fmt.Fprintf(c.e.out, "%s, %s: parted %d times in: %s\n", file.File, r.Engine, r.Free.Kinds[kind], kind)
			}
			for _, example := range r.Free.Examples {
				fmt.Fprintf(c.e.out, "  %s\n", plain(example))
			}
		}
	}
	fmt.Fprintln(c.e.out, "free running: never told what the engine decided. Not done is one step, from the engine's state before each decision: a capture does not tell the order of its free blocks.")
}

// share is a part in percent, cut off and not rounded: 100 % is all.
func share(part, of int) string {
	if of == 0 {
		return "-"
	}
	hundredths := 10_000 * part / of
	return fmt.Sprintf("%d.%02d %%", hundredths/100, hundredths%100)
}
