package timing

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/ledger"
)

// models are all bodies, by name.
func models(t *testing.T, seed uint64) map[string]Model {
	t.Helper()
	m := map[string]Model{"calibrated": calibrate(t, demoEngine(t)).Model(seed), "synthetic": MadeUp().Model(seed)}
	for _, p := range Presets {
		r, err := p.Model(1000, 16)
		if err != nil {
			t.Fatal(err)
		}
		m[p.Name] = r
	}
	return m
}

// play asks a model for a run of n random iterations.
func play(m Model, n int) []Took {
	rng := rand.New(rand.NewPCG(3, 4))
	took := make([]Took, n)
	var at time.Duration
	for i := range took {
		took[i] = m.Iteration(at, anyShape(rng))
		at += took[i].Total()
	}
	return took
}

func TestOneSeedGivesOneRun(t *testing.T) {
	again, other := models(t, 1), models(t, 2)
	for name, m := range models(t, 1) {
		run := play(m, 3000)
		if !reflect.DeepEqual(run, play(again[name], 3000)) {
			t.Errorf("%s: the same seed gave another run", name)
		}
		if same := reflect.DeepEqual(run, play(other[name], 3000)); same != (UnitOf(m) == Ratio) {
			t.Errorf("%s: another seed gave the same run: %v", name, same)
		}
	}
}

func TestTimesArePossible(t *testing.T) {
	for name, m := range models(t, 1) {
		for i, took := range play(m, 20_000) {
			if took.Host < 0 || took.Device < 0 || took.Tail < 0 || took.Gap < 0 || took.Memory < 0 || took.Memory > 1 {
				t.Fatalf("%s: iteration %d: %+v", name, i, took)
			}
		}
	}
}

func TestADeviceTwiceAsFastHalvesItsTime(t *testing.T) {
	again := models(t, 1)
	for name, m := range models(t, 1) {
		plain, fast := play(again[name], 1), Faster(m, 2)
		if UnitOf(fast) != UnitOf(m) {
			t.Errorf("%s: the unit changed", name)
		}
		got := play(fast, 1)[0]
		want := plain[0]
		want.Device = (want.Device + 1) / 2
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	p := Presets[1]
	p.Accelerator.Bandwidth, p.Accelerator.Compute = 2*p.Accelerator.Bandwidth, 2*p.Accelerator.Compute
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		s := anyShape(rng)
		m1, c1 := Presets[1].reckon(s, s.Tokens)
		m2, c2 := p.reckon(s, s.Tokens)
		if math.Abs(m1-2*m2) > 1e-12 || math.Abs(c1-2*c2) > 1e-12 {
			t.Fatalf("%+v takes %g + %g s, on twice the hardware %g + %g", s, m1, c1, m2, c2)
		}
	}
}

func TestMoreWorkTakesLonger(t *testing.T) {
	roofline, err := Presets[0].Model(1000, 16)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		s := anyShape(rng)
		b := more(rng, s)
		for name, m := range map[string]Model{"roofline": roofline, "synthetic": still(MadeUp()).Model(1)} {
			if x, y := m.Iteration(0, s), m.Iteration(0, b); y.Host < x.Host || y.Device < x.Device || y.Tail < x.Tail {
				t.Fatalf("%s: %+v takes %+v, %+v takes %+v", name, s, x, b, y)
			}
		}
	}
}

