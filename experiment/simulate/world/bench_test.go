package world

import (
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/wire"
)

// endless is a workload whose requests come one after the other for ever, each of its own length.
type endless struct{ n, most int }

func (e *endless) Next() (experiment.Request, error) {
	if e.n++; e.n > e.most {
		return experiment.Request{}, io.EOF
	}
	return experiment.Request{At: time.Duration(e.n) * time.Millisecond, PromptTokens: 200 + int(mix(uint64(e.n))%400), OutputTokens: 100 + int(mix(uint64(e.n)+1)%300)}, nil
}

func busy(requests int) Config {
	c := one(1, nil, map[string]any{"max_num_seqs": 64, "max_num_scheduled_tokens": 2048, "num_gpu_blocks": 64 * 60})
	c.Workload = workload.Closed(&endless{most: requests}, 72, 0, 1)
	return c
}

// processor is the processor time that this process has used.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAlive is the heap that is alive after 10,000 requests, divided by that after 1,000.
func BenchmarkAlive(b *testing.B) {
	ratio := 0.0
	for b.Loop() {
		ratio = float64(heapAfter(b, 10_000)) / float64(heapAfter(b, 1000))
	}
	b.ReportMetric(ratio, "ratio")
}

// BenchmarkIterations is of 64 running sequences of a closed loop.
func BenchmarkIterations(b *testing.B) {
	for name, recorder := range map[string]func() Recorder{
		"silent": func() Recorder { return nil },
		"capture": func() Recorder {
			w, err := wire.NewCaptureWriter(io.Discard)
			if err != nil {
				b.Fatal(err)
			}
			return NewFrames(w)
		},
		"ledger": func() Recorder { return NewFrames(ingest.New()) },
	} {
		b.Run(name, func(b *testing.B) {
			n, began := 0, processor(b)
			for b.Loop() {
				c := busy(2000)
				c.Recorder = recorder()
				w, err := New(c)
				if err != nil {
					b.Fatal(err)
				}
				s, err := w.Run()
				if err != nil {
					b.Fatal(err)
				}
				n += s.Iterations
			}
			b.ReportMetric(float64(n)/(processor(b)-began).Seconds(), "iterations/core-s")
		})
	}
}
