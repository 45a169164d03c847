package look

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// State is how much is known of a path.
type State string

// The states. Nothing is green here: without an objective nobody knows what is good enough.
const (
	NotSeen State = "not seen"
	Seen    State = "seen"
	Hurt    State = "hurt" // a fact says so
)

// PathState is one of the four paths.
type PathState struct {
	Path   signals.Path `json:"path"`
	State  State        `json:"state"`
	Text   string       `json:"text"`             // the worst segment and its numbers
	Switch string       `json:"switch,omitempty"` // what to switch on to see it
}

// measure is one number of a path, of one engine.
type measure struct {
	kind  string
	worse float64 // the larger, the worse
	who   adapter.Who
	text  string
}

func paths(s *Scene, facts []Fact) []PathState {
	states := []PathState{
		requestPath(s), tokenPath(s), gpuPath(s), qualityPath(s),
	}
	for i := range states {
		p := &states[i]
		switch text := logPath(s, p.Path); {
		case text == "":
		case p.State == NotSeen:
			p.State, p.Text, p.Switch = Seen, text, logSwitch[p.Path]
		case p.Path == signals.GPU && len(s.Of("kv.usage")) == 0: // the device is seen
			p.Text = text + "; " + p.Text
		}
		if slices.ContainsFunc(facts, func(f Fact) bool { return f.Path == states[i].Path && f.Weight == Broken }) {
			states[i].State = Hurt
		}
	}
	return states
}

// logSwitch is what to switch on to see of a path what no log says.
var logSwitch = map[signals.Path]string{
	signals.Token: "TTFT and a time per token are in no log: give the engine's /metrics",
	signals.GPU:   "the device itself is not seen: give the DCGM exporter's metrics",
}

func requestPath(s *Scene) PathState {
	ms := gauges(s, "request.waiting", func(v float64, w adapter.Who) string {
		if r, ok := s.last("request.running", w); ok {
			return fmt.Sprintf("%s waiting, %s running", count(v), count(r))
		}
		return count(v) + " waiting"
	})
	if len(ms) == 0 {
		ms = gauges(s, "request.running", func(v float64, _ adapter.Who) string { return count(v) + " running" })
	}
	for _, m := range gauges(s, "request.grammar_queue", func(v float64, _ adapter.Who) string { return count(v) + " waiting for a grammar" }) {
		if m.worse > 0 {
			ms = append(ms, m)
		}
	}
	ms = append(ms, tails(s, "request.queue_time", "queue")...)
	ms = append(ms, meanQueues(s)...)
	ms = append(ms, failures(s)...)
	ms = append(ms, atGateways(s)...)
	if len(ms) == 0 && s.Traces != nil {
		return PathState{Path: signals.Request, State: Seen, Text: traced(s.Traces)}
	}
	if len(ms) == 0 && s.Recorded != nil && s.Recorded.Requests > 0 {
		return PathState{Path: signals.Request, State: Seen, Text: s.Recorded.String()}
	}
	p := state(signals.Request, s.present(ms), "give an engine's /metrics")
	if len(s.Engines()) > 1 && p.State == Seen {
		p.Text = everybody(s) + p.Text
	}
	return p
}

// everybody is the load of all engines together; the worst of them follows.
func everybody(s *Scene) string {
	var running, waiting float64
	n := 0
	for _, w := range s.Engines() {
		if r, ok := s.last("request.running", w); ok && !dialects.IsGateway(w) { // whose requests are the engines' again
			q, _ := s.last("request.waiting", w)
			running, waiting, n = running+r, waiting+q, n+1
		}
	}
	if n < 2 {
		return ""
	}
	return fmt.Sprintf("in all %s running, %s waiting; worst: ", count(running), count(waiting))
}

