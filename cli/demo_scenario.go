package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/experiment/incident"
	"github.com/whylate/whylate/experiment/simulate/dialect"
)

// liveIncident is an incident that is played live.
type liveIncident struct {
	e     *env
	name  string
	speed float64
	p     incident.Params
}

func (s *liveIncident) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	d := incident.Defaults()
	s.p = d
	f.StringVar(&s.name, "scenario", "", "play this incident live")
	f.Float64Var(&s.speed, "speed", 1, "of --scenario: play so many times as fast")
	f.Float64Var(&s.p.Severity, "severity", d.Severity, "of --scenario: above 0, up to 1")
	f.Uint64Var(&s.p.Seed, "seed", d.Seed, "of --scenario: of all that is left to chance")
	f.DurationVar(&s.p.Length, "length", d.Length, "of --scenario: how long requests arrive")
}

// run plays it beside a server, and serves on until the context ends.
func (s *liveIncident) run(ctx context.Context, listen string, once bool) (err error) {
	i, err := incidentNamed(s.name)
	if err != nil {
		return err
	}
	if !(s.speed > 0 && s.speed <= 1000) {
		return usageError{fmt.Errorf("--speed %v: give more than 0, up to 1000", s.speed)}
	}
	on, err := s.e.likeEngine("", "")
	if err != nil {
		return err
	}
	// What is recorded never lies in the future: played faster, a run begins so far in the past that it ends now.
	s.p.Version = numbered()
	s.p.Begin = time.Now().Add(time.Duration(float64(s.p.Length)/s.speed) - s.p.Length)
	p, err := i.Prepare(s.p, on)
	if err != nil {
		return usageError{err}
	}
	if i.OfPages() {
		return usageError{fmt.Errorf("--scenario %s: it shows in the pages of a bundle only: play it with 'whylate simulate %s'", s.name, s.name)}
	}
	dir, err := os.MkdirTemp("", "whylate-demo-")
	if err != nil {
		return err
	}
	rings := filepath.Join(dir, "rings")
	if err := os.Mkdir(rings, 0o700); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	d, err := startTemporary(ctx, dir, rings)
	if err != nil {
		return err
	}
	defer d.stop()
	live := dialect.NewLive(rings, dialect.RingSize)
	defer func() { err = errors.Join(err, live.Close()) }()
	answers, err := listenNear(listen)
	if err != nil {
		return err
	}
	pages, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, answers.Close())
	}
	served, stop := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() { done <- serveHTTP(served, d.handler(), answers, nil) }()
	go func() {
		done <- serveUntil(served, &http.Server{Handler: live, ReadHeaderTimeout: 10 * time.Second}, pages)
	}()
	defer func() { stop(); err = errors.Join(err, <-done, <-done) }()

	out := s.e.out
	fmt.Fprintln(out, s.e.bold(i.Name)+": "+i.What)
	onset, lasts := p.Fault()
	fmt.Fprintf(out, "The fault begins after %s and lasts %s; the run takes %s.\n", s.real(onset), s.real(lasts), s.real(s.p.Length))
	fmt.Fprintf(out, "API: http://%s/api/v1 · metrics pages: http://%s/replica-0/metrics\nin another terminal: whylate top --server http://%s\n", answers.Addr(), pages.Addr(), answers.Addr())
	summary, err := p.Run(live, s.pace(ctx))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Over: %d requests, %d answered; the server has seen %d.\n", summary.Requests, summary.Complete, s.seen(ctx, d, summary.Requests))
	if once {
		return nil
	}
	fmt.Fprintf(s.e.err, "serving it until Ctrl-C\n")
	<-ctx.Done()
	return nil
}

// seen is how many requests the server knows, once it has caught up with the rings.
func (s *liveIncident) seen(ctx context.Context, d *demonstration, all int) (n int) {
	for range 50 {
		if o, err := d.server.Overview(ctx); err == nil {
			n = o.Requests
		}
		if n >= all || sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return n
}

// real is how long something takes to watch.
func (s *liveIncident) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) / s.speed).Round(time.Millisecond)
}

// pace lets the world wait for the real time.
func (s *liveIncident) pace(ctx context.Context) func(at time.Duration) error {
	begun := time.Now()
	return func(at time.Duration) error {
		left := s.real(at) - time.Since(begun)
		if left < time.Millisecond {
			return ctx.Err()
		}
		return sleep(ctx, left)
	}
}
