package nvml

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// device is a GPU, or an instance of a divided one, that is read again and again by one goroutine.
type device struct {
	l      *library
	handle uintptr
	gpu.Device
	parts []*device // instances, of a divided one

	begun   int64 // Mono ns, when the reading that goes on began; 0 = none does
	slow    int64 // when what is dear or stands still was read last
	period  time.Duration
	seen    uint64 // driver's time (µs) of the newest utilisation of a process
	busy    map[uint32]float32
	watched bool // its errors are told by events

	mu   sync.Mutex
	xids []wire.SampleXID // that came since the last sample
	last uint32           // the newest of all
}

// slowEvery is how often what is dear to read, or stands still, is read: asking for PCIe's throughput alone takes 40 ms.
const slowEvery = 10 * time.Second

// errorIs tells of an XID.
func (d *device) errorIs(number uint32, at int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = number
	if len(d.xids) < 1000 {
		d.xids = append(d.xids, wire.SampleXID{At: at, Number: number})
	}
}

// identify asks who a device is.
func (d *device) identify(index int) code {
	uuid, c := d.l.text("nvmlDeviceGetUUID", d.handle)
	if c != success {
		return c
	}
	d.UUID, d.Index = uuid, index
	d.Name, _ = d.l.text("nvmlDeviceGetName", d.handle)
	d.Driver, _ = d.l.text("nvmlSystemGetDriverVersion")
	pci := new([68]byte) // nvmlPciInfo_t; v2 and v3 are alike
	if c := d.l.call(d.l.newest("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"), d.handle, address(pci)); c == success {
		d.PCI = cString(pci[36:])
	}
	keep(pci)
	return success
}

// newest is the first of several versions of a function that this driver has; the first of all where it has none.
func (l *library) newest(versions ...string) string {
	for _, v := range versions {
		if l.has(v) {
			return v
		}
	}
	return versions[0]
}

// read takes a sample.
func (d *device) read(at int64, every time.Duration) gpu.Reading {
	now := gpu.NewDraft(gpu.NVML, at, every)
	slow := d.slow == 0 || at-d.slow >= int64(slowEvery)
	if slow {
		d.slow = at
		d.divide()
		d.samplePeriod()
	}
	r := reader{device: d, draft: now}
	r.utilisation()
	r.memory()
	if d.Parent == "" {
		r.often()
		r.fields(often...)
		if slow {
			r.seldom()
			r.fields(seldom...)
		}
	}
	r.processes()
	d.mu.Lock()
	now.XIDs, d.xids = d.xids, nil
	if d.watched {
		now.Put("xid", float64(d.last), 0)
	}
	d.mu.Unlock()
	if r.lost != success {
		now.State, now.Why = wire.DeviceLost, r.lost.Error()
	}
	now.Took = uint64(gpu.Monotonic() - at)
	return gpu.Reading{Device: d.Device, Body: gpu.NVML, Sample: now.Sample}
}

// reader fills in one sample.
type reader struct {
	*device
	draft *gpu.Draft
	lost  code
}

// take takes what a call gave for a native name.
func (r *reader) take(native string, value float64, over time.Duration, c code) {
	if c == success {
		r.draft.Put(native, value, over)
		return
	}
	if c.lost() {
		r.lost = c
	}
	r.draft.None(native, c.why(), uint8(min(c, math.MaxUint8)))
}

func (r *reader) number(native, symbol string, args ...uintptr) {
	n, c := r.l.number(symbol, r.handle, args...)
	if c == success && n == math.MaxUint32 {
		r.draft.None(native, wire.AbsentBlank, 0)
		return
	}
	r.take(native, float64(n), 0, c)
}

func (r *reader) wide(native, symbol string, args ...uintptr) {
	n, c := r.l.wide(symbol, r.handle, args...)
	if c == success && n == math.MaxUint64 {
		r.draft.None(native, wire.AbsentBlank, 0)
		return
	}
	r.take(native, float64(n), 0, c)
}

// utilisation is measured for whole GPUs, over the device's own sample period.
func (r *reader) utilisation() {
	if r.Divided || r.Parent != "" {
		r.draft.None("utilization.gpu", wire.AbsentShared, 0)
		r.draft.None("utilization.memory", wire.AbsentShared, 0)
		return
	}
	u := new([2]uint32)
	c := r.l.call("nvmlDeviceGetUtilizationRates", r.handle, address(u))
	keep(u)
	r.take("utilization.gpu", float64(u[0]), r.period, c)
	r.take("utilization.memory", float64(u[1]), r.period, c)
}

