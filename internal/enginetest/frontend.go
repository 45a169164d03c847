package main

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/engineproof"
	"github.com/whylate/whylate/ledger"
)

// frontEnd: what happens before and after the engine is not charged to it.
func (b *bench) frontEnd(ctx context.Context) error {
	s, err := b.common(ctx)
	if err != nil {
		return err
	}
	for _, do := range []func(context.Context, *site) error{b.frozenServer, b.slowClient, b.hangUp} {
		if err := do(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// frozenServer stops the API server for three seconds while streams run; the engine goes on.
func (b *bench) frozenServer(ctx context.Context, s *site) error {
	const pause = 3 * time.Second
	var load engineproof.Load
	for range 4 {
		load.Add("through", 0, 64, 60, nil) // ends in the engine while the server stands
	}
	engineproof.Every(time.Second, 2500*time.Millisecond, 500*time.Millisecond, func(at time.Duration) { load.Add("during", at, 64, 16, nil) })
	var frozen error
	var resumed int64 // on the clients' clock
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(300 * time.Millisecond)
		if frozen = syscall.Kill(s.engine.PID(), syscall.SIGSTOP); frozen == nil {
			time.Sleep(pause)
			resumed = replay.Monotonic{}.Now()
			frozen = syscall.Kill(s.engine.PID(), syscall.SIGCONT)
		}
	}()
	results, err := s.Play(ctx, s.engine, load.Requests(), nil)
	<-done
	if err != nil || frozen != nil {
		return errors.Join(err, frozen)
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	all := answers(l, results, "")
	it := longest(l.Book.Engines[0], all)
	b.Check(time.Duration(it.Duration()) < pause/2, "frontend: the API server stood still for %v, the engine's longest iteration took %v", pause, time.Duration(it.Duration()))
	for _, a := range answers(l, results, "through") {
		own := time.Duration(a.Result.End - a.Result.Sent)
		outside := time.Duration(a.Account.Line(account.Stream).NS + a.Account.Line(account.Frontend).NS)
		inside := time.Duration(a.Account.E2E()) - outside
		f := a.find(diagnose.StreamTail, diagnose.FrontendSlow)
		b.Check(f != nil && outside > pause/2 && inside < own-pause/2, "frontend: %s took %v while the API server stood still, %v of it in front end and stream, %v in the engine (%s)",
			a.id(), own.Round(time.Millisecond), outside.Round(time.Millisecond), inside.Round(time.Millisecond), a.Headline)
	}
	for _, a := range answers(l, results, "during") {
		// Nobody read it until the server went on: that time is before the account, and only the client saw it.
		unread, inside := time.Duration(resumed-a.Result.Sent), time.Duration(a.Account.E2E())
		b.Check(a.Client != nil && time.Duration(a.Client.Outside) > unread-100*time.Millisecond && inside < unread, "frontend: %s was not read for %v: %v outside the account by its client's clock, %v in it",
			a.id(), unread.Round(time.Millisecond), time.Duration(a.Client.Outside).Round(time.Millisecond), inside.Round(time.Millisecond))
	}
	return nil
}

// trickle is a connection whose client reads little at a time.
type trickle struct {
	net.Conn
	rate int // bytes a second
}

func (t trickle) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p[:min(len(p), 4096)])
	time.Sleep(time.Duration(n) * time.Second / time.Duration(t.rate))
	return n, err
}

// slowClient reads more slowly than the engine answers, through small buffers.
func (b *bench) slowClient(ctx context.Context, s *site) error {
	fan := func(r *experiment.Request) { engineproof.Fan(r); r.N = 4 }
	var warm, load engineproof.Load
	warm.Add("warm", 0, 64, 8, fan)
	load.Add("slow", 0, 64, 160, fan)
	if _, err := s.Play(ctx, s.engine, warm.Requests(), nil); err != nil {
		return err
	}
	results, err := s.Play(ctx, s.engine, load.Requests(), func(o *replay.Options) {
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
				outer := c.Control(func(fd uintptr) {
					err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
					// The sender's buffer grows with the segment, which on the loopback has 64 KiB.
					err = errors.Join(err, syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
				})
				return errors.Join(outer, err)
			}}
			conn, err := d.DialContext(ctx, network, address)
			return trickle{conn, 50_000}, err
		}
	})
	if err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	for _, a := range answers(l, results, "slow") {
		f := a.find(diagnose.SlowClient)
		stream := time.Duration(a.Account.Line(account.Stream).NS)
		b.Check(f != nil && stream > hurt && a.Outcome == replay.Complete, "frontend: a client that reads slowly took %v, %v of it after the last token, %v inside send (%s)",
			time.Duration(a.Account.E2E()).Round(time.Millisecond), stream.Round(time.Millisecond), time.Duration(a.SendWait).Round(time.Millisecond), a.Headline)
	}
	return nil
}

// hangUp: clients that go leave requests that end there, and not with their last token.
func (b *bench) hangUp(ctx context.Context, s *site) error {
	var load engineproof.Load
	engineproof.Every(0, time.Second, 200*time.Millisecond, func(at time.Duration) { load.Add("gone", at, 64, 400, engineproof.HangUp) })
	results, err := s.Play(ctx, s.engine, load.Requests(), nil)
	if err != nil {
		return err
	}
	l, err := s.ledger()
	if err != nil {
		return err
	}
	for _, a := range answers(l, results, "gone") {
		q := a.Request.Sequences[0]
		late := time.Duration(a.LastByte - a.Account.From - (a.Result.End - a.Result.Sent))
		b.Check(a.Outcome == replay.Cancelled && a.Request.End == ledger.EndDisconnect && q.Reason == ledger.FinishAbort && q.Finished != 0 && q.Output < 400 && late.Abs() < hurt,
			"frontend: %s hung up after %d chunks: end %s, engine %s after %d of 400 tokens, %v after the client went", a.id(), len(a.Result.Chunks), a.Request.End, q.Reason, q.Output, late.Round(time.Millisecond))
	}
	return nil
}
