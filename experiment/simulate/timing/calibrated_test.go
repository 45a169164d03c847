package timing

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/numeric"
	"github.com/whylate/whylate/ledger"
)

// A calibration finds the parts of an engine whose parts are known, with one and with two decisions in flight, also where no rank timed
// its device.
func TestCalibrationFindsTheParts(t *testing.T) {
	for _, c := range []struct {
		name   string
		depth  int
		device bool
	}{{"synchronous", 1, false}, {"synchronous, device timed", 1, true}, {"asynchronous", 2, false}, {"asynchronous, device timed", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			cal := calibrate(t, made(t, 5, 6000, c.depth, small().Model(5), c.device))
			truth := still(small()).Model(0)
			for _, s := range []*Shape{shape(6, 100), shape(3, 120), shape(5, 60), shape(2, 100, 30), shape(0, 0, 64)} {
				want, got := truth.Iteration(0, s), cal.Typical(s)
				for _, p := range []struct {
					part      string
					want, got time.Duration
					within    float64
				}{{"device", want.Device, got.Device, 0.05}, {"host", want.Host, got.Host, 0.15}, {"tail", want.Tail, got.Tail, 0.15}, {"gap", want.Gap, got.Gap, 0.15}} {
					if off := float64(p.got)/float64(p.want) - 1; math.Abs(off) > p.within {
						t.Errorf("%d decodes, %d tokens: %s %v, made with %v", s.Sequences-s.Prefills, s.Tokens, p.part, p.got, p.want)
					}
				}
				if got.Mode != want.Mode || got.Padded != want.Padded {
					t.Errorf("%d tokens: %v of %d, made with %v of %d", s.Tokens, got.Mode, got.Padded, want.Mode, want.Padded)
				}
			}
			if p := cal.Provenance; p.Depth != c.depth || p.Device != c.device || p.Error.All.Median > 0.02 || p.Error.All.Rows < 2000 {
				t.Errorf("provenance: %+v", p)
			}
		})
	}
}

// The time steps where a batch needs the next graph, and not between.
func TestTimeStepsAtGraphSizes(t *testing.T) {
	y := small()
	y.Device.Transformer.Layers, y.Efficiency = 32, 0.8
	y.Device.Accelerator.Compute /= 300 // a row must cost something beside the weights
	c := calibrate(t, made(t, 3, 4000, 1, still(y).Model(0), false))
	at := func(n int) time.Duration { return c.Expect(shape(n, 0)).Device }
	if a, b := at(3), at(4); math.Abs(float64(b-a)) > 0.02*float64(a) {
		t.Errorf("3 and 4 sequences need the same graph, and take %v and %v", a, b)
	}
	if a, b := at(4), at(5); float64(b) < 1.2*float64(a) {
		t.Errorf("5 sequences need the graph of 8, 4 do not; they take %v and %v", b, a)
	}
	// Past the largest graph there is none.
	plain := calibrate(t, made(t, 3, 4000, 1, still(small()).Model(0), false))
	if a, b := plain.Expect(shape(0, 0, 32)), plain.Expect(shape(0, 0, 33)); math.Abs(float64(b.Device-a.Device)/float64(small().Eager)-1) > 0.2 || b.Mode != ledger.GraphNone {
		t.Errorf("32 tokens take %+v, 33 take %+v; a launch without a graph takes %v longer", a, b, small().Eager)
	}
}

// Each real residual comes back as often as any other: the drawn ones have the quantiles of the real ones.
func TestDrawnResidualsHaveTheQuantilesOfTheRealOnes(t *testing.T) {
	c := calibrate(t, demoEngine(t))
	m := c.Model(1)
	for k := range c.kinds {
		real := wide(c.kinds[k].residuals[partDevice])
		drawn := make([]float64, 0, 400*len(real))
		for range cap(drawn) {
			drawn = append(drawn, real[m.draw(k)])
		}
		for _, q := range []float64{0.01, 0.1, 0.5, 0.9, 0.99} {
			// As far as it may be off in probability by chance: blocks of 128 make 400 n draws as good as some 3 n.
			low, high := numeric.Quantile(real, max(0, q-0.03)), numeric.Quantile(real, min(1, q+0.03))
			if got := numeric.Quantile(drawn, q); got < low || got > high {
				t.Errorf("%s over %d: quantile %g is %.3f, of the real ones %.3f", classNames[c.kinds[k].class], c.kinds[k].from, q, got, numeric.Quantile(real, q))
			}
		}
	}
}

