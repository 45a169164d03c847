package look

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/llamacpp"
)

// progress comes before load: requests run or wait, and no token comes out.
func progress(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		by, over, ok := s.grown("tokens.generated", w)
		steps, during, counted := s.stepped(w)
		if by > 0 || steps > 0 || !ok && !counted {
			continue
		}
		over = max(over, during)
		meanwhile := "between the first scrape and the last"
		if over > 0 {
			meanwhile = "in " + seconds(float64(over)/1e9)
		}
		running, ok := s.last("request.running", w)
		switch {
		case !ok:
		case running > 0 && !counted && s.late("tokens.generated", w):
			name := s.about("tokens.generated", w)[0].Native.Name
			facts = append(facts, Fact{Weight: Notice, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s: %s requests run, and none ended %s. %s moves only when a request ends, so whether tokens come out is not known.", w, count(running), meanwhile, name)})
		case running > 0:
			facts = append(facts, Fact{Weight: Broken, Path: "token", About: w.String(),
				Text: fmt.Sprintf("%s: %s requests run, and not one token came out %s. A GPU that is busy is no progress%s.", w, count(running), meanwhile, s.atWork(w)),
				Do:   "Look at the engine's last log line and at 'whylate top'; if it stays so, take a stack of the worker before restarting it."})
		case s.waitedThroughout(w):
			waiting, _ := s.last("request.waiting", w)
			f := Fact{Weight: Broken, Path: "request", About: w.String(),
				Text: fmt.Sprintf("%s: %s requests wait, none runs, and not one token came out %s: nobody is taken up.", w, count(waiting), meanwhile),
				Do:   "Look at the engine's last log line: it may be paused, asleep, or wait for another process. If it stays so, take a stack of the engine's process before restarting it."}
			if usage, ok := s.last("kv.usage", w); ok {
				f.Text += fmt.Sprintf(" KV cache %s.", share(usage))
			}
			facts = append(facts, f)
		}
	}
	return facts
}

// stepped is how many steps of an engine ended while it was watched, whatever came of them, and in which time (ns, 0 where it is not known).
func (s *Scene) stepped(w adapter.Who) (n float64, over int64, ok bool) {
	for _, r := range s.about("batch.forward_time", w) {
		if len(r.Hists) > 1 {
			h, _ := r.Observed()
			n, over, ok = n+h.Count, max(over, r.Hists[len(r.Hists)-1].At-r.Hists[0].At), true
		}
	}
	for _, r := range s.about("iteration.count", w) {
		by, during, has := r.Grown()
		if v, _ := r.Last(); has && (by > 0 || llamacpp.Step(v) <= 1) { // one that is rounded stands still for a while
			n, over, ok = n+by, max(over, during), true
		}
	}
	return n, over, ok
}

// waitedThroughout reports whether requests of an engine waited at the first sight and at the last.
func (s *Scene) waitedThroughout(w adapter.Who) bool {
	var first, last float64
	for _, r := range s.about("request.waiting", w) {
		if len(r.Points) > 1 {
			first, last = first+r.Points[0].Value, last+r.Points[len(r.Points)-1].Value
		}
	}
	return first > 0 && last > 0
}

// atWork is what the GPUs of an engine do, "" where they are not known.
func (s *Scene) atWork(w adapter.Who) string {
	w.Rank = ""
	var said []string
	for _, d := range s.devices() {
		if of, _, ok := s.engineOf(d.owner()); !ok || of != w {
			continue
		}
		var does []string
		for _, signal := range []string{"hw.gpu.utilization", "gpu.dram_active", "gpu.tensor_active", "gpu.power", "gpu.clock.sm"} {
			if v, ok := d.last(s, signal, ""); ok {
				does = append(does, call(signal)+" "+inUnit(signal, v))
			}
		}
		if len(does) > 0 && len(said) < mostAlike {
			said = append(said, d.String()+": "+strings.Join(does, ", "))
		}
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, "; ") + ")"
}
