package nvml

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/whylate/whylate/gpu"
)

// Exit statuses of the program.
const (
	ExitOK       = 0
	ExitFailed   = 1
	ExitUsage    = 2
	ExitUnusable = 3 // there is no NVML, no driver or no GPU
)

// Main is the program whylate-gpu: it prints a line of JSON for each device and tick.
func Main(ctx context.Context, args []string, out, words io.Writer) int {
	set := flag.NewFlagSet(gpu.Helper, flag.ContinueOnError)
	set.SetOutput(words)
	s := Settings{}
	set.DurationVar(&s.Every, "every", time.Second, "between two samples, at least 100ms")
	set.DurationVar(&s.Patience, "patience", 5*time.Second, "after which a device that is being read is said not to answer")
	set.StringVar(&s.Library, "library", Name, "NVML")
	set.BoolVar(&s.Once, "once", false, "read each device once, and end")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case err != nil:
		return ExitUsage
	}
	w := bufio.NewWriter(out)
	line := json.NewEncoder(w)
	told := map[string]gpu.Device{}
	err := Sample(ctx, s, func(r gpu.Reading) error {
		l := gpu.Line{UUID: r.Device.UUID, Sample: &r.Sample}
		if was, known := told[r.Device.UUID]; !known || r.Device.Name != "" && !was.Same(r.Device) {
			told[r.Device.UUID] = r.Device
			l.Device = &r.Device
		}
		if err := line.Encode(l); err != nil {
			return err
		}
		return w.Flush()
	})
	var unusable *Unusable
	switch {
	case errors.As(err, &unusable):
		fmt.Fprintln(words, err)
		return ExitUnusable
	case err != nil:
		fmt.Fprintln(words, err)
		return ExitFailed
	}
	return ExitOK
}
