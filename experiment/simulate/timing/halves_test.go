package timing

import (
	"math"
	"testing"
)

// After the first half of the recorded run the engine had nothing to do.
func TestHalfEndsWhereTheEngineIsIdle(t *testing.T) {
	e := demoEngine(t)
	n, clean := Half(e)
	if !clean || n < e.Last()/3 || n > 2*e.Last()/3 {
		t.Fatalf("iteration %d of %d, clean %v", n, e.Last(), clean)
	}
	for _, q := range e.Sequences {
		if q.Queued <= e.Row(n).End && (q.Finished == 0 || q.Finished > e.Row(n+1).Decided) {
			t.Errorf("%s is there after iteration %d", q.ID, n)
		}
	}
	busy := made(t, 3, 1000, 1, small().Model(3), false) // it decides again as soon as it can
	if n, clean := Half(busy); clean || n != 501 {
		t.Errorf("a run without a break: iteration %d, clean %v", n, clean)
	}
}

// Where iterations take what they take without chance, the pace of each sequence is predicted; where another device is twice as slow, it
// is not.
func TestPace(t *testing.T) {
	for _, depth := range []int{1, 2} {
		e := made(t, 6, 4000, depth, still(small()).Model(6), false)
		half := func(n uint64) bool { return n <= 2000 }
		rest := func(n uint64) bool { return n > 2000 }
		c, err := Calibrate(e, half)
		if err != nil {
			t.Fatal(err)
		}
		p := c.Pace(e, rest)
		if p.Sequences < 50 || p.Median > 0.02 || math.Abs(p.P50) > 0.02 || math.Abs(p.P99) > 0.03 || math.Abs(p.Mean) > 0.02 {
			t.Errorf("depth %d: %+v", depth, p)
		}
		slow := made(t, 6, 4000, depth, Faster(still(small()).Model(6), 0.5), false)
		if p := c.Pace(slow, rest); p.Mean > -0.3 || p.P50 > -0.3 {
			t.Errorf("depth %d: half as fast, it is predicted at %+v", depth, p)
		}
	}
}
