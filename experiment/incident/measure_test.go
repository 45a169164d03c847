package incident

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// evidence is what a bundle holds.
type evidence struct {
	book    *ledger.Book
	samples []deviceSample
	changes []ledger.Change
}

// deviceSample is one value of one device.
type deviceSample struct {
	device, signal string
	at             int64
	value          float64
}

func read(t testing.TB, dir string) evidence {
	t.Helper()
	a := ingest.New()
	if err := a.Load([]string{dir}, 0, nil); err != nil {
		t.Fatal(err)
	}
	e := evidence{book: a.Book()}
	if f, err := os.Open(filepath.Join(dir, "gpu.wlc")); err == nil {
		e.samples = samplesOf(t, f)
		f.Close()
	}
	if f, err := os.Open(filepath.Join(dir, bundle.ChangesName)); err == nil {
		if e.changes, _, err = bundle.ReadChanges(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return e
}

func samplesOf(t testing.TB, f io.Reader) (all []deviceSample) {
	r, err := wire.NewCaptureReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	name, shift := map[uint16]string{}, map[uint16]int64{}
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if record.Opened != nil {
			h, err := wire.ParseHello(record.Opened.Hello)
			if err != nil {
				t.Fatal(err)
			}
			name[record.Source], shift[record.Source] = h.Thread, h.Clock[1]-h.Clock[0]
			continue
		}
		if record.Gap != nil || record.Frame.Type != wire.TypeSample {
			continue
		}
		var m wire.Sample
		if err := wire.Decode(record.Frame, &m); err != nil {
			t.Fatal(err)
		}
		for _, v := range m.Values {
			all = append(all, deviceSample{name[record.Source], gpu.Names[v.Signal], m.Time + shift[record.Source], v.Value})
		}
	}
}

// measure is what each signal was in a stretch of time.
// What a fault held up comes right after its end, so a second more is looked at.
func (e *evidence) measure(from, to int64, healthy *timing.Calibration) map[string]float64 {
	m := map[string]float64{Queue: 0, BehindHead: 0, Running: 0, Usage: 0, Throughput: 0, Longest: 0, Preemptions: 0, Evictions: 0, Changes: 0, DriverErrors: 0, Failures: 0, Computed: 0, Arrivals: 0}
	seconds := float64(to-from) / 1e9
	to += 1e9
	in := func(t int64) bool { return t >= from && t < to }
	e.measureEngines(m, in, func(t int64) bool { return t >= from && t < to-1e9 }, seconds, healthy)
	e.measureRequests(m, in, seconds)
	e.measureDevices(m, in)
	m[Incarnations] = e.engines()
	for _, d := range e.book.Devices {
		for _, x := range d.Errors {
			if in(x.At) {
				m[DriverErrors]++
			}
		}
	}
	for _, c := range e.changes {
		if in(c.At) {
			m[Changes]++
		}
	}
	return m
}

func (e *evidence) measureEngines(m map[string]float64, in, strictly func(int64) bool, seconds float64, healthy *timing.Calibration) {
	var rows, withDevice, decodes, fulls, steps, device, host, wait, held, onGPU, deciding float64
	var own, expected [2]float64 // without and with prefill
	var work ledger.Work
	running := map[string]float64{}
	for _, g := range e.book.Engines {
		blocks := g.Setting("num_gpu_blocks") - 1
		for k := range g.Iterations {
			it := &g.Iterations[k]
			if !in(it.End) || !it.Complete() {
				continue
			}
			lasted := float64(it.Duration()) / 1e9
			running[g.ID.Replica] += float64(it.Running) * lasted / seconds
			m[Running] += float64(it.Running) * lasted / seconds
			m[Queue] += float64(it.Waiting) * lasted / seconds
			held += (blocks - float64(it.FreeBlocks)) / blocks * lasted / seconds
			if strictly(it.End) { // what a fault held up comes all at once
				m[Throughput] += float64(it.Emitted) / seconds
			}
			if it.Tokens == 0 {
				continue
			}
			rows++
			deciding += float64(it.Launched-it.Decided) / 1e6
			steps += lasted * 1e3
			m[Longest] = max(m[Longest], lasted*1e3)
			w := it.Sums.Work
			if prev := g.Row(it.Number - 1); prev != nil {
				w = w.Sub(prev.Sums.Work)
			} else {
				w = w.Sub(g.Base.Work)
			}
			work = work.Add(w)
			if x := it.Execution; x != nil && x.Device > 0 {
				withDevice++
				device += float64(x.Device) / 1e6
				onGPU += float64(x.Device)
				host += lasted*1e3 - float64(x.Device)/1e6
				wait += float64(x.Wait)
				s := timing.Shape{Work: w, Sequences: int(it.Members), Tokens: int(it.Tokens), Prefills: int(w[ledger.WorkPrefillSeqs])}
				k := min(s.Prefills, 1)
				own[k] += float64(x.Device)
				expected[k] += float64(healthy.Expect(&s).Device)
				if k == 0 {
					decodes++
					if x.Graph == ledger.GraphFull {
						fulls++
					}
				}
			}
		}
		for _, p := range g.Preemptions {
			if in(p.At) {
				m[Preemptions]++
			}
		}
		for _, v := range g.Evictions {
			if in(v.At) {
				m[Evictions] += float64(v.Blocks) / seconds
			}
		}
	}
	e.measureSequences(m, in, seconds)
	m[Usage] = held / float64(max(len(e.book.Engines), 1))
	if rows > 0 {
		m[Step], m[Context], m[Deciding] = steps/rows, work[ledger.WorkDecodeContext]/rows, deciding/rows
	}
	if withDevice > 0 {
		m[DeviceTime], m[HostTime], m[Straggling] = device/withDevice, host/withDevice, wait/onGPU
	}
	for k, name := range []string{Residual, PrefillRes} {
		if expected[k] > 0 {
			m[name] = own[k] / expected[k]
		}
	}
	if decodes > 0 {
		m[Graphs] = fulls / decodes
	}
	m[Computed], m[Penalties], m[Grammars] = work[ledger.WorkPrefillTokens]/seconds, work[ledger.WorkPenaltyRows]/seconds, work[ledger.WorkGrammarRows]/seconds
	if m[Running] > 0 {
		for _, r := range running {
			m[Imbalance] = max(m[Imbalance], r/m[Running]*e.engines())
		}
	}
}

// engines counts those that were recorded, whether or not they had anything to do.
func (e *evidence) engines() (n float64) {
	for _, s := range e.book.Sources {
		if s.Role == "engine" && s.Thread == "scheduler" {
			n++
		}
	}
	return n
}

func (e *evidence) measureSequences(m map[string]float64, in func(int64) bool, seconds float64) {
	var cached, prompt float64
	var drafted, rejected uint64
	for _, g := range e.book.Engines {
		for _, q := range g.Sequences {
			if !in(q.Queued) || q.Join == 0 {
				continue
			}
			for _, s := range q.Skips {
				if row := g.Row(s.First); s.Reason == ledger.SkipHeadOfLine && row != nil && row.Need > 0 {
					m[BehindHead] += float64(s.Last-s.First+1) / seconds
				}
			}
			cached, prompt = cached+float64(q.Cached), prompt+float64(q.Prompt)
			d, r := q.Drafted()
			drafted, rejected = drafted+d, rejected+r
		}
	}
	if prompt > 0 {
		m[Hits] = cached / prompt
	}
	if drafted > 0 {
		m[Accepted] = 1 - float64(rejected)/float64(drafted)
	}
}

// call is a request as its client saw it, over all attempts.
type call struct {
	planned, first int64
	attempts       int
	interactive    bool
	prompt, output uint32
	tpot           float64
	complete       bool
}

func (e *evidence) calls() map[string]*call {
	calls := map[string]*call{}
	for _, r := range e.book.Requests {
		for _, c := range r.Clients {
			k := calls[r.RequestID]
			if k == nil {
				k = &call{planned: c.Planned}
				calls[r.RequestID] = k
			}
			k.attempts++
			k.planned = min(k.planned, c.Planned)
			k.interactive = r.Class != batch
			k.prompt = c.Prompt
			if c.First > 0 && (k.first == 0 || c.First < k.first) {
				k.first = c.First
			}
			if c.Outcome == ledger.OutcomeComplete {
				k.complete, k.output = true, c.Output
				if c.Output > 1 {
					k.tpot = float64(c.Ended-c.First) / float64(c.Output-1) / 1e6
				}
			}
		}
	}
	return calls
}

func (e *evidence) measureRequests(m map[string]float64, in func(int64) bool, seconds float64) {
	var ttft, tpot, gaps, lag []float64
	var n, attempts, prompt, output, ended, interactive, good float64
	for _, k := range e.calls() {
		if !in(k.planned) {
			continue
		}
		n++
		attempts += float64(k.attempts)
		prompt += float64(k.prompt)
		if k.complete {
			ended++
			output += float64(k.output)
		}
		if k.interactive {
			interactive++
			if k.complete && float64(k.first-k.planned) <= 250e6 && k.tpot <= 20 {
				good++
			}
		}
		if k.interactive && k.first > 0 {
			ttft = append(ttft, float64(k.first-k.planned)/1e6)
			if k.tpot > 0 {
				tpot = append(tpot, k.tpot)
			}
		}
	}
	var served, unread, front, fronts float64
	for _, r := range e.book.Requests {
		for _, c := range r.Clients {
			if in(c.Sent) && slices.Contains([]ledger.Outcome{ledger.OutcomeTimeout, ledger.OutcomeHTTPError, ledger.OutcomeConnection}, c.Outcome) {
				m[Failures]++
			}
			at := c.Sent
			for i, g := range c.Gaps {
				at += int64(g) * 1000
				if i > 0 && r.Class != batch && in(at) {
					gaps = append(gaps, float64(g)/1e3)
				}
			}
			if in(c.Sent) && c.First > 0 && r.FirstByte > 0 {
				lag = append(lag, float64(c.First-r.FirstByte)/1e6)
			}
		}
		if !in(r.Received) {
			continue
		}
		served++
		unread += float64(r.SendWait) / 1e6
		for _, q := range r.Sequences {
			if q.Submitted > 0 && q.LastToken > 0 && r.LastByte > 0 {
				fronts++
				front += float64(q.Submitted-r.Received+max(r.LastByte-q.LastToken-r.SendWait, 0)) / 1e6
			}
		}
	}
	m[Arrivals] = n / seconds
	if n > 0 {
		m[Attempts], m[PromptTokens] = attempts/n, prompt/n
	}
	if ended > 0 {
		m[OutputTokens] = output / ended
	}
	if interactive > 0 {
		m[Goodput] = good / interactive
	}
	if served > 0 {
		m[Unread] = unread / served
	}
	if fronts > 0 {
		m[Frontend] = front / fronts
	}
	for name, of := range map[string]struct {
		values []float64
		q      float64
	}{TTFT: {ttft, 0.5}, TTFTTail: {ttft, 0.95}, ITL: {gaps, 0.5}, ITLTail: {gaps, 0.99}, TPOT: {tpot, 0.5}, Unbuffered: {lag, 0.5}} {
		if len(of.values) > 0 {
			slices.Sort(of.values)
			m[name] = of.values[int(of.q*float64(len(of.values)-1))]
		}
	}
}

func (e *evidence) measureDevices(m map[string]float64, in func(int64) bool) {
	type of struct{ sum, n, first, last, most, least float64 }
	all := map[[2]string]*of{}
	for _, s := range e.samples {
		if !in(s.at) {
			continue
		}
		k := [2]string{s.device, s.signal}
		o := all[k]
		if o == nil {
			o = &of{first: s.value, most: math.Inf(-1), least: math.Inf(1)}
			all[k] = o
		}
		o.sum, o.n, o.last, o.most, o.least = o.sum+s.value, o.n+1, s.value, max(o.most, s.value), min(o.least, s.value)
	}
	devices := map[string]bool{}
	m[PowerLimit] = math.Inf(1)
	for k, o := range all {
		devices[k[0]] = true
		switch k[1] {
		case "gpu.clock.sm":
			m[Clock] += o.sum / o.n / 1e6
		case "gpu.clock.memory":
			m[MemoryClock] += o.sum / o.n / 1e6
		case "gpu.temperature":
			m[Temperature] = max(m[Temperature], o.most)
		case "gpu.power_limit":
			m[PowerLimit] = min(m[PowerLimit], o.least)
		case "gpu.throttled.thermal", "gpu.throttled.thermal_hardware":
			m[HeldHeat] += o.last - o.first
		case "gpu.throttled.power":
			m[HeldPower] += o.last - o.first
		}
	}
	if n := float64(len(devices)); n > 0 {
		m[Clock] /= n
		m[MemoryClock] /= n
	}
}

// moved is which way a signal moved: "" = not by more than is noise, or nobody can say.
func moved(s Signal, faulty, healthy map[string]float64) Way {
	with, ok := faulty[s.Name]
	without, too := healthy[s.Name]
	if !ok || !too {
		return ""
	}
	d := with - without
	if math.Abs(d) <= max(s.Share*math.Abs(without), s.Floor) {
		return ""
	}
	if d > 0 {
		return Up
	}
	return Down
}

func signalNamed(t testing.TB, name string) Signal {
	k := slices.IndexFunc(Signals, func(s Signal) bool { return s.Name == name })
	if k < 0 {
		t.Fatalf("no signal is called %q", name)
	}
	return Signals[k]
}
