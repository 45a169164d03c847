package server

import (
	"context"
	"time"

	"github.com/whylate/whylate/agent"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// OnSample sets who is told what was read of GPUs, also of that which comes from the log. It is to be called before Run, and must not wait.
func (s *Server) OnSample(told func(ingest.Sample)) { s.hot.a.Samples = told }

// sampleGPUs reads this host's GPUs into the log, as an agent would. What comes within a moment is written at once.
func (s *Server) sampleGPUs(ctx context.Context) {
	const moment = 250 * time.Millisecond
	me := agent.Identify("")
	rec := gpu.Recorder{Clock: s.clockPair, Hello: wire.Hello{Producer: wire.Producer{Name: "whylate"}, PID: uint32(me.PID), Start: me.Start, Boot: me.Boot, Host: me.Host}}
	readings := make(chan gpu.Reading, 256)
	go func() {
		defer close(readings)
		gpu.Sample(ctx, *s.set.GPU, func(r gpu.Reading) {
			select {
			case readings <- r:
			case <-ctx.Done():
			}
		})
	}()
	var records []store.Record
	write := func() {
		if len(records) == 0 {
			return
		}
		if err := s.accept(context.WithoutCancel(ctx), records); err != nil { // its sequences are missing then, and told so
			s.faults.note("keep samples of GPUs", err, s.set.Now())
		}
		records = nil
	}
	t := time.NewTicker(moment)
	defer t.Stop()
	for {
		select {
		case r, open := <-readings:
			if !open {
				write()
				return
			}
			record, err := sampleRecord(&rec, r, s.set.Now().UnixNano())
			if err != nil {
				s.faults.note("record a sample of a GPU", err, s.set.Now())
				continue
			}
			records = append(records, record)
		case <-t.C:
			write()
		}
	}
}

func sampleRecord(rec *gpu.Recorder, r gpu.Reading, now int64) (store.Record, error) {
	source, _, raw, err := rec.Frame(r, now)
	if err != nil {
		return store.Record{}, err
	}
	f, _, err := wire.ParseFrame(raw)
	return store.Record{Source: source, Frame: f}, err
}

// clockPair is a reading of both clocks: monotonic before, Unix, monotonic after.
func (s *Server) clockPair() [3]int64 {
	before, _ := monotonic()
	now := s.set.Now().UnixNano()
	after, _ := monotonic()
	return [3]int64{before, now, after}
}
