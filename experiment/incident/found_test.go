package incident

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/query"
)

var update = flag.Bool("update", false, "write down what explain and look find")

// names are the findings of explain, and the facts of look, that name an incident's cause. Where there is none, none can.
var names = map[string][]string{
	"batch-growth":      {diagnose.OthersDecode},
	"long-context":      {diagnose.OthersDecode},
	"long-prefill":      {diagnose.OthersPrefill, diagnose.QueueTokenBudget},
	"kv-pressure":       {diagnose.Preempted, diagnose.QueueKVBlocks},
	"saturation":        {diagnose.QueueSequenceLimit},
	"host-bound":        {diagnose.HostGap},
	"frontend-backlog":  {diagnose.FrontendSlow, diagnose.StreamTail},
	"first-use-stall":   {diagnose.OddIteration, diagnose.InboxBehindIteration},
	"slow-client":       {diagnose.SlowClient},
	"config-change":     {diagnose.QueueSequenceLimit},
	"hot-prefix":        {},
	"head-of-line":      {diagnose.QueueKVBlocks},
	"longer-answers":    {diagnose.OthersDecode},
	"grammar-wait":      {},
	"costly-sampling":   {diagnose.OthersDecode},
	"collection-pauses": {},
}

// neutral are findings that name no cause: something was slow, and why is left open.
var neutral = []string{diagnose.Slowdown, diagnose.OddIteration, diagnose.HostGap, diagnose.Missing, diagnose.IterationInFlight, diagnose.QueueOther, diagnose.Skipped}

// worst is the interactive request of the fault's time that suffered most from what grew most: its first token, or those after. A class that
// is there with the fault only is no victim of it.
func worst(o *outcome) (r *ledger.Request, by string) {
	grew := func(signal string) float64 { return o.with[signal] / max(o.without[signal], 1e-9) }
	by = "ttft"
	if max(grew(ITLTail), grew(TPOT)) > grew(TTFTTail) {
		by = "tpot"
	}
	victims := map[string]bool{}
	for _, q := range o.sham.book.Requests {
		victims[q.Class] = q.Class != batch
	}
	most := 0.0
	for _, q := range o.fault.book.Requests {
		if !victims[q.Class] || len(q.Clients) == 0 {
			continue
		}
		c := q.Clients[0]
		if c.First == 0 || c.First < o.fault.truth.Onset || c.Planned >= o.fault.truth.End {
			continue
		}
		late := float64(c.First - c.Planned)
		if by == "tpot" {
			late = float64(c.Ended-c.First) / float64(max(c.Output, 2)-1)
		}
		if late > most {
			r, most = q, late
		}
	}
	return r, by
}

// verdict of a first finding.
func verdict(i *Incident, t *Truth, f []diagnose.Finding) (id, text string) {
	if len(f) == 0 {
		return "—", "silent"
	}
	id = f[0].ID
	switch {
	case slices.Contains(names[i.Name], id) && blames(t, &f[0]):
		return id, "right"
	case slices.Contains(neutral, id):
		return id, "silent"
	}
	return id, "wrong"
}

// blames reports whether a finding's culprits are the truth's, where it names requests and the truth a class of them.
func blames(t *Truth, f *diagnose.Finding) bool {
	requests := false
	for _, c := range f.Culprits {
		if c.Kind != "request" {
			continue
		}
		requests = true
		for _, k := range t.Culprits {
			if k.Kind != "class" || strings.HasPrefix(c.ID, k.ID+"-") {
				return true
			}
		}
	}
	return !requests
}

// facts are what look is certain of, beside what it says without the fault.
func facts(t *testing.T, i *Incident) (new []string) {
	ids := func(sham bool) (all []string) {
		p := short(1)
		p.Sham = sham
		x := play(t, i, p, 0)
		inputs, err := look.Files(x.dir)
		if err != nil {
			t.Fatal(err)
		}
		scene, err := look.Read(context.Background(), inputs, look.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range look.Judge(scene).Facts {
			all = append(all, f.ID)
		}
		return all
	}
	without := ids(true)
	for _, id := range ids(false) {
		if !slices.Contains(without, id) && !slices.Contains(new, id) {
			new = append(new, id)
		}
	}
	return new
}

// The table of docs/incidents.md: what explain's first finding is about the worst request, and what look adds.
func TestWhatIsFoundIsWrittenDown(t *testing.T) {
	if raced {
		t.Skip("it is one goroutine's, and long")
	}
	rows := make([]string, len(catalogue))
	t.Run("plays", func(t *testing.T) {
		for k := range catalogue {
			i := &catalogue[k]
			if i.Mechanism == "" {
				continue
			}
			t.Run(i.Name, func(t *testing.T) {
				t.Parallel()
				looks := strings.Join(facts(t, i), ", ")
				if looks == "" {
					looks = "—"
				}
				for _, severity := range severities {
					o := outcomeOf(t, i, severity)
					id, text, by := "—", "silent", "—"
					if r, of := worst(&o); r != nil {
						by = of
						id, text = verdict(i, &o.fault.truth, diagnose.Explain(query.Open(o.fault.book), r).Findings)
					}
					rows[k] += fmt.Sprintf("| %s | %s | %v | %s | %s | %s | %s |\n", i.Mechanism, i.Name, severity, by, id, text, looks)
				}
			})
		}
	})
	got := "| | incident | severity | worst by | first finding of explain | it is | look adds (severity 1) |\n|---|---|---|---|---|---|---|\n" + strings.Join(rows, "")
	written(t, "found", got)
}

func TestSignalsAreWrittenDown(t *testing.T) {
	got := "| signal | code | unit | what | tolerance |\n|---|---|---|---|---|\n"
	for _, s := range Signals {
		var within []string
		if s.Share > 0 {
			within = append(within, fmt.Sprintf("%g %%", s.Share*100))
		}
		if s.Floor > 0 {
			within = append(within, fmt.Sprint(s.Floor))
		}
		got += fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", s.Name, cmp.Or(s.Code, "—"), s.Unit, s.What, cmp.Or(strings.Join(within, " or "), "none"))
	}
	written(t, "signals", got)
}

// written holds a part of docs/incidents.md against what it must say.
func written(t *testing.T, part, want string) {
	const document = "../../docs/incidents.md"
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- "+part+": begin -->\n")
	got, after, too := strings.Cut(rest, "<!-- "+part+": end -->\n")
	switch {
	case !ok || !too:
		t.Fatalf("%s has no place for %s", document, part)
	case got == want:
		return
	case !*update:
		t.Fatalf("%s is out of date: go test ./experiment/incident -run Written -update\n%s", document, want)
	}
	whole := before + "<!-- " + part + ": begin -->\n" + want + "<!-- " + part + ": end -->\n" + after
	if err := os.WriteFile(document, []byte(whole), 0o644); err != nil {
		t.Fatal(err)
	}
}
