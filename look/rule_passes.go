package look

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/logline"
)

// byTarget are streams of forward-pass metrics, the ranks of a worker together.
func (s *Scene) byTarget() (groups [][]*dynamo.Stream) {
	for i, p := range s.Passes {
		if i == 0 || p.Target != s.Passes[i-1].Target {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], p)
	}
	return groups
}

// A stall is told from as many records, or as much time, on: a long prompt alone takes seconds.
const (
	stallRecords = 10
	stallTime    = 10 * time.Second
)

// passesProgress tells of workers in which requests wait and nothing runs, by records without a gap.
func passesProgress(s *Scene) (facts []Fact) {
	for _, p := range s.Passes {
		stall := p.Stalled()
		if stall.Records < stallRecords && time.Duration(stall.To-stall.From) < stallTime {
			continue
		}
		f := Fact{Weight: Broken, Path: "request", About: streamName(p), Do: "Look at the engine's last log line; if it stays so, take a stack of the engine's process before restarting it."}
		meanwhile := "in " + plural(stall.Records, "record", "records")
		if over := time.Duration(stall.To - stall.From); over > 0 {
			meanwhile += ", " + seconds(over.Seconds())
		}
		f.Text = fmt.Sprintf("%s: %s waited, and no iteration ended %s, without a gap in counter_id: nothing was taken up, or one iteration lasts. Whether clients have left meanwhile is not told.", f.About, several(int(stall.Queued), "request", "requests"), meanwhile)
		if stall.Ended {
			f.Weight, f.Do = Notice, ""
			f.Text += " Then it went on."
		}
		facts = append(facts, f)
	}
	return facts
}

func streamName(p *dynamo.Stream) string {
	return exposition.Printable(p.Target, 60) + " rank " + p.Rank
}

// passes says of each worker what ran, and what was in the last iteration of each rank.
func passes(s *Scene) (facts []Fact) {
	for _, group := range s.byTarget() {
		iterations, beats := 0, 0
		most := 0.0
		var first, last int64
		var ranks []string
		for _, p := range group {
			iterations, beats = iterations+p.Iterations, beats+p.Heartbeats
			most = max(most, p.MostQueued.Value)
			if p.First > 0 {
				first, last = min(cmp.Or(first, p.First), p.First), max(last, p.Last)
			}
			text := "nothing but heartbeats"
			if p.Newest != nil {
				text = passText(p.Newest)
			}
			if len(group) > 1 {
				text = "rank " + p.Rank + ": " + text
			}
			ranks = append(ranks, text)
		}
		name := exposition.Printable(group[0].Target, 60)
		f := Fact{Weight: Notice, Path: "gpu", About: name}
		f.Text = fmt.Sprintf("%s: %s", name, several(iterations, "iteration", "iterations"))
		if last > first {
			f.Text += " seen in " + seconds(time.Duration(last-first).Seconds())
		}
		f.Text += fmt.Sprintf("; in the last one %s.", list(ranks, mostAlike, 200))
		if most > 0 {
			f.Text += fmt.Sprintf(" At most %s queued at one rank.", several(int(most), "request was", "requests were"))
		}
		if beats > 0 {
			f.Text += fmt.Sprintf(" %s no iterations, and their zeros are no empty queue: no result came for a second, whatever waits.", plural(beats, "heartbeat is", "heartbeats are"))
		}
		facts = append(facts, f)
	}
	return facts
}

// passText is what one record says; what it does not say is left out.
func passText(p *dynamo.Pass) string {
	said := loads(p.Scheduled, "prefill", "prefills", "decode", "decodes")
	if n, ok := p.Scheduled.Requests(); ok && n == 0 {
		said = []string{"nothing scheduled"}
	}
	queue := loads(p.Queued, "prefill queued", "prefills queued", "preempted one queued", "preempted ones queued")
	if n, ok := p.Queued.Requests(); ok && n == 0 {
		queue = []string{"nobody queued"}
	}
	if said = append(said, queue...); len(said) == 0 {
		return "neither what ran nor what waited is told"
	}
	return strings.Join(said, ", ")
}

