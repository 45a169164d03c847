package dialect

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

// CollectEvery is how often a DCGM exporter reads its devices, unless it is told otherwise. A scrape in between gets the same page again.
const CollectEvery = 30 * time.Second

// firstCollection is how long after a run's beginning the exporter collects first: it has run before, at any phase.
const firstCollection = 2 * time.Second

// cards is a DCGM exporter: the devices of a host, as it last read them.
type cards struct {
	target  string
	devices []*card // by index
	text    []byte  // what was collected last; nil = nothing yet
}

// card is a device.
type card struct {
	about   gpu.About
	host    string
	natives []native // by the number of the signal
	values  []sampled
	answers bool
	xid     uint32 // the last one
}

type sampled struct {
	known bool
	value float64
}

// native is how the exporter sends a signal.
type native struct {
	name  string
	times float64
}

// see takes a reading.
func (c *card) see(m *wire.Sample) {
	c.answers = m.State == wire.DeviceAnswers
	for _, x := range m.XIDs {
		c.xid = x.Number
	}
	for _, a := range m.Absent {
		if int(a.Signal) < len(c.values) {
			c.values[a.Signal].known = false
		}
	}
	for _, v := range m.Values {
		switch {
		case int(v.Signal) >= len(c.values):
		case c.natives[v.Signal].name == xidField:
			c.xid = uint32(v.Value)
		default:
			c.values[v.Signal] = sampled{true, v.Value}
		}
	}
}

// add takes up the device that a source is of.
func (c *cards) add(h *wire.Hello) (*card, error) {
	about, err := gpu.ParseAbout(*h)
	if err != nil {
		return nil, err
	}
	d := &card{about: about, host: h.Host, values: make([]sampled, len(about.Signals))}
	for _, name := range about.Signals {
		d.natives = append(d.natives, exported(name))
	}
	c.devices = slices.DeleteFunc(c.devices, func(o *card) bool { return o.about.UUID == about.UUID }) // it says something new of itself
	c.devices = append(c.devices, d)
	slices.SortStableFunc(c.devices, func(a, b *card) int { return a.about.Index - b.about.Index })
	return d, nil
}

// exported is how the exporter sends a signal: under its older name, which exporters had until DCGM 4.6.
func exported(signal string) native {
	s := signals.Lookup(signal)
	if s == nil {
		return native{}
	}
	for _, n := range s.From {
		if _, ok := fields[n.Name]; ok && n.Producer == "dcgm" {
			times := n.Times
			if times == 0 {
				times = 1
			}
			return native{n.Name, times}
		}
	}
	return native{}
}

// field is one of those that an exporter collects.
type field struct {
	kind, help string
	float      bool // printed with six decimals, as DCGM's floating fields are
}

