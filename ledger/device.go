package ledger

import (
	"slices"
	"time"
)

// DeviceID names a GPU, an instance of a divided one, or (without UUID) the driver of a host.
type DeviceID struct{ Host, UUID string }

// ProcessID names a process while its kernel runs. PIDs are those that the process itself has: in a container they are not the host's.
type ProcessID struct {
	Boot string
	PID  uint32
}

// Device is a GPU as its samples tell, up to the newest.
type Device struct {
	ID       DeviceID
	Boot     string // id of the running kernel of its host
	Name     string
	Index    int
	PCI      string
	Driver   string // its version
	Through  string // what it is read through: nvml or nvidia-smi
	Divided  bool
	Parent   string // of an instance: the whole GPU's UUID
	Profile  string
	Instance int
	Notes    []string
	Producer string

	Every     time.Duration // how often it is read: no claim about it is finer
	First     int64         // the first sample, Unix ns
	At        int64         // the newest
	Samples   uint64
	State     DeviceState
	Since     int64  // it has been in this state, as far as it was watched
	Why       string // of a state other than answering
	Signals   map[string]*DeviceSignal
	Processes []DeviceProcess // who computes on it
	Held      []DeviceHold    // what holds its clocks down, by bit, as far as it was watched
	Errors    []DeviceError   // of the driver, the newest last
	Forgotten int             // errors that were let go
}

// DeviceState says what a device did when it was read last. The numbers are the wire's.
type DeviceState uint8

const (
	DeviceAnswers DeviceState = 1
	DeviceSilent  DeviceState = 2
	DeviceLost    DeviceState = 3
	DeviceNone    DeviceState = 4
)

var deviceStates = [...]string{"unknown", "answers", "does not answer", "lost", "no GPU seen"}

func (s DeviceState) String() string {
	if int(s) < len(deviceStates) {
		return deviceStates[s]
	}
	return deviceStates[0]
}

// MarshalText implements [encoding.TextMarshaler].
func (s DeviceState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *DeviceState) UnmarshalText(b []byte) error {
	*s = DeviceState(max(slices.Index(deviceStates[:], string(b)), 0))
	return nil
}

// DeviceSignal is a registered signal of a device.
type DeviceSignal struct {
	At     int64 // of the newest value, Unix ns; 0 = there was none
	Value  float64
	Over   time.Duration // the time over which the device measured it; 0 = of the moment, or a count
	Absent string        // why there is no value now; "" where there is one
	// Of all values that were taken:
	Least, Most, Sum float64
	Count            uint64
}

// DeviceProcess is a process that computes on a device.
type DeviceProcess struct {
	PID      uint32
	Busy     float32 // share of the device's time; −1 = not known
	Used     uint64  // bytes of its memory
	Known    bool    // Used is
	Instance int     // GPU instance of a divided device; −1 = none
}

// DeviceHold is one reason that holds a device's clocks down.
type DeviceHold struct {
	Bit     uint64
	Since   int64  // it has been set; 0 = it is not now
	Samples uint64 // in which it was set
	Last    int64
}

// DeviceError is an error of the driver.
type DeviceError struct {
	XID uint32
	At  int64
}
