package agent

import (
	"context"
	"sync"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// gpus samples the host's GPUs beside the agent's own work: what it reads waits for the next step.
type gpus struct {
	readings chan gpu.Reading
	recorder gpu.Recorder
	end      sync.WaitGroup
}

// sampleGPUs begins to sample, until ctx ends.
func (a *Agent) sampleGPUs(ctx context.Context) {
	if a.settings.GPU == nil {
		return
	}
	me := a.settings.Server.Agent
	a.gpus = &gpus{readings: make(chan gpu.Reading, 256), recorder: gpu.Recorder{Clock: pair,
		Hello: wire.Hello{Producer: wire.Producer{Name: "whylate-agent", Version: me.Version}, PID: uint32(me.PID), Start: me.Start, Boot: me.Boot, Host: me.Host}}}
	a.gpus.end.Go(func() {
		gpu.Sample(ctx, *a.settings.GPU, func(r gpu.Reading) {
			select {
			case a.gpus.readings <- r: // the sampler waits for the agent, and a device that is read less often says so itself
			case <-ctx.Done():
			}
		})
	})
}

// takeSamples makes frames of what was sampled since the last step.
func (a *Agent) takeSamples(now Instant) {
	if a.gpus == nil {
		return
	}
	a.intake.now = now
	for {
		select {
		case r := <-a.gpus.readings:
			a.takeSample(r, now)
		default:
			a.intake.seal()
			return
		}
	}
}

func (a *Agent) takeSample(r gpu.Reading, now Instant) {
	w, sequence, raw, err := a.gpus.recorder.Frame(r, now.Unix)
	a.complain("record a sample", err)
	if err != nil {
		return
	}
	s, err := a.sources.open(w)
	a.complain("samples of "+w.Name, err)
	if err != nil {
		return
	}
	s.followed, s.own = true, true
	a.intake.add(s, sequence, raw)
}
