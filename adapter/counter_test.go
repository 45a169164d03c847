package adapter

import (
	"math"
	"slices"
	"testing"

	"github.com/whylate/whylate/signals"
)

// counted is a counter read every 15 s.
func counted(signal string, values ...float64) *Reading {
	r := &Reading{Signal: signals.Lookup(signal)}
	for i, v := range values {
		r.Points = append(r.Points, Point{At: int64(1+i) * 15e9, Value: v})
	}
	return r
}

func TestSpans(t *testing.T) {
	for _, c := range []struct {
		name   string
		r      *Reading
		by     []float64 // span by span
		before []float64 // from its reset to its first point
		bad    []int
		grown  float64
	}{
		{"a device's counter grows", counted("gpu.energy", 100e6, 100.015e6, 100.030e6), []float64{30e3}, []float64{0}, nil, 30e3},
		{"it reads 0 once, and comes back", counted("gpu.energy", 100e6, 0, 100.030e6), []float64{30e3}, []float64{0}, []int{1}, 30e3},
		{"and twice in a row", counted("gpu.energy", 100e6, 0, 5, 100.045e6), []float64{45e3}, []float64{0}, []int{1, 2}, 45e3},
		{"it reads too much once", counted("gpu.energy", 100e6, 900e6, 100.030e6), []float64{30e3}, []float64{0}, []int{1}, 30e3},
		{"its first read is bad", counted("gpu.energy", 0, 100e6, 100.015e6), []float64{15e3}, []float64{0}, []int{0}, 15e3},
		{"its first read is bad, and later ones too", counted("gpu.energy", 0, 100e6, 100.015e6, 0, 0, 100.060e6), []float64{60e3}, []float64{0}, []int{0, 3, 4}, 60e3},
		{"it is set forward", counted("gpu.energy", 100e6, 100.015e6, 900e6, 900.015e6, 900.030e6, 900.045e6), []float64{15e3, 45e3}, []float64{0, 0}, nil, 60e3},
		{"it is reset", counted("gpu.energy", 100e6, 100.015e6, 4e3, 19e3), []float64{15e3, 15e3}, []float64{0, 4e3}, nil, 34e3},
		{"it falls to what cannot have been counted since", counted("gpu.energy", 100e6, 100.015e6, 50e6, 50.015e6), []float64{15e3, 15e3}, []float64{0, 0}, nil, 30e3},
		{"a last 0 may be a reset", counted("gpu.energy", 100e6, 100.015e6, 0), []float64{15e3, 0}, []float64{0, 0}, nil, 15e3},
		{"errors read 0 once", counted("gpu.ecc.corrected", 7, 0, 7), []float64{0}, []float64{0}, []int{1}, 0},
		{"an engine's reads 0 once, and goes on as before", counted("tokens.generated", 1000, 1010, 1020, 0, 1040, 1050), []float64{50}, []float64{0}, []int{3}, 50},
		{"an engine's reads 0 once, and stands where it stood", counted("tokens.generated", 777, 777, 777, 777, 0, 777), []float64{0}, []float64{0}, []int{4}, 0},
		{"an engine restarts, and is as fast as before", counted("tokens.generated", 10, 20, 30, 40, 0, 10, 20, 30, 40), []float64{30, 40}, []float64{0, 0}, nil, 70},
		{"an engine restarts from rest", counted("tokens.generated", 777, 777, 777, 777, 0, 900), []float64{0, 900}, []float64{0, 0}, nil, 900},
		{"an engine restarts, and soon has done more than before", counted("tokens.generated", 100, 0, 300), []float64{0, 300}, []float64{0, 0}, nil, 300},
	} {
		t.Run(c.name, func(t *testing.T) {
			spans, bad := c.r.Spans()
			if !slices.Equal(bad, c.bad) {
				t.Errorf("bad reads %v, not %v", bad, c.bad)
			}
			if len(spans) != len(c.by) {
				t.Fatalf("%d spans, not %d: %+v", len(spans), len(c.by), spans)
			}
			for i, s := range spans {
				if math.Abs(s.By-c.by[i]) > 1e-6 || s.Before != c.before[i] {
					t.Errorf("span %d: %v and %v before, not %v and %v", i, s.By, s.Before, c.by[i], c.before[i])
				}
			}
			if grown, _, _ := c.r.Grown(); math.Abs(grown-c.grown) > 1e-6 {
				t.Errorf("it grew by %v, not %v", grown, c.grown)
			}
		})
	}
}

func TestRatesAreAnArea(t *testing.T) {
	r := counted("tokens.generated", 100, 200, 200)
	r.Rate = true
	if by, over, ok := r.Grown(); !ok || by != 15*150+15*200 || over != 30e9 {
		t.Errorf("%v in %v ns, %v", by, over, ok)
	}
	if v, ok := r.Last(); ok {
		t.Errorf("a rate says that the counter stands at %v", v)
	}
}

// FuzzSpans checks that whatever a device's counter reads, no span is negative, none overlaps, and a bad read is in none of them as its end.
func FuzzSpans(f *testing.F) {
	f.Add([]byte{10, 0, 11, 12})
	f.Add([]byte{10, 200, 11, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := counted("gpu.energy")
		for i, v := range b {
			r.Points = append(r.Points, Point{At: int64(1+i) * 15e9, Value: float64(v) * 20e3})
		}
		spans, bad := r.Spans()
		if len(b) == 0 {
			return
		}
		next := 0
		for _, s := range spans {
			if s.By < 0 || s.Before < 0 || s.From < next || s.To < s.From || s.Last.Value < s.First.Value {
				t.Errorf("%+v of %v", s, b)
			}
			next = s.To + 1
			if slices.Contains(bad, s.From) || slices.Contains(bad, s.To) {
				t.Errorf("%+v begins or ends at a bad read of %v", s, bad)
			}
		}
		if by, _, _ := r.Grown(); by < 0 || math.IsNaN(by) {
			t.Errorf("it grew by %v", by)
		}
	})
}
