package look

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
)

// hiddenQueues tells of requests that wait where the queue's gauge does not count them, or not for what one thinks.
func hiddenQueues(s *Scene) (facts []Fact) {
	for _, w := range s.whole() {
		for _, find := range []func(*Scene, adapter.Who) (Fact, bool){apartQueues, deferredQueue, grammarQueue, sleeping} {
			if f, ok := find(s, w); ok {
				f.About = w.String()
				facts = append(facts, f)
			}
		}
	}
	return facts
}

// apart are the queues of a prefill/decode pair, which SGLang's own queue does not count.
var apart = []struct{ family, what string }{
	{"sglang:num_decode_prealloc_queue_reqs", "for room on the decode node (prealloc)"},
	{"sglang:num_decode_transfer_queue_reqs", "for their KV (transfer)"},
	{"sglang:num_prefill_bootstrap_queue_reqs", "for the decode node (bootstrap)"},
	{"sglang:num_prefill_prealloc_queue_reqs", "for the decode node (bootstrap)"},
	{"sglang:num_prefill_inflight_queue_reqs", "for their KV to be sent (inflight)"},
}

func apartQueues(s *Scene, w adapter.Who) (Fact, bool) {
	var said []string
	for _, q := range apart {
		if n, ok := s.native(w, q.family); ok && n > 0 {
			said = append(said, count(n)+" "+q.what)
		}
	}
	if len(said) == 0 {
		return Fact{}, false
	}
	f := Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%s is half of a prefill/decode pair: its queue does not count who waits %s.", w, strings.Join(said, ", "))}
	if n, _ := s.native(w, apart[0].family); n > 0 {
		if usage, ok := s.worstOf("kv.usage", w); ok && usage >= 0.9 {
			f.Text += fmt.Sprintf(" It has no room: KV cache %s.", share(usage))
			f.Do = "Give the decode side more room for KV: replicas, memory, shorter outputs. More prefill nodes do not help against that."
		}
	}
	return f, true
}

func deferredQueue(s *Scene, w adapter.Who) (Fact, bool) {
	const family = "vllm:num_requests_waiting_by_reason"
	deferred, _ := s.native(w, family, "reason", "deferred")
	forRoom, _ := s.native(w, family, "reason", "capacity")
	if deferred == 0 {
		return Fact{}, false
	}
	text := fmt.Sprintf("%s: %s of %s waiting requests are deferred: they wait for something else than room, such as remote KV or a grammar; %s wait for room", w, count(deferred), count(deferred+forRoom), count(forRoom))
	if usage, ok := s.worstOf("kv.usage", w); ok {
		text += fmt.Sprintf(" (KV cache %s)", share(usage))
	}
	return Fact{Weight: Notice, Path: "request", Text: text + ".", Do: "Look at what loads KV for them (connector, offload) before the cache is made larger."}, true
}

func grammarQueue(s *Scene, w adapter.Who) (Fact, bool) {
	waiting, ok := s.native(w, "sglang:num_grammar_queue_reqs")
	if !ok || waiting == 0 {
		return Fact{}, false
	}
	text := fmt.Sprintf("%s: %s requests wait until their grammar (JSON schema, pattern) is compiled, in a queue of their own", w, count(waiting))
	if queue, ok := s.worstOf("request.waiting", w); ok {
		text += fmt.Sprintf(" beside the ordinary one (%s)", count(queue))
	}
	for _, t := range s.family(w.Target, "sglang:grammar_compilation_time_seconds") {
		if len(t.Hists) > 0 {
			if h := t.Hists[len(t.Hists)-1]; h.Count > 0 {
				text += fmt.Sprintf("; compiling one takes %s on average (n %s since its start)", seconds(h.Sum/h.Count), count(h.Count))
				break
			}
		}
	}
	if all, ok := s.native(w, "sglang:num_grammar_total"); ok && all > 0 {
		hits, _ := s.native(w, "sglang:num_grammar_cache_hit_total")
		text += fmt.Sprintf("; %s of %s were found compiled", count(hits), count(all))
	}
	aborted, _ := s.native(w, "sglang:num_grammar_aborted_total")
	timeouts, _ := s.native(w, "sglang:num_grammar_timeout_total")
	if aborted+timeouts > 0 {
		text += fmt.Sprintf("; %s were aborted, %s timed out", count(aborted), count(timeouts))
	}
	return Fact{Weight: Notice, Path: "request", Text: text + ".", Do: "Use the same schemas again, compile them beforehand, make the pattern simpler. More GPUs do not help against that."}, true
}

func sleeping(s *Scene, w adapter.Who) (Fact, bool) {
	if awake, ok := s.native(w, "vllm:engine_sleep_state", "sleep_state", "awake"); !ok || awake != 0 {
		return Fact{}, false
	}
	f := Fact{Weight: Notice, Path: "request", Text: fmt.Sprintf("%s is asleep (vllm:engine_sleep_state): it answers nobody until it is woken.", w)}
	if waiting, ok := s.worstOf("request.waiting", w); ok && waiting > 0 {
		f.Weight = Broken
		f.Text = fmt.Sprintf("%s is asleep (vllm:engine_sleep_state) while %s requests wait: it answers nobody until it is woken.", w, count(waiting))
	}
	return f, true
}

// worstOf is the greatest value of a gauge over an engine's ranks.
func (s *Scene) worstOf(signal string, whole adapter.Who) (worst float64, found bool) {
	for _, w := range s.Engines() {
		rank := w
		if rank.Rank = ""; rank != whole {
			continue
		}
		if v, ok := s.last(signal, w); ok {
			worst, found = max(worst, v), true
		}
	}
	return worst, found
}

// native is the newest value of a series that no signal is made of, over an engine's data-parallel ranks; a rank's workers repeat it. where is
// pairs of labels and values.
func (s *Scene) native(w adapter.Who, family string, where ...string) (sum float64, found bool) {
	repeated := map[string]float64{}
	for _, t := range s.family(w.Target, family) {
		if len(t.Points) == 0 || t.Labels.Get("model_name") != w.Model {
			continue
		}
		if len(where) > 0 && t.Labels.Get(where[0]) != where[1] {
			continue
		}
		key := t.Labels.Without("tp_rank", "pp_rank", "moe_ep_rank", "pid").Key()
		repeated[key], found = max(repeated[key], t.Points[len(t.Points)-1].Value), true
	}
	for _, v := range repeated {
		sum += v
	}
	return sum, found
}

// nobodyReady tells of pools without an endpoint that takes requests.
func nobodyReady(s *Scene) (facts []Fact) {
	for _, t := range s.Tracks {
		if !slices.Contains([]string{"llm_d_epp_ready_endpoints", "inference_pool_ready_pods"}, t.Family) || len(t.Points) == 0 || t.Points[len(t.Points)-1].Value != 0 {
			continue
		}
		w := adapter.Who{Producer: "epp", Target: t.Target}
		facts = append(facts, Fact{Weight: Broken, Path: "request", About: w.String(), Text: fmt.Sprintf("%s: no endpoint of its pool is ready (%s = 0): requests find nobody.", w, t.Family),
			Do: "Look at the pool's pods, their readiness, and the selector of the pool."})
	}
	return facts
}
