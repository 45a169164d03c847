package gpu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/wire"
)

// Settings say how a host's GPUs are sampled. Zero values have the meaning given.
type Settings struct {
	Every  time.Duration // between two samples of a device; 0 = 1 s, at least 100 ms
	Body   string        // NVML or SMI alone; "" = NVML, and where that does not work nvidia-smi
	Helper string        // path of whylate-gpu; "" = beside this program, else on the PATH
	SMI    string        // path of nvidia-smi; "" likewise
	// Patience is how long nothing may come before the driver is said not to answer; 0 = 5 s and 5 samples.
	Patience time.Duration
	Again    time.Duration // how long after none was found it is looked again; 0 = 1 min
	Log      *slog.Logger  // nil = nowhere
	Now      func() int64  // CLOCK_MONOTONIC, ns; nil = this host's
}

// Least is the shortest time between two samples.
const Least = 100 * time.Millisecond

func (s Settings) withDefaults() Settings {
	s.Every = max(cmp.Or(s.Every, time.Second), Least)
	s.Patience = cmp.Or(s.Patience, 5*time.Second+5*s.Every)
	s.Again = cmp.Or(s.Again, time.Minute)
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Now == nil {
		s.Now = Monotonic
	}
	return s
}

// Sample reads the host's GPUs until ctx ends, and hands every reading to emit, from one goroutine. It ends early for nothing: no GPU, no
// driver and a driver that hangs are readings too.
func Sample(ctx context.Context, set Settings, emit func(Reading)) {
	s := &sampler{Settings: set.withDefaults(), known: map[string]Device{}}
	s.emit = func(r Reading) {
		if ctx.Err() == nil {
			emit(r)
		}
	}
	for ctx.Err() == nil {
		found, why := false, []string{}
		for _, b := range s.bodies() {
			for ctx.Err() == nil {
				answered, err := s.watch(ctx, &b)
				found = found || answered
				if ctx.Err() != nil {
					return
				}
				if !answered { // it is of no use here; the other may be
					why = append(why, b.name+": "+err.Error())
					break
				}
				s.Log.Warn("sample GPUs", "through", b.name, "error", err)
				pause(ctx, max(s.Every, time.Second))
			}
		}
		if !found {
			s.none(strings.Join(why, "; "))
		}
		pause(ctx, s.Again)
	}
}

func (s *sampler) bodies() []body {
	all := []body{throughNVML(s.Helper, s.Every), throughSMI(s.SMI, s.Every, s.Now)}
	return slices.DeleteFunc(all, func(b body) bool { return s.Body != "" && s.Body != b.name })
}

// sampler remembers what it has seen, across the programs that it asks.
type sampler struct {
	Settings
	emit     func(Reading)
	known    map[string]Device // that have answered
	answered int64             // when something did last
	silent   int64             // since when nothing does; 0 = it answers
	complain string
	apps     apps
}

// none says that there is no GPU to be seen, and why.
func (s *sampler) none(why string) {
	why = "no GPU seen: " + why + ". Where there is one, install its driver, or mount it (in a container: NVIDIA_DRIVER_CAPABILITIES=utility)"
	if s.complain != why {
		s.complain = why
		s.Log.Info(why)
	}
	now := s.Now()
	s.emit(Reading{Sample: wire.Sample{Time: now, Every: uint64(s.Again), State: wire.DeviceNone, Why: why}})
}

// hush says of every known device, or of the driver where none is known yet, that it does not answer.
func (s *sampler) hush(through string) {
	now := s.Now()
	if s.silent == 0 {
		s.silent = s.answered
		s.Log.Warn("GPUs do not answer", "through", through, "for", time.Duration(now-s.answered).Round(time.Millisecond).String())
	}
	said := fmt.Sprintf("%s has not answered for %s: the driver hangs. See dmesg for NVRM and Xid; it usually takes a reset of the GPU or a reboot", through, time.Duration(now-s.silent).Round(time.Second))
	sample := wire.Sample{Time: now, Every: uint64(s.Every), State: wire.DeviceSilent, Since: s.silent, Why: said}
	if len(s.known) == 0 {
		s.emit(Reading{Body: through, Sample: sample})
	}
	for _, uuid := range slices.Sorted(maps.Keys(s.known)) {
		s.emit(Reading{Device: s.known[uuid], Body: through, Sample: sample})
	}
}

// watch runs a body's program until it ends, and reports whether anything came of it. A program that says nothing for too long is killed,
// and nothing is started until it is gone: a process inside a hung driver cannot be killed, and a second one would hang beside it.
func (s *sampler) watch(ctx context.Context, b *body) (answered bool, err error) {
	for {
		var again errAgain
		came, err := s.run(ctx, b)
		answered = answered || came
		if !errors.As(err, &again) || ctx.Err() != nil {
			return answered, err
		}
	}
}

func (s *sampler) run(ctx context.Context, b *body) (came bool, err error) {
	cmd, err := b.command()
	if err != nil {
		return false, err
	}
	p, err := start(cmd)
	if err != nil {
		return false, err
	}
	defer p.abandon()
	s.answered = s.Now()
	if b.name == SMI {
		inner, stop := context.WithCancel(ctx)
		defer stop()
		go s.apps.follow(inner, cmd.Path, s.Patience)
	}
	tick := time.NewTicker(max(s.Every, min(time.Second, s.Patience/4)))
	defer tick.Stop()
	lines := p.lines
	for {
		select {
		case <-ctx.Done():
			p.kill()
			select { // it ends at once, unless it is inside a driver that hangs: that is not waited for
			case <-p.ended:
			case <-time.After(time.Second):
			}
			return came, ctx.Err()
		case text, open := <-lines:
			if !open {
				lines = nil
				continue
			}
			r, err := b.line(text)
			if again := (errAgain{}); errors.As(err, &again) {
				p.kill()
				<-p.ended
				return came, err
			}
			if err != nil {
				p.say(err.Error())
				continue
			}
			came = true
			s.heard(r)
		case <-tick.C:
			if s.Now()-s.answered > int64(s.Patience) {
				p.kill()
				came = true // it does not lack: it hangs
				s.hush(b.name)
			}
		case <-p.ended:
			if lines != nil {
				for text := range lines {
					r, err := b.line(text)
					if again := (errAgain{}); errors.As(err, &again) {
						return came, err
					}
					if err != nil {
						p.say(err.Error())
						continue
					}
					came = true
					s.heard(r)
				}
			}
			return came, p.why()
		}
	}
}

// heard takes a reading.
func (s *sampler) heard(r Reading) {
	s.answered, s.complain = s.Now(), ""
	if s.silent != 0 {
		s.Log.Info("GPUs answer again", "through", r.Body)
		s.silent = 0
	}
	if r.Body == SMI {
		r.Processes = s.apps.of(r.Device.UUID)
	}
	if r.Device.UUID != "" {
		s.known[r.Device.UUID] = r.Device
	}
	s.emit(r)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