func tokenPath(s *Scene) PathState {
	ms := tails(s, "gen_ai.server.time_to_first_token", "TTFT")
	ms = append(ms, means(s, "gen_ai.server.time_per_output_token", "per output token")...)
	if len(s.Of("gen_ai.server.time_per_output_token")) == 0 {
		ms = append(ms, means(s, "itl", "between outputs")...)
	}
	for _, w := range s.Engines() {
		if by, over, ok := s.grown("tokens.generated", w); ok && over > 0 && (by > 0 || !s.late("tokens.generated", w)) {
			ms = append(ms, measure{"out", -by, w, rate(by, float64(over)/1e9) + " out"})
		}
	}
	for _, r := range s.Of("batch.forward_time") {
		if h, _ := r.Observed(); r.Labels.Get("method") == "decode" && h.Count > 0 {
			ms = append(ms, measure{"step", h.Mean(), r.Who.Engine(), "a decode step takes " + seconds(h.Mean())})
		}
	}
	if len(ms) == 0 && s.Traces != nil {
		return PathState{Path: signals.Token, State: Seen, Text: "request by request, in the traces below"}
	}
	return state(signals.Token, s.present(ms), noTokens(s))
}

// noTokens is why the token path is not seen, and what would show it.
func noTokens(s *Scene) string {
	switch {
	case len(s.All("gen_ai.server.time_to_first_token")) > len(s.Of("gen_ai.server.time_to_first_token")):
		return "TTFT was read and is no evidence, see below: measure it at the client, or give traces"
	case slices.ContainsFunc(s.Engines(), func(w adapter.Who) bool { return !dialects.IsGateway(w) }):
		return "neither TTFT nor a time per token of any request is in what was read: give traces, or what a client measured"
	}
	return "neither TTFT nor a time per token is in what was read: give an engine's /metrics, or traces"
}

// capacity is how many tokens fit into an engine's cache; the smallest is the worst. What stands there as None is not known.
func capacity(s *Scene) (ms []measure) {
	for _, r := range s.Of("kv.config") {
		blocks, ok := number(r.Labels.Get("num_gpu_blocks"))
		size, ok2 := number(r.Labels.Get("block_size"))
		if ok && ok2 {
			ms = append(ms, measure{"room", -blocks * size, r.Who.Engine(), "room for " + count(blocks*size) + " tokens"})
		}
	}
	return ms
}

func state(path signals.Path, ms []measure, otherwise string) PathState {
	if len(ms) == 0 {
		return PathState{Path: path, State: NotSeen, Switch: otherwise}
	}
	return PathState{Path: path, State: Seen, Text: worst(ms)}
}

// present are the measures of whom is still seen; all where nobody is.
func (s *Scene) present(ms []measure) []measure {
	there := slices.DeleteFunc(slices.Clone(ms), func(m measure) bool { return s.isSilent(m.who) })
	if len(there) == 0 {
		return ms
	}
	return there
}

// worst keeps of each kind of measure the worst one, and says whose it is.
func worst(ms []measure) string {
	var kept []measure
	for _, m := range ms {
		i := slices.IndexFunc(kept, func(k measure) bool { return k.kind == m.kind })
		if i < 0 {
			kept = append(kept, m)
		} else if m.worse > kept[i].worse {
			kept[i] = m
		}
	}
	var said []string
	var last adapter.Who
	for i, m := range kept {
		text := m.text
		if i == 0 || m.who != last {
			text += " (" + m.who.String() + ")"
		}
		last = m.who
		said = append(said, text)
	}
	return strings.Join(said, "; ")
}

func gauges(s *Scene, signal string, text func(float64, adapter.Who) string) (ms []measure) {
	for _, w := range s.Engines() {
		if v, ok := s.last(signal, w); ok {
			ms = append(ms, measure{signal, v, w, text(v, w)})
		}
	}
	return ms
}

// tails are the p99 of a histogram, as far as its buckets tell.
func tails(s *Scene, signal, name string) (ms []measure) {
	for _, r := range s.Of(signal) {
		h, window := r.Observed()
		if h.Count == 0 {
			continue
		}
		q := h.Quantile(0.99)
		text := fmt.Sprintf("%s p99 %s", name, between(q))
		if m := h.Mean(); !math.IsNaN(m) {
			text += ", mean " + seconds(m)
		}
		text += ", n " + count(h.Count) + watchedFor(r, window)
		ms = append(ms, measure{signal, cmp.Or(q.High, q.Low), r.Who.Engine(), text})
	}
	return ms
}

