package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/experiment/replay"
	"github.com/whylate/whylate/internal/figure"
	"github.com/whylate/whylate/query"
)

// judge compares what is stated with what is measured, case by case.
func (s *session) judge(sheet *figure.Sheet, chosen []one) error {
	l, err := s.open()
	if err != nil {
		return err
	}
	for _, g := range l.Book.AllGaps() {
		fmt.Printf("records are missing: %v\n", g)
	}
	sheet.AtLeast("blame/engine_ran", 1, "count", 1)
	for _, c := range chosen {
		switch culprits, played := s.Culprits[c.name]; {
		case !played:
			continue
		case len(culprits) == 0:
			sheet.AtLeast("blame/"+c.name+"_victims", 0, "count", 1)
			continue
		}
		if err := s.compare(sheet, l, c); err != nil {
			return fmt.Errorf("case %s: %w", c.name, err)
		}
	}
	return nil
}

// few is the share of the largest charge below which who is named is told, and not removed.
const few = 0.02

// named lists whom the findings of a replay's requests name, as the load calls them, and what they are charged with in all.
func named(l *query.Ledger, r *replayed) (culprits []string, text string) {
	charges := map[string]float64{}
	for _, q := range r.results {
		x, err := explain(l, q.RequestID)
		if err != nil {
			continue
		}
		for i := range x.Findings {
			for id, ns := range charged(&x.Findings[i]) {
				charges[strings.TrimSuffix(id, r.suffix())] += ns
			}
		}
	}
	all := slices.SortedFunc(maps.Keys(charges), func(a, b string) int { return cmp.Or(cmp.Compare(charges[b], charges[a]), cmp.Compare(a, b)) })
	var parts []string
	for _, id := range all {
		part := fmt.Sprintf("%s (%.0f ms)", id, charges[id]/1e6)
		if charges[id] >= few*charges[all[0]] {
			culprits = append(culprits, id)
		} else {
			part += ", which stays"
		}
		parts = append(parts, part)
	}
	return culprits, strings.Join(parts, ", ")
}

func explain(l *query.Ledger, id string) (*diagnose.Explanation, error) {
	r, err := l.Find(id)
	if err != nil {
		return nil, err
	}
	return diagnose.Explain(l, r), nil
}

// charged is what a finding charges to the requests that it names, in ns. A head of the line is named beside whoever holds what it
// waits for: it is a victim too.
func charged(f *diagnose.Finding) map[string]float64 {
	out := map[string]float64{}
	for _, k := range f.Culprits {
		if k.Kind == "request" && k.Role != "head of line" {
			out[k.ID] += float64(k.NS)
		}
	}
	return out
}

// claim is what the findings of one request in one replay charge to the culprits.
type claim struct {
	ns    float64
	later bool // some of it after the first token
}

func (s *session) claim(l *query.Ledger, c one, r *replayed, request string) (k claim, err error) {
	x, err := explain(l, r.id(request))
	if err != nil {
		return k, err
	}
	for i := range x.Findings {
		f := &x.Findings[i]
		for id, ns := range charged(f) {
			if slices.Contains(s.Culprits[c.name], strings.TrimSuffix(id, r.suffix())) {
				k.ns += ns
				k.later = k.later || f.Part == account.Decode || f.Part == account.Stream
			}
		}
	}
	return k, nil
}

// victim is a request that blames the culprits, over the repeats. All in ms.
type victim struct {
	id             string
	later          bool // judged by its whole time, not by its time to the first token
	stated         []float64
	lost, shamLost []float64 // with − without, with − sham, by its client's clock
}

// compare judges one case.
func (s *session) compare(sheet *figure.Sheet, l *query.Ledger, c one) error {
	runs, repeats := s.byArm(c)
	if repeats == 0 {
		return fmt.Errorf("no repeat has all of its arms")
	}
	if strange := slices.DeleteFunc(slices.Clone(s.Culprits[c.name]), func(id string) bool { return strings.HasPrefix(id, c.planted+"-") }); len(strange) > 0 {
		fmt.Printf("%s: explain names %v, who were not planted\n", c.name, strange)
	}
	var victims, others []*victim
	first := &runs[with][0]
	for _, q := range slices.SortedFunc(slices.Values(first.results), func(a, b replay.Result) int { return cmp.Compare(a.Planned, b.Planned) }) {
		id := strings.TrimSuffix(q.RequestID, first.suffix())
		if slices.Contains(s.Culprits[c.name], id) || strings.HasPrefix(id, apart+"-") {
			continue
		}
		v := &victim{id: id}
		blames := 0
		for k := range repeats {
			claim, err := s.claim(l, c, &runs[with][k], id)
			if err != nil {
				return err
			}
			if claim.ns > 0 {
				blames++
			}
			v.later = v.later || claim.later
			v.stated = append(v.stated, claim.ns/1e6)
		}
		v.later = v.later || blames == 0
		for k := range repeats {
			all := runs[with][k].took(id, v.later)
			v.lost = append(v.lost, all-runs[without][k].took(id, v.later))
			if c.sham {
				v.shamLost = append(v.shamLost, all-runs[sham][k].took(id, v.later))
			}
		}
		if 2*blames > repeats {
			victims = append(victims, v)
		} else {
			others = append(others, v)
		}
	}
	if len(victims) == 0 {
		return fmt.Errorf("nobody blames %v", s.Culprits[c.name])
	}
	report(sheet, c, victims, others)
	return nil
}