// A preset answers in multiples of a decode iteration of one sequence, and says so.
func TestPresetsAnswerInRatios(t *testing.T) {
	for _, p := range Presets {
		m, err := p.Model(1000, 16)
		if err != nil {
			t.Fatal(err)
		}
		if UnitOf(m) != Ratio || strings.Contains(UnitOf(m).String(), "ms") {
			t.Errorf("%s: the unit is %v", p.Name, UnitOf(m))
		}
		if one := m.Iteration(0, shape(1, 0)); one != (Took{Device: RatioReference, Memory: 1}) {
			t.Errorf("%s: the reference takes %+v", p.Name, one)
		}
		// Memory hides the compute of few rows; a long chunk is bound by compute.
		if few := m.Iteration(0, shape(64, 0)).Device; few != RatioReference {
			t.Errorf("%s: 64 sequences without context take %v", p.Name, few)
		}
		if chunk := m.Iteration(0, shape(0, 0, 2048)); chunk.Device < 5*RatioReference || chunk.Memory > 0.1 {
			t.Errorf("%s: a chunk of 2048 takes %+v", p.Name, chunk)
		}
		// By hand: 2 FLOP a parameter and token, and 4 a pair, layer and hidden dimension; against the weights read once.
		flop := 2*p.Transformer.Parameters*2048 + 4*float64(p.Transformer.Layers)*float64(p.Transformer.Hidden)*2048*2048/2
		want := flop / 989.5e12 / (2 * p.Transformer.Parameters / 3.35e12)
		if got := m.Iteration(0, shape(0, 0, 2048)).Device.Seconds(); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%s: a chunk of 2048 takes %.3f, by hand %.3f", p.Name, got, want)
		}
		if p.Accelerator.Source == "" || p.Transformer.Source == "" {
			t.Errorf("%s: figures without a source", p.Name)
		}
	}
	// The published sizes of the KV cache: 128 KiB and 320 KiB a token.
	if a, b := Presets[0].Transformer.KVBytes(), Presets[1].Transformer.KVBytes(); a != 128<<10 || b != 320<<10 {
		t.Errorf("a token takes %g and %g bytes", a, b)
	}
}

func TestAPresetThatDoesNotFitIsRefused(t *testing.T) {
	for _, p := range Presets {
		most := 0
		for step := 1 << 20; step > 0; step /= 2 {
			if p.Fits(most+step, 16) == nil {
				most += step
			}
		}
		if most == 0 {
			t.Errorf("%s: nothing fits", p.Name)
		}
		_, err := p.Model(most+1, 16)
		if err == nil {
			t.Fatalf("%s: %d blocks fit, %d as well", p.Name, most, most+1)
		}
		var says int
		if i := strings.LastIndex(err.Error(), "at most "); i >= 0 {
			for _, c := range strings.TrimSuffix(err.Error()[i+len("at most "):], " blocks") {
				says = 10*says + int(c-'0')
			}
		}
		if says != most {
			t.Errorf("%s: %d blocks fit: %v", p.Name, most, err)
		}
	}
	alone := Presets[1]
	alone.Count = 1
	if _, err := alone.Model(1, 16); err == nil || !strings.Contains(err.Error(), "141.2 GB of weights") {
		t.Errorf("70B on one H100: %v", err)
	}
	if _, err := PresetNamed("h100-9b"); err == nil || !strings.Contains(err.Error(), "h100-8b or h100-70b-tp4") {
		t.Errorf("an unknown preset: %v", err)
	}
	if p, err := PresetNamed("h100-70b-tp4"); err != nil || p.Count != 4 {
		t.Errorf("%+v, %v", p, err)
	}
}

// vLLM's default list for at most 512.
func TestCaptureSizes(t *testing.T) {
	got := CaptureSizes(512)
	if len(got) != 3+32+16 || got[0] != 1 || got[3] != 8 || got[34] != 256 || got[35] != 272 || got[50] != 512 {
		t.Errorf("%v", got)
	}
}

func TestSyntheticStepsAtGraphSizes(t *testing.T) {
	m := still(MadeUp()).Model(1)
	for _, c := range []struct {
		s      *Shape
		mode   ledger.GraphMode
		padded int
	}{{shape(1, 9), ledger.GraphFull, 1}, {shape(3, 9), ledger.GraphFull, 4}, {shape(9, 9), ledger.GraphFull, 16}, {shape(2, 9, 300), ledger.GraphPiecewise, 304},
		{shape(0, 0, 513), ledger.GraphNone, 0}, {&Shape{}, ledger.GraphUnknown, 0}} {
		if took := m.Iteration(0, c.s); took.Mode != c.mode || took.Padded != c.padded {
			t.Errorf("%d tokens: %v of %d, want %v of %d", c.s.Tokens, took.Mode, took.Padded, c.mode, c.padded)
		}
	}
	// Above the knee, where compute binds, the padding costs.
	if a, b, c := m.Iteration(0, shape(0, 0, 480)).Device, m.Iteration(0, shape(0, 0, 481)).Device, m.Iteration(0, shape(0, 0, 490)).Device; b-a < 50*(c-b) {
		t.Errorf("480, 481 and 490 tokens take %v, %v and %v", a, b, c)
	}
}