// watchedFor is the time in which a histogram was observed.
func watchedFor(r *adapter.Reading, window bool) string {
	if !window {
		return " since its start"
	}
	if over := r.Hists[len(r.Hists)-1].At - r.Hists[0].At; over > 0 {
		return " in " + seconds(float64(over)/1e9)
	}
	return ""
}

func means(s *Scene, signal, name string) (ms []measure) {
	for _, r := range s.Of(signal) {
		if h, _ := r.Observed(); h.Count > 0 && !math.IsNaN(h.Mean()) {
			ms = append(ms, measure{signal, h.Mean(), r.Who.Engine(), seconds(h.Mean()) + " " + name})
		}
	}
	return ms
}

// failures are requests that failed, of each engine, and of each gateway over all its models: whoever asks for one that is not there fails too.
func failures(s *Scene) (ms []measure) {
	type sums struct {
		failed, ended float64
		why           map[string]float64
	}
	of := map[adapter.Who]*sums{}
	var order []adapter.Who
	for _, w := range s.Engines() {
		failed, ended, why := failuresOf(s, w)
		if dialects.IsGateway(w) {
			w.Model = ""
		}
		if of[w] == nil {
			of[w] = &sums{why: map[string]float64{}}
			order = append(order, w)
		}
		of[w].failed, of[w].ended = of[w].failed+failed, of[w].ended+ended
		for k, n := range why {
			of[w].why[k] += n
		}
	}
	for _, w := range order {
		switch f := of[w]; {
		case f.failed > 0 && f.ended == 0: // how many did not is not told
			ms = append(ms, measure{"failed", f.failed, w, fmt.Sprintf("%s failed%s", count(f.failed), reasons(f.why))})
		case f.failed > 0:
			all := f.failed + f.ended
			ms = append(ms, measure{"failed", f.failed / all, w, fmt.Sprintf("%s of %s failed or were aborted, %s%s", count(f.failed), count(all), share(f.failed/all), reasons(f.why))})
		}
	}
	return ms
}

// failuresOf are an engine's requests that failed, those that ended well, and the former by why.
func failuresOf(s *Scene, w adapter.Who) (failed, ended float64, why map[string]float64) {
	why = map[string]float64{}
	fail := func(n float64, reason string) {
		failed += n
		if reason != "" {
			why[reason] += n
		}
	}
	for _, r := range s.about("request.failed", w) {
		fail(since(r), reasonOf(r))
	}
	for _, r := range s.about("request.finished", w) {
		if reason := r.Labels.Get("finished_reason"); reason == "abort" || reason == "error" {
			fail(since(r), reason)
		} else {
			ended += since(r)
		}
	}
	return failed, ended, why
}

// since is by how much a counter grew while it was watched; seen once, everything since it started.
func since(r *adapter.Reading) float64 {
	if by, _, ok := r.Grown(); ok {
		return by
	}
	v, _ := r.Last()
	return v
}

// reasonOf is why the requests of a counter failed, "" where it does not say.
func reasonOf(r *adapter.Reading) string {
	for _, name := range []string{"err", "reason", "error_type", "exception_class", "error_code", "http_code"} {
		if v := r.Labels.Get(name); v != "" {
			return exposition.Printable(v, 40)
		}
	}
	return ""
}

// mostReasons are as many as are told; the rest is one number.
const mostReasons = 4

func reasons(why map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(why), func(a, b string) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	var said []string
	rest := 0.0
	for i, name := range names {
		switch {
		case why[name] == 0:
		case i < mostReasons || len(names) == mostReasons+1:
			said = append(said, name+" "+count(why[name]))
		default:
			rest += why[name]
		}
	}
	if rest > 0 {
		said = append(said, "others "+count(rest))
	}
	if len(said) == 0 {
		return ""
	}
	return " (" + strings.Join(said, ", ") + ")"
}
