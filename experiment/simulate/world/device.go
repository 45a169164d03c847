package world

import (
	"math"
	"time"
)

// GPU is a device before it begins.
type GPU struct {
	UUID    string // "" = made up
	Name    string
	Clock   float64       // MHz of the SM at full speed
	Memory  float64       // MHz of its memory
	Idle    float64       // W
	Limit   float64       // W when it computes without pause
	Bytes   uint64        // of memory
	Ambient float64       // °C
	Heat    float64       // °C above ambient for each W
	Follow  time.Duration // time constant of power behind load
	Warm    time.Duration // … of temperature behind power
}

// DefaultGPU is of the kind of an H100 SXM: clocks, power and memory of its data sheet. How fast power and temperature follow is of
// the right order, no more is claimed.
var DefaultGPU = GPU{Name: "NVIDIA H100 80GB HBM3", Clock: 1980, Memory: 2619, Idle: 70, Limit: 700, Bytes: 80 << 30, Ambient: 28, Heat: 0.055,
	Follow: 200 * time.Millisecond, Warm: 15 * time.Second}

// Reasons why a clock is held down, as NVML numbers them.
const (
	HeldIdle           = 0x1
	HeldByApplication  = 0x2
	HeldByPower        = 0x4  // software power cap
	HeldByHardware     = 0x8  // slowdown by hardware
	HeldByHeat         = 0x20 // thermal slowdown by software
	HeldByHardwareHeat = 0x40 // thermal slowdown by hardware
	HeldByPowerBrake   = 0x80 // the power supply asked for it
	throttlingKinds    = 4    // of which NVML keeps the time
	minutestClock      = 0.01 // of the full one: below it a device would never end
	exponentOfTheClock = 2.0  // power follows clock × voltage², which follow each other; between 2 and 3 are measured
)

// Device is a GPU in a world. Its clock changes on command; power and temperature follow.
type Device struct {
	GPU
	clock   float64 // MHz it may run at
	reasons uint64
	slow    float64 // factor on what is bound by memory
	shift   float64 // factor on everything: whoever else computes on it

	user   uint32        // process that computes on it
	errors []driverError // since the last sample

	at      time.Duration // up to which the state below is
	busy    time.Duration // computed since the last sample
	watts   float64
	degree  float64
	joules  float64
	held    [throttlingKinds]time.Duration // by power, heat, hardware's heat, power brake
	until   time.Duration                  // it computes up to here
	from    time.Duration                  // … since here
	sampler *sampler                       // nil = nobody reads it
}

// driverError is an error of the driver.
type driverError struct {
	at  time.Duration
	xid uint32
}

func newDevice(g GPU) *Device {
	return &Device{GPU: g, clock: g.Clock, slow: 1, shift: 1, watts: g.Idle, degree: g.Ambient + g.Heat*g.Idle}
}

// Hold lets the SM run at most at so many MHz from now on, for the given reasons (bits as NVML numbers them). 0 MHz lets it go.
func (d *Device) Hold(mhz float64, reasons uint64) {
	d.clock, d.reasons = d.Clock, reasons
	if mhz > 0 {
		d.clock = min(max(mhz, d.Clock*minutestClock), d.Clock)
	}
}

// SlowMemory stretches what is bound by memory by a factor; 1 = as built.
func (d *Device) SlowMemory(factor float64) { d.slow = factor }

// Share stretches everything by a factor: a neighbour computes on the same device.
func (d *Device) Share(factor float64) { d.shift = factor }

// Error is an error of the driver now: its number as NVIDIA lists them (XID). It only shows; what it does to the engine is another matter.
func (d *Device) Error(w *World, xid uint32) { d.errors = append(d.errors, driverError{w.now, xid}) }

// stretch is how much longer work takes than at full speed: what is bound by compute goes with the clock, what is bound by memory
// does not.
func (d *Device) stretch(memory float64) float64 {
	return d.shift * ((1-memory)*d.Clock/d.clock + memory*d.slow)
}

// compute notes that the device is busy.
func (d *Device) compute(from, to time.Duration) {
	d.follow(from)
	d.from, d.until = from, to
}

// follow brings power and temperature up to a time: first-order, each towards what the present load would hold.
func (d *Device) follow(to time.Duration) {
	for d.at < to {
		next, busy := to, false
		switch {
		case d.at < d.from:
			next = min(to, d.from)
		case d.at < d.until:
			next, busy = min(to, d.until), true
		}
		d.pass(next-d.at, busy)
		d.at = next
	}
}

// pass lets time pass under one load.
func (d *Device) pass(span time.Duration, busy bool) {
	target := d.Idle
	if busy {
		d.busy += span
		target += (d.Limit - d.Idle) * math.Pow(d.clock/d.Clock, exponentOfTheClock)
	}
	before := d.watts
	d.watts = approach(d.watts, target, span, d.Follow)
	mean := (before + d.watts) / 2
	d.joules += mean * span.Seconds()
	d.degree = approach(d.degree, d.Ambient+d.Heat*mean, span, d.Warm)
	for i, bit := range []uint64{HeldByPower, HeldByHeat, HeldByHardwareHeat, HeldByPowerBrake} {
		if d.reasons&bit != 0 {
			d.held[i] += span
		}
	}
}

// approach is where a first-order system is after a time on its way to a target.
func approach(from, to float64, span, constant time.Duration) float64 {
	if constant <= 0 {
		return to
	}
	return to + (from-to)*math.Exp(-span.Seconds()/constant.Seconds())
}
