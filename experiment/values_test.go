package experiment

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQuantilesAreExactThenClose(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 10, 1000, exactValues, exactValues + 1, 300_000} {
		var v Values
		all := make([]int64, n)
		var sum float64
		for i := range all {
			all[i] = int64(math.Exp(25*random.Float64())) - 50 // from −49 to 7·10¹⁰
			v.Add(all[i])
			sum += float64(all[i])
		}
		slices.Sort(all)
		if v.Count() != int64(n) || v.Max() != all[n-1] || math.Abs(v.Mean()-sum/float64(n)) > 1e-9*math.Abs(sum) {
			t.Errorf("%d values: count %d, max %d, mean %v", n, v.Count(), v.Max(), v.Mean())
		}
		for _, q := range []float64{0, 0.001, 0.5, 0.9, 0.99, 1} {
			want := all[min(max(int(math.Ceil(q*float64(n))), 1), n)-1]
			got := v.Quantile(q)
			if off := math.Abs(float64(got - want)); n <= exactValues && got != want || off > 0.004*math.Abs(float64(want)) {
				t.Errorf("%d values, quantile %v: %d, want %d", n, q, got, want)
			}
		}
	}
	var none Values
	if none.Quantile(0.5) != 0 || none.Mean() != 0 || none.Max() != 0 {
		t.Error("no values have a quantile")
	}
}

func TestBucketsAreInOrderAndNarrow(t *testing.T) {
	last := bucketOf(0)
	for x := int64(1); x > 0 && x < math.MaxInt64/17*16; x += x/300 + 1 {
		b := bucketOf(x)
		if b < last || b > last+1 {
			t.Fatalf("%d is in bucket %d after %d", x, b, last)
		}
		if m := middle(b); bucketOf(m) != b || math.Abs(float64(m-x)) > 0.008*float64(x) {
			t.Fatalf("%d is in bucket %d, whose middle is %d", x, b, m)
		}
		if bucketOf(-x) != -b || middle(-b) != -middle(b) {
			t.Fatalf("−%d is in bucket %d", x, bucketOf(-x))
		}
		last = b
	}
	bucketOf(math.MinInt64)
	bucketOf(math.MaxInt64)
}