// Slow spells stay together.
func TestDrawnResidualsResembleTheirNeighboursAsRealOnesDo(t *testing.T) {
	c := calibrate(t, demoEngine(t))
	k := c.kindOf(shape(1, 100))
	real := wide(c.kinds[k].residuals[partDevice])
	m := c.Model(1)
	drawn := make([]float64, 100_000)
	for i := range drawn {
		drawn[i] = real[m.draw(k)]
	}
	for _, lag := range []int{1, 8, 32} {
		want, got := likeness(real, lag), likeness(drawn, lag)
		if want < 0.2 {
			t.Fatalf("the real ones of this run are to resemble each other; at a distance of %d it is %.2f", lag, want)
		}
		if math.Abs(got-want) > 0.12 {
			t.Errorf("autocorrelation at a distance of %d: %.2f, of the real ones %.2f", lag, got, want)
		}
	}
}

// likeness is the autocorrelation of xs.
func likeness(xs []float64, lag int) float64 {
	var mean, own, both float64
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for i, x := range xs {
		own += (x - mean) * (x - mean)
		if i >= lag {
			both += (x - mean) * (xs[i-lag] - mean)
		}
	}
	return both / own
}

// Stalls come back as rarely as they came, and bend nothing else.
func TestStallsComeBackAsRarelyAsTheyCame(t *testing.T) {
	clean := calibrate(t, made(t, 7, 4000, 1, small().Model(7), false))
	e := made(t, 7, 4000, 1, &stalling{Model: small().Model(7), every: 100, by: 500 * time.Millisecond}, false)
	c := calibrate(t, e)
	if c.Provenance.Stalls != 40 {
		t.Fatalf("%d stalls seen, 40 made", c.Provenance.Stalls)
	}
	if a, b := clean.Typical(shape(3, 100)).Total(), c.Typical(shape(3, 100)).Total(); math.Abs(float64(b-a)) > 0.02*float64(a) {
		t.Errorf("an iteration takes %v without the stalls, %v with them", a, b)
	}
	m, stalls := c.Model(2), 0
	const n = 40_000
	for range n {
		if took := m.Iteration(0, shape(3, 100)); took.Device > 400*time.Millisecond {
			stalls++
		}
	}
	if want := n / 100; math.Abs(float64(stalls-want)) > 4*math.Sqrt(float64(want)) {
		t.Errorf("%d stalls in %d iterations, expected are %d", stalls, n, want)
	}
}

// stalling is a model of which every so manieth iteration's device stalls.
type stalling struct {
	Model
	every, n int
	by       time.Duration
}

func (m *stalling) Iteration(at time.Duration, s *Shape) Took {
	t := m.Model.Iteration(at, s)
	if m.n++; m.n%m.every == 50 {
		t.Device += m.by
	}
	return t
}

// In the recorded run the first request with log-probabilities made the engine compile for 19 s. So it does in a simulated one: once,
// with the first such request, and not before.
func TestAFirstUseStallsOnce(t *testing.T) {
	m := calibrate(t, demoEngine(t)).Model(1)
	logprobs := shape(4, 100)
	logprobs.Work[ledger.WorkLogprobRows] = 4
	var slow []int
	for i := range 3000 {
		s := shape(4, 100)
		if i >= 1000 {
			s = logprobs
		}
		if m.Iteration(0, s).Device > 10*time.Second {
			slow = append(slow, i)
		}
	}
	if len(slow) != 1 || slow[0] != 1000 {
		t.Errorf("stalled in iterations %v, the first with log-probabilities is 1000", slow)
	}
}

