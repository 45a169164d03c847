package wire

// DeviceState says what a device does when it is read.
type DeviceState uint8

const (
	DeviceAnswers DeviceState = 1
	DeviceSilent  DeviceState = 2 // it, or its driver, does not answer
	DeviceLost    DeviceState = 3 // it needs a reset, or is gone
	DeviceNone    DeviceState = 4 // no device is seen at all
)

// AbsentReason says why a signal has no value. The list is closed.
type AbsentReason uint8

const (
	AbsentNotSupported AbsentReason = 1 // by the device
	AbsentNotPermitted AbsentReason = 2
	AbsentOldDriver    AbsentReason = 3 // it has no such question
	AbsentReadError    AbsentReason = 4
	AbsentBlank        AbsentReason = 5 // a sentinel that means none
	AbsentCorrupt      AbsentReason = 6 // outside the range of what can be
	AbsentShared       AbsentReason = 7 // it is not measured of a part of a device
)

// Sample is one device, read once. Time is when the reading began. Signals are indices into the names that the source's hello lists.
type Sample struct {
	Time      int64
	Every     uint64 // ns, how often the device is read
	Took      uint64 // ns
	Since     int64  // ns, in this state; 0 = not known
	State     DeviceState
	Why       string // of a state other than [DeviceAnswers]
	Values    []SampleValue
	Absent    []SampleAbsent
	Processes []SampleProcess
	XIDs      []SampleXID
}

// SampleValue is a signal's value, in the registry's unit.
type SampleValue struct {
	Signal uint16
	Window uint32 // µs over which the device measured it; 0 = of the moment, or a count
	Value  float64
}

// SampleAbsent is a signal without a value.
type SampleAbsent struct {
	Signal uint16
	Why    AbsentReason
	Code   uint8 // the library's own
}

// SampleProcess is a process that computes on the device.
type SampleProcess struct {
	PID      uint32
	Busy     float32 // share of the device's time; −1 = not known
	Used     uint64  // bytes; 2⁶⁴−1 = not known
	Instance uint32  // 1 + the GPU instance of a divided device; 0 = none
}

// SampleXID is an error of the driver that came since the last sample.
type SampleXID struct {
	At     int64 // ns
	Number uint32
}

// Bytes of one list entry.
const (
	sampleValueSize   = 16
	sampleAbsentSize  = 4
	sampleProcessSize = 24
	sampleXIDSize     = 16
)

// Type implements [Message].
func (*Sample) Type() Type { return TypeSample }

func (m *Sample) layout(c cursor) cursor {
	c.at(&m.Time)
	c.u64("every", &m.Every)
	c.u64("took", &m.Took)
	c.i64("since", &m.Since)
	c.u8("state", (*uint8)(&m.State))
	c.zero(1)
	values := c.count16("values", len(m.Values))
	absent := c.count16("absent", len(m.Absent))
	processes := c.count16("processes", len(m.Processes))
	xids := c.count16("xids", len(m.XIDs))
	c.zero(6)
	c.str("why", &m.Why)
	m.Values = sized(&c, "values", m.Values, values, sampleValueSize)
	for i := range m.Values {
		v := &m.Values[i]
		c.u16("values.signal", &v.Signal)
		c.zero(2)
		c.u32("values.window", &v.Window)
		c.f64("values.value", &v.Value)
	}
	m.Absent = sized(&c, "absent", m.Absent, absent, sampleAbsentSize)
	for i := range m.Absent {
		v := &m.Absent[i]
		c.u16("absent.signal", &v.Signal)
		c.u8("absent.why", (*uint8)(&v.Why))
		c.u8("absent.code", &v.Code)
	}
	m.Processes = sized(&c, "processes", m.Processes, processes, sampleProcessSize)
	for i := range m.Processes {
		p := &m.Processes[i]
		c.u32("processes.pid", &p.PID)
		c.f32("processes.busy", &p.Busy)
		c.u64("processes.used", &p.Used)
		c.u32("processes.instance", &p.Instance)
		c.zero(4)
	}
	m.XIDs = sized(&c, "xids", m.XIDs, xids, sampleXIDSize)
	for i := range m.XIDs {
		c.i64("xids.at", &m.XIDs[i].At)
		c.u32("xids.number", &m.XIDs[i].Number)
		c.zero(4)
	}
	return c
}
