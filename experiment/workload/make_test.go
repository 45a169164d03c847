package workload

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

// times takes n arrivals and checks that they never go back.
func times(t *testing.T, at Arrivals, n int) []float64 {
	t.Helper()
	var all []float64
	last := time.Duration(0)
	for range n {
		a := at()
		if a < last {
			t.Fatalf("arrival at %v after %v", a, last)
		}
		last = a
		all = append(all, a.Seconds())
	}
	return all
}

// gapStats returns the mean and the coefficient of variation of the gaps, the first from 0.
func gapStats(at []float64) (mean, cv float64) {
	var sum, squares, last float64
	for _, a := range at {
		sum += a - last
		squares += (a - last) * (a - last)
		last = a
	}
	n := float64(len(at))
	mean = sum / n
	return mean, math.Sqrt(squares/n-mean*mean) / mean
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestArrivalsHaveTheirRateAndBurstiness(t *testing.T) {
	arrive := must[Arrivals](t)
	const n = 200_000
	for seed := range uint64(3) {
		for _, c := range []struct {
			name string
			at   Arrivals
			rate float64
			cv   float64
		}{
			{"poisson", arrive(Poisson(5, seed)), 5, 1},
			{"gamma 0.3", arrive(Gamma(5, 0.3, seed)), 5, 0.3},
			{"gamma 1", arrive(Gamma(0.01, 1, seed)), 0.01, 1},
			{"gamma 4", arrive(Gamma(5, 4, seed)), 5, 4},
			{"steady", arrive(Steady(5)), 5, 0},
			{"diurnal without swing", arrive(Diurnal(5, 0, time.Hour, seed)), 5, 1},
		} {
			mean, cv := gapStats(times(t, c.at, n))
			// Five standard errors of the mean; the variance of a gamma's variance is wider the burstier it is.
			if off := math.Abs(mean*c.rate - 1); off > 5*c.cv/math.Sqrt(n)+1e-4 {
				t.Errorf("%s, seed %d: mean gap %v, want %v", c.name, seed, mean, 1/c.rate)
			}
			if math.Abs(cv-c.cv) > 0.05*c.cv+0.003 {
				t.Errorf("%s, seed %d: gaps vary by %v, want %v", c.name, seed, cv, c.cv)
			}
		}
	}
}

func TestPoissonCountsAreAsVariableAsTheirMean(t *testing.T) {
	at := must[Arrivals](t)(Poisson(20, 9))
	counts := make([]float64, 10_000)
	for {
		a := at().Seconds()
		if a >= float64(len(counts)) {
			break
		}
		counts[int(a)]++
	}
	var sum, squares float64
	for _, c := range counts {
		sum += c
		squares += c * c
	}
	mean := sum / 10_000
	if variance := squares/10_000 - mean*mean; math.Abs(mean-20) > 0.3 || math.Abs(variance/mean-1) > 0.08 {
		t.Errorf("a second has %v on average, with variance %v", mean, variance)
	}
}

func TestDiurnalFollowsTheDay(t *testing.T) {
	at := must[Arrivals](t)(Diurnal(10, 0.8, time.Hour, 4))
	quarters := [4]float64{}
	for {
		a := at()
		if a >= 100*time.Hour {
			break
		}
		quarters[int(a%time.Hour/(15*time.Minute))]++
	}
	// Integral of 1 − 0.8·cos over each quarter of the period.
	low, high := 1-0.8*2/math.Pi, 1+0.8*2/math.Pi
	for i, want := range []float64{low, high, high, low} {
		if got := quarters[i] / (100 * 900 * 10); math.Abs(got/want-1) > 0.02 {
			t.Errorf("quarter %d has %v of the mean rate, want %v", i, got, want)
		}
	}
}

func TestArrivalsRefuse(t *testing.T) {
	for _, rate := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		_, err1 := Poisson(rate, 1)
		_, err2 := Gamma(rate, 1, 1)
		_, err3 := Diurnal(rate, 0.5, time.Hour, 1)
		_, err4 := Steady(rate)
		for _, err := range []error{err1, err2, err3, err4} {
			if err == nil || !strings.Contains(err.Error(), "rate") {
				t.Errorf("rate %v: %v", rate, err)
			}
		}
	}
	for _, cv := range []float64{0, -1, math.NaN(), 1e9} {
		if _, err := Gamma(1, cv, 1); err == nil {
			t.Errorf("cv %v was taken", cv)
		}
	}
	if _, err := Diurnal(1, 2, time.Hour, 1); err == nil {
		t.Error("swing 2 was taken")
	}
	if _, err := Diurnal(1, 0.5, 0, 1); err == nil {
		t.Error("period 0 was taken")
	}
}

