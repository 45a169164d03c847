package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/wire"
)

// defaultRingDir is where probes put their rings (docs/formats/stream.md §3).
const defaultRingDir = "/dev/shm/whylate"

func (e *env) capture() *cobra.Command {
	var c capture
	cmd := &cobra.Command{
		Use:   "capture [FILE]",
		Short: "Record the engines of this host into a file",
		Long: `Follow the rings of all engines on this host into a capture file, until interrupted or for the given time. Rings begin with
what they still hold, so the time before the command is in the capture too. Engines that start later join by themselves.

With --from-ring, copy what rings hold now and stop: after a crash, a dead engine's ring is its flight recorder.

Without FILE the capture goes to $WHYLATE_DATA_DIR, where the other commands look for it. A capture can be read while it grows.`,
		Example: `  whylate capture                       until Ctrl-C
  whylate capture --for 60s run.wlc
  whylate capture --from-ring /dev/shm/whylate/ crash.wlc`,
		Args: args(0, 1, "at most one file"),
		RunE: func(cmd *cobra.Command, files []string) error {
			if len(files) == 1 {
				c.file = files[0]
			}
			return c.run(cmd.Context(), e)
		},
	}
	cmd.Flags().StringVar(&c.dir, "ring-dir", cmp.Or(os.Getenv("WHYLATE_RING_DIR"), defaultRingDir), "directory of the rings ($WHYLATE_RING_DIR)")
	cmd.Flags().StringArrayVar(&c.rings, "from-ring", nil, "copy this ring, or all rings of this directory, and stop; may be repeated")
	cmd.Flags().DurationVar(&c.length, "for", 0, "stop after so long; 0 = until interrupted")
	cmd.Flags().DurationVar(&c.every, "every", 20*time.Millisecond, "how often the rings are looked at")
	cmd.Flags().BoolVar(&c.newest, "from-now", false, "leave out what the rings held before")
	return cmd
}

type capture struct {
	dir, file string
	rings     []string
	length    time.Duration
	every     time.Duration
	newest    bool
}

// flushEvery is how old a record may be before it is in the file: what a crash of this command may lose, and how far a
// reader of the growing file is behind.
const flushEvery = time.Second

func (c *capture) run(ctx context.Context, e *env) (err error) {
	if c.every <= 0 {
		return usageError{fmt.Errorf("--every %v: give a time above 0", c.every)}
	}
	if c.file == "" {
		if err := os.MkdirAll(dataDir(), 0o700); err != nil {
			return fmt.Errorf("make the data directory: %w", err)
		}
		c.file = filepath.Join(dataDir(), "capture-"+time.Now().Format(stamp)+".wlc")
	}
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("open the capture: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := wire.NewCaptureWriter(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()

	var frames int
	if len(c.rings) > 0 {
		frames, err = c.copy(e, w)
	} else {
		frames, err = c.follow(ctx, e, w)
	}
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	fmt.Fprintf(e.err, "%d records, %d bytes: %s\n", frames, w.Size(), c.file)
	if err == nil && frames == 0 {
		return fmt.Errorf("%w: no record was found; is an engine with the probe (whylate-vllm) running, and is --ring-dir where it writes?", errNoSource)
	}
	if err == nil {
		fmt.Fprintf(e.err, "next: whylate requests --from %s\n", c.file)
	}
	return err
}

// copy takes what the named rings hold.
func (c *capture) copy(e *env, w *wire.CaptureWriter) (int, error) {
	var paths []string
	for _, p := range c.rings {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			found, _ := filepath.Glob(filepath.Join(p, "*.ring"))
			paths = append(paths, found...)
			continue
		}
		paths = append(paths, p)
	}
	return wire.CopyRings(paths, w, time.Now().UnixNano())
}

// follow takes what the rings of the directory get, until the context or the time ends. A ring that cannot be read is
// named once; the others go on.
func (c *capture) follow(ctx context.Context, e *env, w *wire.CaptureWriter) (frames int, err error) {
	if c.length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.length)
		defer cancel()
	}
	f := wire.NewFollower(c.dir, w)
	f.Newest = c.newest
	defer f.Close()
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	fmt.Fprintf(e.err, "recording the rings of %s into %s; Ctrl-C stops\n", c.dir, c.file)
	flushed := time.Now()
	for {
		n, problem := f.Poll(time.Now().UnixNano())
		frames += n
		if problem != nil {
			fmt.Fprintf(e.err, "whylate: %v\n", problem)
		}
		if time.Since(flushed) >= flushEvery {
			if err := w.Flush(); err != nil {
				return frames, fmt.Errorf("write the capture: %w", err)
			}
			flushed = time.Now()
		}
		select {
		case <-ctx.Done():
			n, _ := f.Poll(time.Now().UnixNano())
			return frames + n, nil
		case <-tick.C:
		}
	}
}