// memory asks in the newer form, which tells what the driver keeps apart.
func (r *reader) memory() {
	newer := new([5]uint64) // nvmlMemory_v2_t: version (and padding), total, reserved, free, used
	newer[0] = 2<<24 | 40
	c := r.l.call("nvmlDeviceGetMemoryInfo_v2", r.handle, address(newer))
	keep(newer)
	if c == success {
		r.take("memory.total", float64(newer[1]), 0, c)
		r.take("memory.reserved", float64(newer[2]), 0, c)
		r.take("memory.free", float64(newer[3]), 0, c)
		r.take("memory.used", float64(newer[4]), 0, c)
		return
	}
	older := new([3]uint64) // nvmlMemory_t: total, free, used, the last with what the driver keeps
	reserved := c
	c = r.l.call("nvmlDeviceGetMemoryInfo", r.handle, address(older))
	keep(older)
	r.take("memory.total", float64(older[0]), 0, c)
	r.take("memory.free", float64(older[1]), 0, c)
	r.take("memory.used", float64(older[2]), 0, c)
	r.take("memory.reserved", 0, 0, reserved)
}

const (
	clockSM     = 1
	clockMemory = 2
)

// often is what changes from one moment to the next.
func (r *reader) often() {
	r.number("clock.sm", "nvmlDeviceGetClockInfo", clockSM)
	r.number("clock.memory", "nvmlDeviceGetClockInfo", clockMemory)
	r.wide("clocks_event_reasons", r.l.newest("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"))
	r.number("pstate", "nvmlDeviceGetPerformanceState")
	r.temperature()
	r.wide("energy", "nvmlDeviceGetTotalEnergyConsumption")
}

// temperature asks in the newer form, and in the older where the driver has only that.
func (r *reader) temperature() {
	t := new([3]uint32) // nvmlTemperature_t: version, sensor (0 = the chip), degrees
	t[0] = 1<<24 | 12
	c := r.l.call("nvmlDeviceGetTemperatureV", r.handle, address(t))
	keep(t)
	if c == success {
		r.take("temperature.gpu", float64(int32(t[2])), 0, c)
	} else {
		r.number("temperature.gpu", "nvmlDeviceGetTemperature", 0)
	}
	m := new([2]uint32) // nvmlMarginTemperature_t: version, degrees
	m[0] = 1<<24 | 8
	c = r.l.call("nvmlDeviceGetMarginTemperature", r.handle, address(m))
	keep(m)
	r.take("temperature.margin", float64(int32(m[1])), 0, c)
}

// seldom is what stands still, or is dear to ask for.
func (r *reader) seldom() {
	r.number("clock.sm.max", "nvmlDeviceGetMaxClockInfo", clockSM)
	r.number("clock.memory.max", "nvmlDeviceGetMaxClockInfo", clockMemory)
	r.number("power.limit.enforced", "nvmlDeviceGetEnforcedPowerLimit")
	r.number("pcie.link.generation", "nvmlDeviceGetCurrPcieLinkGeneration")
	r.number("pcie.link.width", "nvmlDeviceGetCurrPcieLinkWidth")
	r.number("pcie.link.generation.max", "nvmlDeviceGetMaxPcieLinkGeneration")
	r.number("pcie.link.width.max", "nvmlDeviceGetMaxPcieLinkWidth")
	for i, native := range []string{"pcie.tx", "pcie.rx"} {
		n, c := r.l.number("nvmlDeviceGetPcieThroughput", r.handle, uintptr(i))
		r.take(native, float64(n), 20*time.Millisecond, c)
	}
	const sinceDriver = 0 // not over the board's life
	r.wide("ecc.corrected.volatile", "nvmlDeviceGetTotalEccErrors", 0, sinceDriver)
	r.wide("ecc.uncorrected.volatile", "nvmlDeviceGetTotalEccErrors", 1, sinceDriver)
	r.links()
	r.repairs()
}

// mostLinks is how many NVLinks a device may have.
const mostLinks = 18