func TestDistributionsHaveTheirQuantiles(t *testing.T) {
	for text, want := range map[string]map[float64]float64{
		"512":                               {0.01: 512, 0.99: 512},
		"100-200":                           {0.5: math.Sqrt(100 * 200)},
		"p50=512,p90=2000,p99=8000":         {0.5: 512, 0.9: 2000, 0.99: 8000, 0.7: math.Exp((math.Log(512) + math.Log(2000)) / 2)},
		"p90=2000, p50=512 ,p0=100,p100=9e": nil,
		"p0=100,p50=512,p100=4096":          {0.5: 512},
	} {
		d, err := ParseDistribution(text)
		if want == nil {
			if err == nil {
				t.Errorf("%q was taken", text)
			}
			continue
		}
		if err != nil {
			t.Fatal(text, err)
		}
		random := rand.New(rand.NewPCG(1, 1))
		var all []int
		for range 100_000 {
			all = append(all, d.draw(random))
		}
		slices.Sort(all)
		for q, w := range want {
			if got := float64(all[int(q*100_000)]); math.Abs(got/w-1) > 0.06 {
				t.Errorf("%q: quantile %v is %v, want %v", text, q, got, w)
			}
		}
		if float64(all[0]) < d[0].Length || float64(all[len(all)-1]) > d[len(d)-1].Length {
			t.Errorf("%q: lengths from %d to %d", text, all[0], all[len(all)-1])
		}
	}
	for _, text := range []string{"", "0", "-5", "NaN", "5-3", "p50=0", "p50=5,p50=6", "p50=5,p90=4", "p101=5", "q50=5", "99999999999"} {
		if _, err := ParseDistribution(text); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestLengthsOfATraceComeInPairs(t *testing.T) {
	var all []experiment.Request
	for i := range 1000 {
		all = append(all, experiment.Request{PromptTokens: i + 1, OutputTokens: 2 * (i + 1)})
	}
	lengths, err := LengthsOf(experiment.Requests(all), 1)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	seen := map[int]bool{}
	for range 20_000 {
		p, o := lengths(random)
		if o != 2*p {
			t.Fatalf("a prompt of %d has an answer of %d", p, o)
		}
		seen[p] = true
	}
	if len(seen) < 990 {
		t.Errorf("only %d of 1000 lengths occur", len(seen))
	}
	if _, err := LengthsOf(experiment.Requests(nil), 1); err == nil {
		t.Error("lengths of nothing")
	}
}

// TestSameSeedSameBytes covers every generator.
func TestSameSeedSameBytes(t *testing.T) {
	kinds := map[string]func(seed uint64) (experiment.Stream, error){
		"poisson": func(seed uint64) (experiment.Stream, error) {
			at, err := Poisson(5, seed)
			return Independently(at, Independent(Distribution{{0, 10}, {1, 1000}}, Fixed(20)), seed), err
		},
		"scale": func(seed uint64) (experiment.Stream, error) {
			at, err := Steady(5)
			return Scale(Independently(at, Independent(Fixed(5), Fixed(5)), 0), 1.5, seed), err
		},
		"closed": func(seed uint64) (experiment.Stream, error) {
			s := Independently(AtOnce(), Independent(Fixed(5), Fixed(5)), seed)
			return Assume(Closed(s, 4, time.Second, seed), AnswerTime{time.Second, time.Millisecond}), nil
		},
		"conversations": func(seed uint64) (experiment.Stream, error) { return talk(seed) },
		"retrieval":     func(seed uint64) (experiment.Stream, error) { return documents(seed) },
	}
	for name, kind := range kinds {
		written := func(seed uint64) string {
			s, err := kind(seed)
			if err != nil {
				t.Fatal(name, err)
			}
			all, err := experiment.ReadAll(First(s, 500))
			if err != nil || len(all) != 500 {
				t.Fatal(name, err, len(all))
			}
			var out bytes.Buffer
			if err := experiment.Write(&out, all); err != nil {
				t.Fatal(name, err)
			}
			return out.String()
		}
		if first, again := written(1), written(1); first != again {
			t.Errorf("%s: the same seed gives other bytes", name)
		}
		if written(1) == written(2) {
			t.Errorf("%s: another seed gives the same bytes", name)
		}
	}
}

func talk(seed uint64) (experiment.Stream, error) {
	at, err := Poisson(1, seed)
	if err != nil {
		return nil, err
	}
	s, err := Converse(at, Conversation{Instructions: 100, Turns: 4, Say: Distribution{{0, 5}, {1, 50}}, Answer: Distribution{{0, 5}, {1, 80}}, Think: 5 * time.Second, Most: 1000}, 0, seed)
	return Assume(s, AnswerTime{100 * time.Millisecond, 10 * time.Millisecond}), err
}

func TestConversationsGrow(t *testing.T) {
	s := must[experiment.Stream](t)(talk(3))
	all, err := experiment.ReadAll(Cut(s, 0, 20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	last, turns := map[string]experiment.Request{}, 0
	for _, r := range all {
		var number, turn int
		if _, err := fmt.Sscanf(r.ID, "talk-%d-%d", &number, &turn); err != nil {
			t.Fatal(r.ID, err)
		}
		name := fmt.Sprint(number)
		before, goesOn := last[name]
		if goesOn != (turn > 1) {
			t.Fatalf("%s follows %q", r.ID, before.ID)
		}
		total := 0
		for _, run := range r.Prefix {
			total += run.Tokens
		}
		if total != r.PromptTokens || r.Prefix[0].Tokens != 100 || r.PromptTokens+r.OutputTokens > 1000 || r.Prefix[0] != all[0].Prefix[0] {
			t.Fatalf("%+v", r)
		}
		if goesOn {
			turns++
			said := len(before.Prefix)
			if !slices.Equal(r.Prefix[:said], before.Prefix) || len(r.Prefix) != said+2 || r.Prefix[said].Tokens != before.OutputTokens {
				t.Fatalf("%+v does not go on from\n%+v", r, before)
			}
			if answered := before.At + 100*time.Millisecond + time.Duration(before.OutputTokens-1)*10*time.Millisecond; r.At < answered {
				t.Fatalf("%s comes at %v, before the last answer ended at %v", r.ID, r.At, answered)
			}
		}
		last[name] = r
	}
	mean := float64(len(all)) / float64(len(last))
	if len(last) < 1000 || mean < 3.4 || mean > 4.2 || turns == 0 {
		t.Errorf("%d conversations of %.2f turns", len(last), mean)
	}
	sum, err := Show(experiment.Requests(all))
	if err != nil || sum.SharedPart < 0.7 {
		t.Errorf("shared %v, %v", sum.SharedPart, err)
	}
}

func documents(seed uint64) (experiment.Stream, error) {
	at, err := Poisson(5, seed)
	if err != nil {
		return nil, err
	}
	return Retrieve(at, Retrieval{Instructions: 50, Documents: 100, Length: Distribution{{0, 100}, {1, 900}}, PerRequest: 3, Skew: 1, Question: Fixed(20), Output: Fixed(30)}, seed)
}

func TestRetrievalSharesDocuments(t *testing.T) {
	s := must[experiment.Stream](t)(documents(5))
	lengths, asked := map[experiment.Hash]int{}, map[experiment.Hash]int{}
	for range 20_000 {
		r, err := s.Next()
		if err != nil || len(r.Prefix) != 4 {
			t.Fatal(err, r)
		}
		total := 20
		seen := map[experiment.Hash]bool{}
		for i, run := range r.Prefix {
			total += run.Tokens
			if n, known := lengths[run.Hash]; known && n != run.Tokens || seen[run.Hash] {
				t.Fatalf("document %x has %d and %d tokens, or comes twice", run.Hash, n, run.Tokens)
			}
			lengths[run.Hash], seen[run.Hash] = run.Tokens, true
			if i > 0 {
				asked[run.Hash]++
			}
		}
		if total != r.PromptTokens {
			t.Fatal(r)
		}
	}
	var counts []int
	for _, n := range asked {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	if len(counts) != 100 || counts[99] < 4*counts[50] {
		t.Errorf("%d documents; the most popular was asked about %d times, the middle one %d", len(counts), counts[len(counts)-1], counts[len(counts)/2])
	}
	for _, bad := range []Retrieval{{Documents: 0, PerRequest: 1}, {Documents: 5, PerRequest: 6}, {Documents: 5, PerRequest: 1, Skew: math.NaN()}, {Documents: 5, PerRequest: 1, Instructions: -1}} {
		if _, err := Retrieve(AtOnce(), bad, 1); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

func TestClosedClientsWaitForAnswers(t *testing.T) {
	var all []experiment.Request
	for i := range 300 {
		all = append(all, experiment.Request{At: time.Duration(i), PromptTokens: i + 1, OutputTokens: 11})
	}
	s := Assume(Closed(experiment.Requests(all), 4, 2*time.Second, 1), AnswerTime{time.Second, 100 * time.Millisecond})
	var ends []time.Duration // of answers under way
	most, last := 0, time.Duration(0)
	seen := map[int]bool{}
	for {
		r, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil || r.At < last {
			t.Fatal(err, r)
		}
		ends = slices.DeleteFunc(ends, func(e time.Duration) bool { return e <= r.At })
		ends = append(ends, r.At+2*time.Second)
		most, last = max(most, len(ends)), r.At
		seen[r.PromptTokens] = true
	}
	if most != 4 || len(seen) != 300 {
		t.Errorf("at most %d under way, %d requests", most, len(seen))
	}
	// 4 clients, each 2 s of answer and 2 s of thought on average: one request a second.
	if rate := 300 / last.Seconds(); rate < 0.85 || rate > 1.15 {
		t.Errorf("%v requests a second", rate)
	}
}

func TestChanges(t *testing.T) {
	all := func(s experiment.Stream) []experiment.Request {
		t.Helper()
		return must[[]experiment.Request](t)(experiment.ReadAll(s))
	}
	base := func() experiment.Stream {
		var rs []experiment.Request
		for i := range 100 {
			rs = append(rs, experiment.Request{At: time.Duration(i) * time.Second, PromptTokens: 100 + i, OutputTokens: 10,
				Prefix: []experiment.PrefixRun{{Hash: 7, Tokens: 40}, {Hash: experiment.Hash(i % 3), Tokens: 15}}, ID: fmt.Sprint("r", i)})
		}
		return experiment.Requests(rs)
	}
	if got := all(Cut(base(), 10*time.Second, 20*time.Second)); len(got) != 10 || got[0].At != 0 || got[0].ID != "r10" || got[9].ID != "r19" {
		t.Errorf("cut: %+v", got)
	}
	if got := all(First(base(), 3)); len(got) != 3 {
		t.Errorf("first: %d", len(got))
	}
	if got := all(Speed(base(), 4)); got[99].At != 99*time.Second/4 {
		t.Errorf("speed: %v", got[99].At)
	}
	if got := all(Shorten(base(), 0.1)); got[50].PromptTokens != 15 || got[50].OutputTokens != 1 || got[50].Prefix[0] != got[0].Prefix[0] || got[0].Prefix[0].Tokens != 4 {
		t.Errorf("shorten: %+v", got[50])
	}
	if got := all(Shorten(base(), 0.001)); got[0].PromptTokens != 2 { // its two runs have a token each
		t.Errorf("shorten: %+v", got[0])
	}
	left := 0
	if got := all(Fit(base(), 150, func() { left++ })); len(got) != 41 || left != 59 {
		t.Errorf("fit: %d, %d left out", len(got), left)
	}
	if got := all(Class(base(), "x")); got[5].Class != "x" {
		t.Errorf("class: %+v", got[5])
	}
	if got := all(FromZero(Cut(base(), 0, 0))); got[0].At != 0 {
		t.Errorf("from zero: %v", got[0].At)
	}
}

func TestScaleChangesTheRateAndKeepsTheTime(t *testing.T) {
	for _, factor := range []float64{0.3, 1, 2.5} {
		at := must[Arrivals](t)(Poisson(20, 1))
		s := Independently(at, Independent(Fixed(100), Fixed(10)), 1)
		named := 0
		s = &changed{s, func(r *experiment.Request) (bool, error) {
			named++
			r.Prefix, r.ID = []experiment.PrefixRun{{Hash: 7, Tokens: 50}}, fmt.Sprint("r", named)
			return true, nil
		}}
		all, err := experiment.ReadAll(Scale(Cut(s, 0, 1000*time.Second), factor, 2))
		if err != nil {
			t.Fatal(err)
		}
		if got := float64(len(all)) / 20_000; math.Abs(got/factor-1) > 0.04 {
			t.Errorf("factor %v: %v times the requests", factor, got)
		}
		if last := all[len(all)-1].At; last < 990*time.Second || last > 1011*time.Second {
			t.Errorf("factor %v: the last comes at %v", factor, last)
		}
		hashes := map[experiment.Hash]int{}
		for _, r := range all {
			hashes[r.Prefix[0].Hash]++
		}
		if want := int(math.Ceil(factor)); len(hashes) != want {
			t.Errorf("factor %v: %d populations, want %d", factor, len(hashes), want)
		}
		if err := experiment.Write(io.Discard, all); err != nil { // in order, no id twice
			t.Errorf("factor %v: %v", factor, err)
		}
	}
}

func TestMixKeepsOrderAndPrefixesApart(t *testing.T) {
	part := func(rate float64, class string) experiment.Stream {
		at := must[Arrivals](t)(Poisson(rate, 1))
		n := 0
		return Cut(&changed{Independently(at, Independent(Fixed(10), Fixed(10)), 1), func(r *experiment.Request) (bool, error) {
			n++
			r.Class, r.ID, r.Prefix = class, fmt.Sprint("r", n), []experiment.PrefixRun{{Hash: 1, Tokens: 5}}
			return true, nil
		}}, 0, 1000*time.Second)
	}
	s, err := Mix([]Part{{part(10, "a"), 1}, {part(10, "b"), 0.5}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	all, err := experiment.ReadAll(s)
	if err != nil {
		t.Fatal(err)
	}
	counts, hash := map[string]int{}, map[string]experiment.Hash{}
	for _, r := range all {
		counts[r.Class]++
		hash[r.Class] = r.Prefix[0].Hash
	}
	if counts["a"] < 9000 || math.Abs(float64(counts["b"])/float64(counts["a"])-0.5) > 0.03 || hash["a"] != 1 || hash["b"] == 1 {
		t.Error(counts, hash)
	}
	if err := experiment.Write(io.Discard, all); err != nil {
		t.Error(err)
	}
}

func TestShow(t *testing.T) {
	run := func(h experiment.Hash, n int) experiment.PrefixRun { return experiment.PrefixRun{Hash: h, Tokens: n} }
	s, err := Show(experiment.Requests([]experiment.Request{
		{At: 5 * time.Second, PromptTokens: 10, OutputTokens: 1, Prefix: []experiment.PrefixRun{run(1, 4), run(2, 4)}, Class: "a"},
		{At: 5 * time.Second, PromptTokens: 10, OutputTokens: 3, Prefix: []experiment.PrefixRun{run(1, 4), run(3, 4)}, Class: "a", N: 4},
		{At: 25 * time.Second, PromptTokens: 20, OutputTokens: 2, Prefix: []experiment.PrefixRun{run(1, 4), run(2, 4), run(9, 2)}, CancelAfter: 1},
		{At: 45 * time.Second, PromptTokens: 10, OutputTokens: 2, Prefix: []experiment.PrefixRun{run(2, 4), run(1, 4)}}, // another order is another beginning
	}))
	want := Summary{
		Requests: 4, SpanNs: 40e9, Rate: 3.0 / 40, GapCV: math.Sqrt(800.0/3-1600.0/9) / (40.0 / 3), PeakRate: 0.2, Together: 1, Sequences: 7,
		Prompt: Lengthy{50, 12.5, 10, 20, 20, 20}, Output: Lengthy{8, 2, 2, 3, 3, 3},
		Shared: 4 + 8, SharedPart: 12.0 / 50, Structure: true, Cancelled: 1, Classes: []ClassCount{{"", 2}, {"a", 2}},
	}
	if err != nil || fmt.Sprintf("%.9v", s) != fmt.Sprintf("%.9v", want) {
		t.Errorf("%v\ngot  %+v\nwant %+v", err, s, want)
	}
	if s, err := Show(experiment.Requests(nil)); err != nil || s.Requests != 0 || s.Rate != 0 {
		t.Error(s, err)
	}
}