func loads(l dynamo.Load, prefill, prefills, decode, decodes string) (said []string) {
	add := func(n, tokens, kv logline.Opt[float64], one, more string) {
		if !n.Known || n.Value == 0 {
			return
		}
		text := count(n.Value) + " " + more
		if n.Value == 1 {
			text = "1 " + one
		}
		var of []string
		if tokens.Known {
			of = append(of, count(tokens.Value)+" tokens")
		}
		if kv.Known {
			of = append(of, count(kv.Value)+" in KV")
		}
		if len(of) > 0 {
			text += " (" + strings.Join(of, ", ") + ")"
		}
		said = append(said, text)
	}
	add(l.Prefills, l.PrefillTokens, l.PrefillKV, prefill, prefills)
	add(l.Decodes, logline.Opt[float64]{}, l.DecodeKV, decode, decodes)
	return said
}

// passesTime says what wall_time means, engine by engine, and what the times of the records are.
func passesTime(s *Scene) (facts []Fact) {
	type times struct {
		n            int
		sum, longest float64
	}
	of := map[string]*times{}
	var bare, sampled []string
	observed := false
	for _, p := range s.Passes {
		if of[p.Engine] == nil {
			of[p.Engine] = &times{}
		}
		t := of[p.Engine]
		t.n, t.sum, t.longest = t.n+p.Timed, t.sum+p.Wall, max(t.longest, p.Longest)
		if observed = observed || p.First > 0; p.First == 0 {
			bare = with(bare, p.Target)
		}
		if p.Sampled {
			sampled = with(sampled, p.Target)
		}
	}
	for _, engine := range slices.Sorted(maps.Keys(of)) {
		t := of[engine]
		if t.n == 0 {
			continue
		}
		text := fmt.Sprintf("wall_time is %s on average, at most %s (n %s). ", seconds(t.sum/float64(t.n)), seconds(t.longest), count(float64(t.n)))
		if means := dynamo.Meaning(engine); means != "" {
			text += fmt.Sprintf("Under %s it is %s.", adapter.Title(engine), means)
		} else {
			text += "Which engine wrote it is not told, and so not what it means: the time between two results under vLLM, GPU seconds since the record before under SGLang, the host's loop under TensorRT-LLM. It is no signal here."
		}
		facts = append(facts, Fact{Weight: Notice, Path: "token", About: "forward-pass metrics", Text: text})
	}
	if len(sampled) > 0 {
		facts = append(facts, Fact{Weight: Notice, Path: "token", About: "forward-pass metrics",
			Text: fmt.Sprintf("The capture of %s is sampled: the newest record of each rank now and then. How many iterations there were, their rate, and whether anything was between two records is not known.", list(sampled, 3, 40)),
			Do:   "Set DYN_FPM_MODE=full where every iteration is wanted."})
	}
	if len(bare) > 0 {
		facts = append(facts, Fact{Weight: Notice, Path: "request", About: "forward-pass metrics",
			Text: fmt.Sprintf("The records of %s carry no time: their order is kept, when they were is not known.", list(bare, 3, 40))})
	}
	if observed {
		facts = append(facts, Fact{Weight: Notice, Path: "request", About: "forward-pass metrics",
			Text: "The records' times are those at which they were observed: an iteration ended before that, by how much is not told."})
	}
	return facts
}

// passesLost tells of records that did not arrive.
func passesLost(s *Scene) (facts []Fact) {
	for _, p := range s.Passes {
		var said []string
		if p.Lost > 0 {
			said = append(said, fmt.Sprintf("%s of %s records are lost (gaps of counter_id): the iterations counted are the fewest there were", count(p.Lost), count(p.Lost+float64(p.Records))))
		}
		if p.Back > 0 {
			said = append(said, fmt.Sprintf("counter_id went back %s: the worker restarted, a file was read twice, or two write under one name", plural(p.Back, "time", "times")))
		}
		if p.Repeated > 0 {
			said = append(said, fmt.Sprintf("%s again and are counted once", plural(p.Repeated, "record came", "records came")))
		}
		if len(said) > 0 {
			facts = append(facts, Fact{Weight: Notice, Path: "token", About: streamName(p), Text: streamName(p) + ": " + strings.Join(said, "; ") + "."})
		}
	}
	return facts
}
