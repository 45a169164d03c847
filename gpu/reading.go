package gpu

import (
	"math"
	"slices"
	"time"

	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

// Device says who a GPU is, or an instance of a divided one.
type Device struct {
	UUID    string `json:"uuid"` // "" is the driver of the host: it speaks of no device
	Index   int    `json:"index"`
	Name    string `json:"name,omitempty"`
	PCI     string `json:"pci,omitempty"`
	Driver  string `json:"driver,omitempty"` // its version
	Divided bool   `json:"divided,omitempty"`
	// Of an instance (MIG): the whole GPU's UUID, and which part it is.
	Parent   string `json:"parent,omitempty"`
	Profile  string `json:"profile,omitempty"` // such as 3g.40gb
	Instance int    `json:"gpu_instance,omitempty"`
	Compute  int    `json:"compute_instance,omitempty"`
	// Notes say what this driver cannot be asked, or how it is asked instead.
	Notes []string `json:"notes,omitempty"`
}

// Same reports whether nothing about a device has changed.
func (d Device) Same(e Device) bool {
	return slices.Equal(d.Notes, e.Notes) && d.UUID == e.UUID && d.Index == e.Index && d.Name == e.Name && d.PCI == e.PCI && d.Driver == e.Driver && d.Divided == e.Divided &&
		d.Parent == e.Parent && d.Profile == e.Profile && d.Instance == e.Instance && d.Compute == e.Compute
}

// Reading is one device, read once.
type Reading struct {
	Device Device
	Body   string // through what it was read: nvml or nvidia-smi
	wire.Sample
}

// The producers, as the registry of signals has them.
const (
	NVML = "nvml"
	SMI  = "nvidia-smi"
)

// Names are the registered signals that are sampled, in the order in which samples number them.
var Names = names()

func names() (out []string) {
	for _, s := range signals.All() {
		if slices.ContainsFunc(s.From, func(n signals.Native) bool { return n.Producer == NVML || n.Producer == SMI }) {
			out = append(out, s.Name)
		}
	}
	return out
}

// meaning is what a native name stands for.
type meaning struct {
	signal uint16
	times  float64
	limits *signals.Range
}

var meanings = map[string]map[string]meaning{NVML: meaningsOf(NVML), SMI: meaningsOf(SMI)}

func meaningsOf(producer string) map[string]meaning {
	m := map[string]meaning{}
	for _, s := range signals.All() {
		for _, n := range s.From {
			if n.Producer == producer {
				m[n.Name] = meaning{uint16(slices.Index(Names, s.Name)), n.Times, s.Range}
			}
		}
	}
	return m
}

// Draft is a sample that is being written from native values. The first value of a signal counts: ask the best name first.
type Draft struct {
	wire.Sample
	producer string
}

// NewDraft begins a sample of what a producer says.
func NewDraft(producer string, at int64, every time.Duration) *Draft {
	return &Draft{Sample: wire.Sample{Time: at, Every: uint64(every), State: wire.DeviceAnswers}, producer: producer}
}

// Put takes a native value, and over which time the device measured it (0 = of the moment, or a count). A value that cannot be is none.
func (d *Draft) Put(native string, value float64, over time.Duration) {
	m, known := meanings[d.producer][d.producer+":"+native]
	if !known || d.has(m.signal) {
		return
	}
	v := value * m.times
	if math.IsNaN(v) || math.IsInf(v, 0) || m.limits != nil && (v < m.limits.Least || v > m.limits.Most) {
		d.None(native, wire.AbsentCorrupt, 0)
		return
	}
	d.Absent = slices.DeleteFunc(d.Absent, func(a wire.SampleAbsent) bool { return a.Signal == m.signal })
	d.Values = append(d.Values, wire.SampleValue{Signal: m.signal, Window: uint32(min(over.Microseconds(), math.MaxUint32)), Value: v})
}

// None says why a native value is none, unless the signal has a value under another name.
func (d *Draft) None(native string, why wire.AbsentReason, code uint8) {
	m, known := meanings[d.producer][d.producer+":"+native]
	if !known || d.has(m.signal) || slices.ContainsFunc(d.Absent, func(a wire.SampleAbsent) bool { return a.Signal == m.signal }) {
		return
	}
	d.Absent = append(d.Absent, wire.SampleAbsent{Signal: m.signal, Why: why, Code: code})
}

func (d *Draft) has(signal uint16) bool {
	return slices.ContainsFunc(d.Values, func(v wire.SampleValue) bool { return v.Signal == signal })
}
