package look

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
)

// muchLoad on one rank, in requests, is more than chance puts on one while another has none.
const muchLoad = 16

// ranksUneven finds data-parallel ranks of one replica that do not share its load: an average over them says that all is well.
func ranksUneven(s *Scene) (facts []Fact) {
	groups := map[adapter.Who][]adapter.Who{}
	var order []adapter.Who
	for _, w := range s.Engines() {
		if w.Rank == "" {
			continue
		}
		g := w
		g.Rank = ""
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], w)
	}
	for _, g := range order {
		if f, uneven := shared(s, g.String(), "rank", groups[g], func(w adapter.Who) string { return w.Rank }); uneven {
			f.Do = "It is the balance between the ranks, not their capacity: look at how requests are given to data-parallel ranks. Do not admit by an average over ranks."
			facts = append(facts, f)
		}
	}
	return facts
}

// replicasUneven finds replicas of one model that do not share its load. That they are meant to is not known.
func replicasUneven(s *Scene) (facts []Fact) {
	groups := map[adapter.Who][]adapter.Who{}
	for _, w := range s.Engines() {
		if w.Model != "" && w.Rank == "" && w.Role == "" && !dialects.IsGateway(w) {
			g := adapter.Who{Producer: w.Producer, Model: w.Model}
			groups[g] = append(groups[g], w)
		}
	}
	for _, w := range s.Engines() {
		g := adapter.Who{Producer: w.Producer, Model: w.Model}
		if len(groups[g]) < 2 || groups[g][0] != w || !s.together(groups[g]) {
			continue
		}
		if f, uneven := shared(s, g.String(), "replica", groups[g], func(w adapter.Who) string { return exposition.Printable(w.Target, 60) }); uneven {
			f.Weight = Notice
			f.Do = "If they serve one pool, there is room: it is how requests are given to replicas, not their number. An average over replicas says neither."
			facts = append(facts, f)
		}
	}
	return facts
}

// together reports whether replicas can be compared: they were seen within minutes of each other, or somebody who gives them requests was read
// with them.
func (s *Scene) together(replicas []adapter.Who) bool {
	if slices.ContainsFunc(s.Engines(), dialects.IsGateway) {
		return true
	}
	var times []int64
	for _, w := range replicas {
		for _, r := range s.about("request.running", w) {
			times = append(times, newest(&r.Track))
		}
	}
	return len(times) > 0 && slices.Min(times) > 0 && slices.Max(times)-slices.Min(times) < int64(5*time.Minute)
}

// shared reports whether those that should share a load do not, and tells who has how much.
func shared(s *Scene, g, called string, ranks []adapter.Who, named func(adapter.Who) string) (f Fact, uneven bool) {
	var busy, idle, roomy []string
	var running, waiting, busyRunning, busyWaiting, most float64
	load := map[adapter.Who][2]float64{}
	for _, w := range ranks {
		r, ok := s.last("request.running", w)
		if !ok {
			return f, false
		}
		q, _ := s.last("request.waiting", w)
		load[w] = [2]float64{r, q}
		running, waiting, most = running+r, waiting+q, max(most, r+q)
	}
	for _, w := range ranks {
		l := load[w]
		name := named(w)
		if kv, ok := s.last("kv.usage", w); ok {
			name += fmt.Sprintf(" (KV %.0f %%)", 100*kv)
		}
		if l[0]+l[1] > most/2 {
			busy, busyRunning, busyWaiting = append(busy, name), busyRunning+l[0], busyWaiting+l[1]
		} else if l[0]+l[1] <= most/10 {
			idle = append(idle, name)
		} else if l[0]+l[1] <= most/4 && l[1] == 0 {
			roomy = append(roomy, name)
		}
	}
	var others []string
	if len(idle) > 0 {
		others = append(others, called+"s "+strings.Join(idle, ", ")+" are nearly empty")
	}
	if len(roomy) > 0 {
		others = append(others, "nobody waits at "+called+"s "+strings.Join(roomy, ", ")+", which have at most a quarter of that load")
	}
	if len(others) == 0 || waiting == 0 && most < muchLoad || len(ranks) < 2 {
		return f, false
	}
	f = Fact{Weight: Broken, Path: "request", About: g,
		Text: sentence(fmt.Sprintf("%s: %s of %d hold %s of %s running and %s of %s waiting requests; %s.", g, called+"s "+strings.Join(busy, ", "), len(ranks),
			count(busyRunning), count(running), count(busyWaiting), count(waiting), strings.Join(others, "; ")), waits(s, called, ranks, named))}
	if waiting == 0 { // it hurts nobody yet
		f.Weight = Notice
	}
	return f, true
}

// waits are the mean times to the first token, one by one and over all requests.
func waits(s *Scene, called string, ranks []adapter.Who, named func(adapter.Who) string) string {
	var said []string
	var sum, n float64
	for _, w := range ranks {
		for _, r := range s.about("gen_ai.server.time_to_first_token", w) {
			if h, _ := r.Observed(); h.Count > 0 && !math.IsNaN(h.Mean()) {
				said = append(said, fmt.Sprintf("%s %s %s", called, named(w), seconds(h.Mean())))
				sum, n = sum+h.Sum, n+h.Count
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("Mean TTFT: %s; over all %s requests %s.", strings.Join(said, ", "), count(n), seconds(sum/n))
}