// Pauses come with allocations: more sequences, more of them. The full ones grow with the engine's age.
func TestCollectionsPause(t *testing.T) {
	y := still(MadeUp())
	y.Collection = MadeUp().Collection
	full := func(sequences int, at time.Duration) (n int, longest time.Duration) {
		m := y.Model(1)
		base := still(y).Model(1).Iteration(0, shape(sequences, 100)).Host
		for range 10_000 {
			if pause := m.Iteration(at, shape(sequences, 100)).Host - base; pause > 5*time.Millisecond {
				n, longest = n+1, max(longest, pause)
			}
		}
		return n, longest
	}
	few, young := full(8, 0)
	many, _ := full(64, 0)
	_, old := full(64, 10*time.Hour)
	if few == 0 || many < 6*few || old < 3*young {
		t.Errorf("%d full collections with 8 sequences, %d with 64; the first takes %v, after ten hours %v", few, many, young, old)
	}
}

// Every tenth collection is a middle one, every hundredth a full one.
func TestCollectionsComeInThreeGenerations(t *testing.T) {
	y := still(MadeUp())
	base := y.Model(1).Iteration(0, shape(10, 100)).Host
	y.Collection = Collection{PerSequence: 1, Threshold: 20, Young: time.Millisecond, Middle: time.Second, PerObject: time.Minute, Alive: 3, Growth: 1}
	m := y.Model(1)
	seen := map[time.Duration]int{}
	for range 2000 {
		seen[m.Iteration(2*time.Second, shape(10, 100)).Host-base]++
	}
	if want := map[time.Duration]int{0: 1000, time.Millisecond: 900, time.Second: 90, 5 * time.Minute: 10}; !reflect.DeepEqual(seen, want) {
		t.Errorf("%v, want %v", seen, want)
	}
}

// The device drifts slowly: within a second hardly, over hours by about its σ.
func TestTheDeviceDrifts(t *testing.T) {
	y := still(MadeUp())
	y.Drift = Drift{Sigma: 0.05, Over: time.Minute}
	m := y.Model(3)
	base := math.Log(float64(still(y).Model(0).Iteration(0, shape(8, 100)).Device))
	var square, step float64
	last := 0.0
	const n = 200_000
	for i := range n {
		x := math.Log(float64(m.Iteration(time.Duration(i)*100*time.Millisecond, shape(8, 100)).Device)) - base
		square += x * x / n
		step += (x - last) * (x - last) / n
		last = x
	}
	if s := math.Sqrt(square); s < 0.04 || s > 0.06 {
		t.Errorf("σ in the long run is %.3f, made with 0.05", s)
	}
	if s := math.Sqrt(step); s > 0.005 {
		t.Errorf("it moves by %.4f in 100 ms", s)
	}
}

func TestImpossibleEnginesAreRefused(t *testing.T) {
	y := MadeUp()
	if err := y.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Synthetic){
		"efficiency: 0": func(y *Synthetic) { y.Efficiency = 0 }, "efficiency: NaN": func(y *Synthetic) { y.Efficiency = math.NaN() },
		"graphs: 8": func(y *Synthetic) { y.Graphs = []int{8, 8} }, "gap: -1": func(y *Synthetic) { y.Gap = -1 },
		"device jitter: +Inf": func(y *Synthetic) { y.DeviceJitter = math.Inf(1) }, "device: ": func(y *Synthetic) { y.Device = Preset{} },
	} {
		y := MadeUp()
		spoil(&y)
		if err := y.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
