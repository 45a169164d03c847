package nvml

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// Settings say how to read.
type Settings struct {
	Library  string        // "" = libnvidia-ml.so.1
	Every    time.Duration // at least [gpu.Least]
	Patience time.Duration // after which a device that is still being read is said not to answer
	Once     bool          // read each device once, and end
}

// Unusable is why there is nothing to read.
type Unusable struct{ Why string }

func (e *Unusable) Error() string { return e.Why }

// Sample reads all GPUs until ctx ends or emit fails. Each device is read by a goroutine of its own, and never by a second one while the
// first has not come back: one that hangs does not hold up the others.
func Sample(ctx context.Context, set Settings, emit func(gpu.Reading) error) error {
	if set.Library == "" {
		set.Library = Name
	}
	set.Every = max(set.Every, gpu.Least)
	l, err := load(set.Library)
	if err != nil {
		return &Unusable{err.Error()}
	}
	if c := l.call("nvmlInit_v2"); c != success {
		return &Unusable{fmt.Sprintf("%s: %v", set.Library, c)}
	}
	devices, err := l.devices()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan finished, 2*len(devices))
	l.watchErrors(ctx, devices)
	tick := time.NewTicker(set.Every)
	defer tick.Stop()
	left := len(devices)
	begin := func() error {
		now := gpu.Monotonic()
		for _, d := range devices {
			switch {
			case d.begun == 0:
				d.begun = now
				go d.turn(now, set.Every, done)
			case now-d.begun > int64(set.Patience):
				if err := emit(d.hushed(now, set.Every)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := begin(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-done:
			f.device.begun = 0
			for _, r := range f.readings {
				if err := emit(r); err != nil {
					return err
				}
			}
			if left--; set.Once && left == 0 {
				return nil
			}
		case <-tick.C:
			if set.Once {
				continue
			}
			if err := begin(); err != nil {
				return err
			}
		}
	}
}

// finished is one turn of a device.
type finished struct {
	device   *device
	readings []gpu.Reading
}

// turn reads a device and its parts.
func (d *device) turn(at int64, every time.Duration, done chan<- finished) {
	f := finished{d, []gpu.Reading{d.read(at, every)}}
	for _, p := range d.parts {
		f.readings = append(f.readings, p.read(gpu.Monotonic(), every))
	}
	done <- f
}

// hushed says that a device does not answer.
func (d *device) hushed(now int64, every time.Duration) gpu.Reading {
	why := fmt.Sprintf("NVML has been asked %s ago and has not come back: the driver hangs on this device. See dmesg for NVRM and Xid; it usually takes a reset of the GPU or a reboot",
		time.Duration(now-d.begun).Round(time.Second))
	return gpu.Reading{Device: gpu.Device{UUID: d.UUID}, Body: gpu.NVML,
		Sample: wire.Sample{Time: now, Every: uint64(every), State: wire.DeviceSilent, Since: d.begun, Why: why}}
}

// devices lists the GPUs of the host.
func (l *library) devices() ([]*device, error) {
	n := new(uint32)
	c := l.call("nvmlDeviceGetCount_v2", address(n))
	keep(n)
	if c != success {
		return nil, &Unusable{fmt.Sprintf("count the GPUs: %v", c)}
	}
	var all []*device
	var refused code
	for i := range int(*n) {
		handle := new(uint64)
		c := l.call("nvmlDeviceGetHandleByIndex_v2", uintptr(i), address(handle))
		keep(handle)
		d := &device{l: l, handle: uintptr(*handle)}
		if c == success {
			c = d.identify(i)
		}
		if c != success {
			refused = c
			continue
		}
		all = append(all, d)
	}
	switch {
	case len(all) > 0:
		return all, nil
	case refused != success:
		return nil, &Unusable{fmt.Sprintf("%d GPUs, and none can be opened: %v", *n, refused)}
	}
	return nil, &Unusable{"the driver has no GPU"}
}

const eventXID = 0x8

// watchErrors takes up the driver's errors (XIDs) as they come. They come by waiting, so a goroutine waits.
func (l *library) watchErrors(ctx context.Context, devices []*device) {
	set := new(uint64)
	c := l.call("nvmlEventSetCreate", address(set))
	keep(set)
	if c != success {
		return
	}
	byHandle := map[uint64]*device{}
	for _, d := range devices {
		if kinds, c := l.wide("nvmlDeviceGetSupportedEventTypes", d.handle); c != success || kinds&eventXID == 0 {
			continue
		}
		if l.call("nvmlDeviceRegisterEvents", d.handle, eventXID, uintptr(*set)) == success {
			d.watched = true
			byHandle[uint64(d.handle)] = d
		}
	}
	if len(byHandle) == 0 {
		return
	}
	wait := l.newest("nvmlEventSetWait_v2", "nvmlEventSetWait")
	go func() {
		for ctx.Err() == nil {
			e := new([32]byte) // nvmlEventData_t: device, kind, data, instances
			switch c := l.call(wait, uintptr(*set), address(e), 1000); c {
			case success:
				keep(e)
				if d := byHandle[binary.LittleEndian.Uint64(e[0:])]; d != nil && binary.LittleEndian.Uint64(e[8:]) == eventXID {
					d.errorIs(uint32(binary.LittleEndian.Uint64(e[16:])), gpu.Monotonic())
				}
			case timedOut:
			default: // it will not be better: not to be asked in a tight loop
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		}
	}()
}
