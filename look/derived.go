package look

import (
	"fmt"
	"slices"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/signals"
)

// Derived is a value of a derived signal. Where only bounds are known, Low and High differ.
type Derived struct {
	Signal string  `json:"signal"`
	About  string  `json:"about"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Unit   string  `json:"unit"`
	Text   string  `json:"text"` // in words, with what it was made of

	worse float64 // the larger, the worse
	small bool    // so little that it is not worth a line
}

// derivations are how derived signals are computed, of one engine each.
var derivations = map[string]func(*Scene, adapter.Who) (Derived, bool){
	"gpu.memory_bandwidth":         memoryBandwidth,
	"gpu.output_per_active_second": outputPerActiveSecond,
	"kv.cache_value":               cacheValue,
	"kv.pages_used":                pagesUsed,
	"kv.slack":                     slack,
	"request.goodput_share":        goodputShare,
}

func derivedIn(s *Scene) (list []Derived) {
	for _, d := range signals.AllDerived() {
		for _, w := range s.Engines() {
			if v, ok := derivations[d.Name](s, w); ok {
				v.Signal, v.About, v.Unit = d.Name, w.String(), d.Unit
				list = append(list, v)
			}
		}
	}
	return list
}

// worstDerived is of each derived signal the worst value.
func worstDerived(list []Derived) (worst []Derived) {
	for _, d := range list {
		if d.small {
			continue
		}
		i := slices.IndexFunc(worst, func(w Derived) bool { return w.Signal == d.Signal })
		if i < 0 {
			worst = append(worst, d)
		} else if d.worse > worst[i].worse {
			worst[i] = d
		}
	}
	return worst
}

// workers are how many engines give tokens.
func (s *Scene) workers() (n int) {
	for _, w := range s.Engines() {
		if len(s.about("tokens.generated", w)) > 0 {
			n++
		}
	}
	return n
}

// outputPerActiveSecond needs to know which GPUs are the engine's: those that its workload owns, or all where there is no other engine.
func outputPerActiveSecond(s *Scene, w adapter.Who) (Derived, bool) {
	tokens, over, ok := s.grown("tokens.generated", w)
	if !ok || over == 0 {
		return Derived{}, false
	}
	var active float64
	n := 0
	alone := s.workers() == 1
	for _, d := range s.devices() {
		if !alone {
			if of, _, ok := s.engineOf(d.owner()); !ok || of != w {
				continue
			}
		}
		ps := d.series(s, "gpu.sm_active", "")
		if len(ps) == 0 {
			return Derived{}, false // one of them is not seen
		}
		sum := 0.0
		for _, p := range ps {
			sum += p.Value
		}
		active, n = active+sum/float64(len(ps))*float64(over)/1e9, n+1
	}
	if n == 0 || active == 0 {
		return Derived{}, false
	}
	v := tokens / active
	return Derived{Low: v, High: v, worse: -v, Text: fmt.Sprintf("%s tokens a second of SM activity (%s in %s of %s)", significant(v), count(tokens), seconds(active), plural(n, "GPU", "GPUs"))}, true
}
