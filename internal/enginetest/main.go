// Command enginetest proves the probe and the answers on real engines in every weather that can be made here: four versions, cold
// starts, several API servers and ranks, an exhausted pool, frozen and killed processes, slow and hanging-up clients, and every fault
// around the probe. It is what 'make engine-test' runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/internal/figure"
)

// scenarios are played in this order. Those that say so play on the newest version's server of 'versions', which is warm by then.
var scenarios = []struct {
	name string
	do   func(*bench, context.Context) error
}{
	{"versions", (*bench).versions}, // cold start, storm, compile stall, mixed load: on every version
	{"kv", (*bench).exhaustion},     // shared server
	{"frontend", (*bench).frontEnd}, // shared server
	{"frozen", (*bench).frozen},     // shared server
	{"servers", (*bench).servers},   // two API servers
	{"ranks", (*bench).ranks},       // two data-parallel ranks
	{"killed", (*bench).killed},     // four servers, one after the other
	{"harmless", (*bench).harmless}, // a server for each group of faults
}

func main() {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	versions := flag.String("versions", "0.20.2 0.24.0 0.30.0 0.32.0", "vLLM versions, separated by spaces; the last is the one of all other scenarios")
	only := flag.String("only", "", "these scenarios alone, separated by commas: "+strings.Join(names, ", "))
	keep := flag.String("keep", "", "folder in which everything stays: captures, logs, compile caches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	b := &bench{Report: &engineproof.Report{Sheet: figure.New(os.Stdout, "make engine-test"), Out: os.Stdout}, all: strings.Fields(*versions), dir: *keep, prepared: map[string]string{}}
	chosen := names
	if *only != "" {
		chosen = strings.Split(*only, ",")
	}
	for _, c := range chosen {
		if !slices.Contains(names, c) {
			fmt.Fprintf(os.Stderr, "engine-test: -only %s: the scenarios are %s\n", c, strings.Join(names, ", "))
			os.Exit(2)
		}
	}
	err := b.run(ctx, chosen)
	switch {
	case errors.Is(err, engineenv.ErrNotInstallable):
		fmt.Printf("engine-test: NOT RUN: %v; nothing was proven\n", err)
		b.Sheet.AtLeast("engine-test/engines_ran", 0, "count", 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "engine-test:", err)
		os.Exit(1)
	}
	if err := b.Sheet.Save("docs/figures.tsv"); err != nil {
		fmt.Fprintln(os.Stderr, "engine-test:", err)
	}
	if !b.Conclude("engine-test") {
		os.Exit(1)
	}
}

// bench is what all scenarios share.
type bench struct {
	*engineproof.Report
	all      []string          // versions
	dir      string            // of everything
	binary   string            // whylate
	prepared map[string]string // folder of each version: probe, model, compile caches
	shared   *site             // the newest version's server, nil before its first use
}

func (b *bench) run(ctx context.Context, chosen []string) (err error) {
	if len(b.all) == 0 {
		return errors.New("-versions: name one at least")
	}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "whylate-engines-"); err != nil {
			return err
		}
		defer os.RemoveAll(b.dir)
		if err := os.Chmod(b.dir, 0o755); err != nil { // an engine of another user reads it
			return err
		}
	}
	if b.binary, err = engineenv.Build(ctx, b.dir); err != nil {
		return err
	}
	defer func() {
		if b.shared != nil {
			b.shared.stop()
		}
	}()
	begun := time.Now()
	for _, s := range scenarios {
		if !slices.Contains(chosen, s.name) {
			continue
		}
		from := time.Now()
		fmt.Printf("== %s\n", s.name)
		if err := s.do(b, ctx); err != nil {
			if ctx.Err() != nil || errors.Is(err, engineenv.ErrNotInstallable) {
				return err
			}
			b.Check(false, "%s: %v", s.name, err)
		}
		fmt.Printf("== %s took %.0f s\n", s.name, time.Since(from).Seconds())
	}
	if len(chosen) == len(scenarios) {
		b.Sheet.AtMost("engine-test/all", time.Since(begun).Minutes(), "min", 35)
	}
	return nil
}

// newest is the version of all scenarios that do not go through the versions.
func (b *bench) newest() string { return b.all[len(b.all)-1] }