// byArm lists a case's replays of each arm, those of repeats that are whole.
func (s *session) byArm(c one) (runs map[string][]replayed, repeats int) {
	arms := c.everyArm()
	runs = map[string][]replayed{}
	for _, r := range s.Runs {
		whole := true
		for _, arm := range arms {
			whole = whole && slices.ContainsFunc(s.Runs, func(o replayed) bool { return o.Case == c.name && o.Repeat == r.Repeat && o.Arm == arm })
		}
		if r.Case == c.name && whole {
			runs[r.Arm] = append(runs[r.Arm], r)
		}
	}
	for _, rs := range runs {
		slices.SortFunc(rs, func(a, b replayed) int { return a.Repeat - b.Repeat })
	}
	return runs, len(runs[with])
}

// took is the ms from sending to the end, or to the first token, by its client's clock.
func (r *replayed) took(request string, whole bool) float64 {
	i := slices.IndexFunc(r.results, func(q replay.Result) bool { return q.RequestID == r.id(request) })
	if i < 0 {
		return math.NaN()
	}
	q := &r.results[i]
	if whole {
		return float64(q.End-q.Sent) / 1e6
	}
	return float64(q.First-q.Sent) / 1e6
}

// within is how far the stated may be from the measured.
const within = 0.20

func report(sheet *figure.Sheet, c one, victims, others []*victim) {
	fmt.Printf("\n%-12s %-5s %10s %17s %6s %22s\n", c.name, "of", "stated ms", "lost ms", "ratio", "lost to the sham ms")
	var resolved, close int
	for _, v := range victims {
		stated, _ := interval(v.stated)
		lost, half := interval(v.lost)
		exceeds := math.Abs(lost) > half
		mark := ""
		switch {
		case exceeds && math.Abs(stated/lost-1) <= within:
			resolved++
			close++
		case exceeds:
			resolved++
		case !math.IsInf(half, 0):
			mark = "  within the noise"
		}
		of := "TTFT"
		if v.later {
			of = "E2E"
		}
		line := fmt.Sprintf("%-12s %-5s %10.0f %17s %6.2f", v.id, of, stated, spread(lost, half), stated/lost)
		if c.sham {
			line += fmt.Sprintf(" %22s", spread(interval(v.shamLost)))
		}
		fmt.Println(line + mark)
	}
	stated, _ := interval(total(victims, func(v *victim) []float64 { return v.stated }))
	lost, half := interval(total(victims, func(v *victim) []float64 { return v.lost }))
	fmt.Printf("%-12s %-5s %10.0f %17s %6.2f", "all", "", stated, spread(lost, half), stated/lost)
	if lost > half {
		fmt.Printf(", between %.2f and %.2f", stated/(lost+half), stated/(lost-half))
	}
	fmt.Println()
	if len(others) > 0 {
		fmt.Printf("%d others blame nobody of them: lost %s ms in all\n", len(others), spread(interval(total(others, func(v *victim) []float64 { return v.lost }))))
	}

	name := "blame/" + c.name
	sheet.Report(name+"_victims", float64(len(victims)), "count")
	sheet.Report(name+"_lost_ms", lost/float64(len(victims)), "ms")
	sheet.Report(name+"_ratio", stated/lost, "ratio")
	if !c.sham {
		return
	}
	sheet.AtMost(name+"_off", 100*math.Abs(stated/lost-1), "%", 100*within)
	sheet.Report(name+"_victims_above_noise", float64(resolved), "count")
	sheet.Report(name+"_victims_within_20pct", 100*float64(close)/float64(max(resolved, 1)), "%")
	n := float64(len(victims))
	moved, noise := interval(total(victims, func(v *victim) []float64 { return v.shamLost }))
	fmt.Printf("the sham: %s ms a victim\n", spread(moved/n, noise/n))
	if !math.IsInf(noise, 0) {
		sheet.AtMost(name+"_sham_ms", math.Abs(moved)/n, "ms", noise/n)
	}
}

// spread prints a mean with half the width of its interval, if it has one.
func spread(mean, half float64) string {
	if math.IsInf(half, 0) {
		return fmt.Sprintf("%.0f", mean)
	}
	return fmt.Sprintf("%.0f ± %.0f", mean, half)
}

// total adds up the victims' values, repeat by repeat.
func total(vs []*victim, of func(*victim) []float64) []float64 {
	sums := make([]float64, len(of(vs[0])))
	for _, v := range vs {
		for k, x := range of(v) {
			sums[k] += x
		}
	}
	return sums
}