// A stall with the first use of one of two things comes with whichever is first, once; never at random.
func TestAFirstUseOfTwoThingsStallsOnce(t *testing.T) {
	text := strings.Replace(tiny, `["logprob rows"]`, `["logprob rows","grammar rows"]`, 1)
	c, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	m := c.Model(1)
	for i, feature := range []int{ledger.WorkDecodeSeqs, ledger.WorkDecodeSeqs, ledger.WorkDecodeSeqs, ledger.WorkGrammarRows, ledger.WorkLogprobRows, ledger.WorkGrammarRows} {
		s := shape(1, 0)
		s.Work[feature] = 1
		if slow := m.Iteration(0, s).Device > time.Second/2; slow != (i == 3) {
			t.Errorf("iteration %d, with %s: stalled %v", i, ledger.WorkNames[feature], slow)
		}
	}
}

// Decode waits for memory, a long prompt computes.
func TestWhatPrefillAddsIsCompute(t *testing.T) {
	c := calibrate(t, demoEngine(t))
	if m := c.Expect(shape(8, 500)).Memory; m != 1 {
		t.Errorf("decode waits for memory in %.2f of its time", m)
	}
	if m := c.Expect(shape(0, 0, 250)).Memory; m < 0.1 || m > 0.5 {
		t.Errorf("a chunk of 250 tokens waits for memory in %.2f of its time", m)
	}
}

// Of a rank that timed its device, the rest of the wait is tail: nothing is lost.
func TestPartsAddUpToTheIteration(t *testing.T) {
	for _, depth := range []int{1, 2} {
		e := made(t, 5, 1000, depth, small().Model(5), true)
		for k := range e.Iterations {
			it := &e.Iterations[k]
			it.Execution.Device = it.Execution.Device * 9 / 10
			p := partsOf(e, it)
			took := Took{Host: time.Duration(p[partHost]), Device: time.Duration(p[partDevice]), Tail: time.Duration(p[partTail])}
			if got := Duration(e, it, took); got != float64(it.Duration()) {
				t.Fatalf("depth %d: iteration %d took %d ns, its parts %g", depth, it.Number, it.Duration(), got)
			}
		}
	}
}

// A gap is measured only where the next decision had waited for nothing but the completion.
func TestGapsAreMeasuredWhereNothingElseIsWaitedFor(t *testing.T) {
	e := &ledger.Engine{First: 1, Iterations: []ledger.Iteration{{Number: 1, Decided: 10, Launched: 20, End: 100}, {Number: 2, Decided: 30, Launched: 40, End: 200}, {Number: 3, Decided: 107}}}
	if gap := gapAfter(e, e.Row(1), 2); gap != 7 {
		t.Errorf("gap of %g ns", gap)
	}
	e.Iterations[1].Launched = 104 // the pipeline was not full: the loop had other things to do
	if gap := gapAfter(e, e.Row(1), 2); !math.IsNaN(gap) {
		t.Errorf("gap of %g ns", gap)
	}
	if gap := gapAfter(e, e.Row(2), 1); !math.IsNaN(gap) { // decided before
		t.Errorf("gap of %g ns", gap)
	}
	if gap := gapAfter(e, e.Row(3), 1); !math.IsNaN(gap) { // the last
		t.Errorf("gap of %g ns", gap)
	}
}

// A long run is learned from in stretches all over it, and a calibration of it does not grow.
func TestALongRunIsThinned(t *testing.T) {
	seen := make([]observation, 5*MaxRows/2)
	for i := range seen {
		seen[i].number = uint64(i)
	}
	kept := thin(seen)
	if len(kept) > MaxRows || len(kept) < MaxRows/2 {
		t.Fatalf("%d of %d kept", len(kept), len(seen))
	}
	breaks := 0
	for i := 1; i < len(kept); i++ {
		if kept[i].number != kept[i-1].number+1 {
			breaks++
		}
	}
	if breaks > len(kept)/stretch || kept[len(kept)-1].number < uint64(len(seen)-4*stretch) {
		t.Errorf("%d breaks in %d, the last is %d", breaks, len(kept), kept[len(kept)-1].number)
	}
}

