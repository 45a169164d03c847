package api

import "github.com/whylate/whylate/ledger"

// DeviceList is the state of all GPUs that are sampled, those of one host together.
type DeviceList struct {
	Now     int64         `json:"now_unix_ns"`
	Devices []DeviceState `json:"devices"`
}

// DeviceState is what one GPU, or an instance of a divided one, did when it was read last. Without a UUID it is the driver of a host, of which no GPU is seen.
type DeviceState struct {
	UUID     string             `json:"uuid"`
	Host     string             `json:"host"`
	Index    int                `json:"index"` // on its host: a name, no identity
	Name     string             `json:"name,omitempty"`
	PCI      string             `json:"pci,omitempty"`
	Driver   string             `json:"driver,omitempty"`
	Through  string             `json:"through"`           // what it is read through: nvml or nvidia-smi
	Divided  bool               `json:"divided,omitempty"` // into instances (MIG), which are listed behind it
	Parent   string             `json:"parent,omitempty"`  // of an instance: the UUID of the whole GPU
	Profile  string             `json:"profile,omitempty"` // of an instance: 3g.40gb
	Instance int                `json:"gpu_instance,omitempty"`
	State    ledger.DeviceState `json:"state"`
	Since    int64              `json:"since_unix_ns"` // it has been in this state, as far as it was watched
	Why      string             `json:"why,omitempty"` // of a state other than answering, with what to do
	At       int64              `json:"at_unix_ns"`    // of the newest sample
	Age      int64              `json:"age_ns"`        // of the newest sample
	Every    int64              `json:"every_ns"`      // between two samples: no claim about it is finer
	First    int64              `json:"first_unix_ns"` // of the first sample
	Samples  uint64             `json:"samples"`
	Readings []DeviceReading    `json:"readings"`
	Holds    []DeviceHold       `json:"holds,omitempty"` // what held its clocks down in any sample
	// Unheld says that the reasons are not known: that is not the same as none.
	Unheld    bool            `json:"holds_unknown,omitempty"`
	Errors    []DeviceError   `json:"errors,omitempty"` // of the driver, the newest first
	Processes []DeviceProcess `json:"processes,omitempty"`
	Notes     []string        `json:"notes,omitempty"` // what its figures do not mean here, and what the driver cannot be asked
}

// DeviceReading is a registered signal of a GPU.
type DeviceReading struct {
	Signal string  `json:"signal"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`            // the newest; 0 where there was none
	At     int64   `json:"at_unix_ns"`       // of the newest value; 0 = there was none
	Over   int64   `json:"over_ns"`          // the time over which the device measured it; 0 = of the moment, or a count
	Absent string  `json:"absent,omitempty"` // why there is no value now
	Least  float64 `json:"least"`            // of all values that were taken
	Most   float64 `json:"most"`
	Mean   float64 `json:"mean"`
	Count  uint64  `json:"count"`
}

// DeviceHold is one reason that held a GPU's clocks down.
type DeviceHold struct {
	Reason  string  `json:"reason"`
	Mask    uint64  `json:"mask"`
	Fault   bool    `json:"fault"`                   // it is none of the normal ones
	Do      string  `json:"do,omitempty"`            // what to look at
	Since   int64   `json:"since_unix_ns,omitempty"` // it has been set in every sample; 0 = it is not set now
	Last    int64   `json:"last_unix_ns"`            // it was set
	Samples uint64  `json:"samples"`                 // in which it was set
	Share   float64 `json:"share"`                   // of all samples: an estimate of the share of the time
}

// DeviceError is an error of the driver (XID).
type DeviceError struct {
	XID      uint32 `json:"xid"`
	At       int64  `json:"at_unix_ns"`
	Means    string `json:"means"`
	Severity string `json:"severity"` // broken, application or notice
	Do       string `json:"do"`
}

// DeviceProcess is a process that computes on a GPU.
type DeviceProcess struct {
	PID    uint32  `json:"pid"`              // as the driver tells it: the host's
	Engine string  `json:"engine,omitempty"` // whose process it is, where that is known
	Busy   float64 `json:"busy"`             // share of the GPU's time; -1 = not known
	Used   int64   `json:"used_bytes"`       // of its memory; -1 = not known
}