func (r *reader) links() {
	active := 0
	for i := range uintptr(mostLinks) {
		up, c := r.l.number("nvmlDeviceGetNvLinkState", r.handle, i)
		if c != success {
			if i == 0 {
				r.take("nvlink.active", 0, 0, c)
				return
			}
			break // there are no more
		}
		active += int(up)
	}
	r.draft.Put("nvlink.active", float64(active), 0)
}

// repairs are what was taken out of the memory's use for its errors: rows since Ampere, pages before.
func (r *reader) repairs() {
	rows := new([4]uint32) // correctable, uncorrectable, pending, failure
	c := r.l.call("nvmlDeviceGetRemappedRows", r.handle, address(rows), address(rows)+4, address(rows)+8, address(rows)+12)
	keep(rows)
	r.take("remapped_rows.uncorrectable", float64(rows[1]), 0, c)
	r.take("remapped_rows.pending", float64(rows[2]), 0, c)
	r.take("remapped_rows.failure", float64(rows[3]), 0, c)
	var pages uint32
	for cause := range uintptr(2) { // many errors that were put right; one that was not
		n := new(uint32)
		c = r.l.call("nvmlDeviceGetRetiredPages", r.handle, cause, address(n), 0)
		keep(n)
		if c != success && c != insufficientSize { // it counts them without room for their addresses
			break
		}
		pages, c = pages+*n, success
	}
	r.take("pages_retired", float64(pages), 0, c)
}

// field is one of the values that NVML numbers.
type field struct {
	id, scope uint32
	over      time.Duration
	otherwise func(*reader) // asked where a driver does not know it
}

const allLinks = math.MaxUint32

var (
	often = []field{
		{id: 185, over: time.Second, otherwise: func(r *reader) { r.number("power.usage", "nvmlDeviceGetPowerUsage") }},
		{id: 186}, {id: 82}, {id: 269}, {id: 75}, {id: 74}, {id: 270}, {id: 271}, {id: 138, scope: allLinks}, {id: 139, scope: allLinks},
	}
	seldom = []field{{id: 94}}
)

// fieldBytes is the size of nvmlFieldValue_t: id u32, scope u32, time i64, latency i64, type u32, return i32, value of 8 bytes.
const fieldBytes = 40

// fields asks for numbered values in one call. Each has a return code of its own.
func (r *reader) fields(list ...field) {
	b := make([]byte, fieldBytes*len(list))
	for i, f := range list {
		binary.LittleEndian.PutUint32(b[i*fieldBytes:], f.id)
		binary.LittleEndian.PutUint32(b[i*fieldBytes+4:], f.scope)
	}
	all := r.l.call("nvmlDeviceGetFieldValues", r.handle, uintptr(len(list)), address(&b[0]))
	keep(&b[0])
	for i, f := range list {
		v := b[i*fieldBytes : (i+1)*fieldBytes]
		c := cmp.Or(all, code(int32(binary.LittleEndian.Uint32(v[28:]))))
		value, ok := union(binary.LittleEndian.Uint32(v[24:]), v[32:40])
		if c == success && !ok {
			c = unknown
		}
		if c != success && f.otherwise != nil && !c.lost() {
			f.otherwise(r)
			continue
		}
		r.take(fmt.Sprintf("field.%d", f.id), value, f.over, c)
	}
}

// union is a value of one of the types that NVML names.
func union(kind uint32, b []byte) (float64, bool) {
	n := binary.LittleEndian.Uint64(b)
	switch kind {
	case 0:
		return math.Float64frombits(n), true
	case 1:
		return float64(uint32(n)), true
	case 2, 3:
		return float64(n), true
	case 4:
		return float64(int64(n)), true
	case 5:
		return float64(int32(n)), true
	case 6:
		return float64(uint16(n)), true
	}
	return 0, false
}