// fields are those of the exporter's default list, and those that are worth enabling for diagnosis.
var fields = map[string]field{
	"DCGM_FI_DEV_SM_CLOCK":                 {kind: gaugeKind, help: "Clock of the SMs, MHz."},
	"DCGM_FI_DEV_MAX_SM_CLOCK":             {kind: gaugeKind, help: "Highest clock of the SMs, MHz."},
	"DCGM_FI_DEV_MEM_CLOCK":                {kind: gaugeKind, help: "Clock of the memory, MHz."},
	"DCGM_FI_DEV_MEMORY_TEMP":              {kind: gaugeKind, help: "Temperature of the memory, degrees Celsius."},
	"DCGM_FI_DEV_GPU_TEMP":                 {kind: gaugeKind, help: "Temperature, degrees Celsius."},
	"DCGM_FI_DEV_POWER_USAGE":              {kind: gaugeKind, help: "Power drawn, W.", float: true},
	"DCGM_FI_DEV_ENFORCED_POWER_LIMIT":     {kind: gaugeKind, help: "Power limit in force, W."},
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": {kind: counterKind, help: "Energy since the driver was loaded, mJ."},
	"DCGM_FI_DEV_PCIE_REPLAY_COUNTER":      {kind: counterKind, help: "PCIe replays."},
	"DCGM_FI_DEV_GPU_UTIL":                 {kind: gaugeKind, help: "Time in which a kernel was resident, percent."},
	"DCGM_FI_DEV_MEM_COPY_UTIL":            {kind: gaugeKind, help: "Time in which memory was read or written, percent."},
	"DCGM_FI_DEV_XID_ERRORS":               {kind: gaugeKind, help: "Number of the last XID error."},
	"DCGM_FI_DEV_FB_FREE":                  {kind: gaugeKind, help: "Memory free, MiB."},
	"DCGM_FI_DEV_FB_USED":                  {kind: gaugeKind, help: "Memory used, MiB."},
	"DCGM_FI_DEV_FB_RESERVED":              {kind: gaugeKind, help: "Memory reserved, MiB."},
	"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS":   {kind: gaugeKind, help: "Why clocks are held down, a mask."},
	"DCGM_FI_DEV_POWER_VIOLATION":          {kind: counterKind, help: "Time held down by the power cap, ns."},
	"DCGM_FI_DEV_THERMAL_VIOLATION":        {kind: counterKind, help: "Time held down by heat, ns."},
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":        {kind: counterKind, help: "Uncorrected memory errors since the driver was loaded."},
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":        {kind: gaugeKind, help: "Whether a row could not be remapped."},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":        {kind: gaugeKind, help: "Share of time the graphics or compute engine was active.", float: true},
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":      {kind: gaugeKind, help: "Share of cycles the tensor cores were active.", float: true},
	"DCGM_FI_PROF_DRAM_ACTIVE":             {kind: gaugeKind, help: "Share of cycles the memory was active.", float: true},
	"DCGM_FI_PROF_PCIE_TX_BYTES":           {kind: gaugeKind, help: "PCIe, GPU to host, bytes a second."},
	"DCGM_FI_PROF_PCIE_RX_BYTES":           {kind: gaugeKind, help: "PCIe, host to GPU, bytes a second."},
	"DCGM_FI_PROF_SM_ACTIVE":               {kind: gaugeKind, help: "Share of cycles an SM had a warp.", float: true},
	"DCGM_FI_PROF_SM_OCCUPANCY":            {kind: gaugeKind, help: "Share of warps resident.", float: true},
}

// xidField is of events: the number of the last one, which stays until there is another.
const xidField = "DCGM_FI_DEV_XID_ERRORS"

// collect reads the devices. What a device does not tell has no series; one that is lost has none at all.
func (c *cards) collect() {
	names := []string{xidField}
	for _, d := range c.devices {
		for i, n := range d.natives {
			if d.answers && d.values[i].known && n.name != "" && !slices.Contains(names, n.name) {
				names = append(names, n.name)
			}
		}
	}
	slices.Sort(names)
	c.text = []byte{}
	for _, name := range names {
		f := fields[name]
		c.text = fmt.Appendf(c.text, "# HELP %s %s\n# TYPE %s %s\n", name, f.help, name, f.kind)
		for _, d := range c.devices {
			if name == xidField && d.answers {
				c.text = append(d.sample(append(c.text, name...), f, float64(d.xid)), '\n')
			}
			for i, n := range d.natives {
				if n.name == name && d.answers && d.values[i].known {
					c.text = append(d.sample(append(c.text, name...), f, d.values[i].value/n.times), '\n')
				}
			}
		}
	}
}

// sample writes the labels of a device, in the exporter's order, and a value.
func (d *card) sample(b []byte, f field, value float64) []byte {
	b = fmt.Appendf(b, `{gpu="%d",UUID="%s",pci_bus_id="%s",device="nvidia%d",modelName="%s",Hostname="%s",DCGM_FI_DRIVER_VERSION="%s"} `,
		d.about.Index, escape.Replace(d.about.UUID), escape.Replace(d.about.PCI), d.about.Index, escape.Replace(d.about.Name), escape.Replace(d.host), escape.Replace(d.about.Driver))
	if f.float {
		return strconv.AppendFloat(b, value, 'f', 6, 64)
	}
	return strconv.AppendFloat(b, value, 'f', 0, 64)
}