// More work is never expected to take less time.
func TestMoreWorkIsExpectedToTakeLonger(t *testing.T) {
	for name, c := range map[string]*Calibration{"real": calibrate(t, demoEngine(t)), "graphs": calibrate(t, made(t, 5, 3000, 1, small().Model(5), false))} {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 5000 {
			s := anyShape(rng)
			for s.Tokens == 0 {
				s = anyShape(rng)
			}
			b := more(rng, s)
			if x, y := c.Expect(s), c.Expect(b); y.Host < x.Host || y.Device < x.Device || y.Tail < x.Tail {
				t.Fatalf("%s: %+v takes %+v, %+v takes %+v", name, s, x, b, y)
			}
		}
	}
}

// Half of a run tells of the other half what that other half could have told.
func TestHalfARunPredictsTheOther(t *testing.T) {
	e := made(t, 9, 8000, 1, small().Model(9), false)
	c, err := Calibrate(e, func(n uint64) bool { return n <= 4000 })
	if err != nil {
		t.Fatal(err)
	}
	a := c.Judge(e, func(n uint64) bool { return n > 4000 })
	if a.All.Median > 0.02 || a.All.P90 > 0.05 || math.Abs(a.All.DrawnTotal) > 0.02 || math.Abs(a.Decode.DrawnP99) > 0.1 {
		t.Errorf("%+v", a)
	}
	if a.All.Rows < 3900 || a.Decode.Rows+a.Prefill.Rows != a.All.Rows {
		t.Errorf("judged on %d, %d and %d rows", a.All.Rows, a.Decode.Rows, a.Prefill.Rows)
	}
}

// What it learned from says nothing of what it is held against: an iteration outside its use may be anything.
func TestCalibrationSeesOnlyWhatItMay(t *testing.T) {
	use := func(n uint64) bool { return n <= 3000 }
	write := func(e *ledger.Engine) string {
		c, err := Calibrate(e, use)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := c.Write(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	e := made(t, 4, 4000, 1, small().Model(4), false)
	before := write(e)
	for n := uint64(3002); n <= 4000; n++ {
		it := e.Row(n)
		it.Decided, it.Launched, it.Completed, it.Start, it.End = it.Decided+1e12, it.Launched+2e12, it.Completed+3e12, it.Start+1e12, it.End+4e12
	}
	if write(e) != before {
		t.Error("times of iterations that it may not use changed what it learned")
	}
}

func TestTooFewIterationsAreRefused(t *testing.T) {
	e := demoEngine(t)
	for name, use := range map[string]func(uint64) bool{
		"few":        func(n uint64) bool { return n < 150 },
		"none":       func(uint64) bool { return false },
		"no prefill": func(n uint64) bool { return e.Row(n).Tokens == 1 },
	} {
		if _, err := Calibrate(e, use); err == nil || !strings.Contains(err.Error(), "needs 200 in all, at least 20 of each") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnEmptyIterationTakesSomeTime(t *testing.T) {
	for name, e := range map[string]*ledger.Engine{"seen": demoEngine(t), "never seen": made(t, 5, 3000, 1, small().Model(5), false)} {
		took := calibrate(t, e).Model(1).Iteration(0, &Shape{})
		if took.Host <= 0 || took.Total() > 20*time.Millisecond {
			t.Errorf("%s: %+v", name, took)
		}
	}
}

func TestModelsDoNotAllocate(t *testing.T) {
	roofline, err := Presets[0].Model(1000, 16)
	if err != nil {
		t.Fatal(err)
	}
	s := shape(16, 1000, 64)
	for name, m := range map[string]Model{"calibrated": calibrate(t, demoEngine(t)).Model(1), "synthetic": MadeUp().Model(1), "roofline": roofline} {
		if n := testing.AllocsPerRun(1000, func() { m.Iteration(0, s) }); n > 0 {
			t.Errorf("%s: %g allocations an iteration", name, n)
		}
	}
}

func BenchmarkIteration(b *testing.B) {
	roofline, err := Presets[0].Model(1000, 16)
	if err != nil {
		b.Fatal(err)
	}
	e, err := demo()
	if err != nil {
		b.Fatal(err)
	}
	s := shape(64, 1000)
	for _, c := range []struct {
		name string
		m    Model
	}{{"calibrated", calibrate(b, e).Model(1)}, {"synthetic", MadeUp().Model(1)}, {"roofline", roofline}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				c.m.Iteration(time.Duration(i)*10*time.Millisecond, s)
			}
		})
	}
}