// samplePeriod finds out over which time the device measures its utilisation: its own samples have times.
func (d *device) samplePeriod() {
	const utilisation = 1
	kind, n := new(uint32), new(uint32)
	if c := d.l.call("nvmlDeviceGetSamples", d.handle, utilisation, 0, address(kind), address(n), 0); c != success || *n < 2 || *n > 100_000 {
		d.period = 0
		return
	}
	samples := make([][2]uint64, *n) // nvmlSample_t: time (µs), value
	c := d.l.call("nvmlDeviceGetSamples", d.handle, utilisation, 0, address(kind), address(n), address(&samples[0]))
	keep(kind)
	keep(n)
	keep(&samples[0])
	var gaps []uint64
	for i := 1; c == success && i < min(int(*n), len(samples)); i++ {
		if a, b := samples[i-1][0], samples[i][0]; a != 0 && b > a {
			gaps = append(gaps, b-a)
		}
	}
	if len(gaps) == 0 {
		return
	}
	slices.Sort(gaps)
	d.period = time.Duration(gaps[len(gaps)/2]) * time.Microsecond
}

// processes lists who computes on the device. Which share of its time each takes is told of whole GPUs, now and then.
func (r *reader) processes() {
	if r.Divided { // its instances tell
		return
	}
	symbol, size := r.l.newest("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses"), 24
	if symbol == "nvmlDeviceGetComputeRunningProcesses" {
		size = 16 // without the instances
	}
	n := new(uint32)
	*n = mostProcessesRead
	b := make([]byte, size*mostProcessesRead)
	if c := r.l.call(symbol, r.handle, address(n), address(&b[0])); c != success {
		return
	}
	keep(n)
	keep(&b[0])
	if r.Parent == "" {
		r.shares()
	}
	for i := range min(int(*n), mostProcessesRead) {
		v := b[i*size:]
		p := wire.SampleProcess{PID: binary.LittleEndian.Uint32(v), Busy: -1, Used: binary.LittleEndian.Uint64(v[8:])}
		if size == 24 {
			if instance := binary.LittleEndian.Uint32(v[16:]); instance != math.MaxUint32 {
				p.Instance = 1 + instance
			}
		}
		if share, known := r.busy[p.PID]; known {
			p.Busy = share
		}
		r.draft.Processes = append(r.draft.Processes, p)
	}
}

// shares asks which share of the device's time each process had since it was asked last.
func (r *reader) shares() {
	const most, size = 256, 32 // nvmlProcessUtilizationSample_t: pid (and padding), time, SM, memory, encoder, decoder
	n := new(uint32)
	*n = most
	b := make([]byte, size*most)
	c := r.l.call("nvmlDeviceGetProcessUtilization", r.handle, address(&b[0]), address(n), uintptr(r.seen))
	keep(n)
	keep(&b[0])
	if c != success { // not found: nothing is new
		if c != notFound {
			r.busy = nil
		}
		return
	}
	sum, count := map[uint32]float32{}, map[uint32]float32{}
	for i := range min(int(*n), most) {
		v := b[i*size:]
		pid, share := binary.LittleEndian.Uint32(v), binary.LittleEndian.Uint32(v[16:])
		at := binary.LittleEndian.Uint64(v[8:])
		if at == 0 || share > 100 {
			continue
		}
		r.seen = max(r.seen, at)
		sum[pid] += float32(share) / 100
		count[pid]++
	}
	r.busy = sum
	for pid := range sum {
		sum[pid] /= count[pid]
	}
}

// divide finds the instances of a divided GPU.
func (d *device) divide() {
	if d.Parent != "" {
		return
	}
	mode := new([2]uint32) // now, after a reset
	c := d.l.call("nvmlDeviceGetMigMode", d.handle, address(mode), address(mode)+4)
	keep(mode)
	d.Divided = c == success && mode[0] == 1
	if !d.Divided {
		d.parts = nil
		return
	}
	most, _ := d.l.number("nvmlDeviceGetMaxMigDeviceCount", d.handle)
	var parts []*device
	for i := range uintptr(min(most, 64)) {
		handle, c := d.l.wide("nvmlDeviceGetMigDeviceHandleByIndex", d.handle, i)
		if c != success {
			continue
		}
		part := &device{l: d.l, handle: uintptr(handle)}
		if part.identify(d.Index) != success {
			continue
		}
		part.Parent, part.PCI = d.UUID, d.PCI
		if _, profile, ok := strings.Cut(part.Name, " MIG "); ok {
			part.Profile = profile
		}
		gi, _ := d.l.number("nvmlDeviceGetGpuInstanceId", part.handle)
		ci, _ := d.l.number("nvmlDeviceGetComputeInstanceId", part.handle)
		part.Instance, part.Compute = int(gi), int(ci)
		parts = append(parts, part)
	}
	d.parts = parts
}
