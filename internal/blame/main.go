// Command blame measures whether the milliseconds that 'whylate explain' charges to a culprit are the milliseconds that its victims
// lose to it. Fixed arrivals are replayed on a real engine with the requests that explain named, without them, and, as a sham, without
// requests of equal size that nobody blames. It is what 'make blame' runs; docs/blame.md says how to read what it prints.
//
// BLAME_DIR=dir keeps the run there; called again with the same folder it only judges again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/figure"
)

const version = "0.32.0"

func main() {
	only := flag.String("only", "", "cases to play, separated by commas: "+strings.Join(names(), ", ")+"; empty = all")
	repeats := flag.Int("repeats", 0, "how often each arm of a case is played; 0 = 5 for cases with a sham, once for the others")
	seed := flag.Uint64("seed", 1, "of the order in which arms are played")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	sheet := figure.New(os.Stdout, "make blame")
	err := run(ctx, sheet, *only, *repeats, *seed)
	switch {
	case errors.Is(err, engineenv.ErrNotInstallable):
		fmt.Println("blame: NOT RUN: vLLM could not be installed on this machine; nothing was measured on a real engine")
		sheet.AtLeast("blame/engine_ran", 0, "count", 1)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "blame:", err)
		os.Exit(1)
	}
	if err := sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "blame:", err)
		os.Exit(1)
	}
	if len(sheet.Over) > 0 {
		fmt.Printf("blame: over: %s\n", strings.Join(sheet.Over, ", "))
	}
}

func run(ctx context.Context, sheet *figure.Sheet, only string, repeats int, seed uint64) error {
	chosen := cases
	if only != "" {
		chosen = nil
		for _, name := range strings.Split(only, ",") {
			i := slices.Index(names(), name)
			if i < 0 {
				return fmt.Errorf("-only %q: the cases are %s", name, strings.Join(names(), ", "))
			}
			chosen = append(chosen, cases[i])
		}
	}
	dir := os.Getenv("BLAME_DIR")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "whylate-blame-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	s := &session{dir: dir, Culprits: map[string][]string{}}
	if _, err := os.Stat(filepath.Join(dir, sessionFile)); err == nil {
		if err := s.load(); err != nil {
			return err
		}
	} else {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := s.play(ctx, chosen, repeats, seed); err != nil {
			return err
		}
	}
	return s.judge(sheet, chosen)
}
