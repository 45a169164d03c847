package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter"
)

func cacheValue(s *Scene, w adapter.Who) (Derived, bool) {
	spared, of, ok := sparedByComputed(s, w)
	if !ok {
		spared, _, ok = s.grown("kv.prefix_hits", w)
		queries, _, ok2 := s.grown("kv.prefix_queries", w)
		of, ok = queries, ok && ok2
	}
	if !ok || of <= 0 || spared < 0 || spared > of {
		return Derived{}, false
	}
	v := spared / of
	return Derived{Low: v, High: v, worse: -v, Text: fmt.Sprintf("%s of %s prompt tokens (%s) needed no prefill: their KV was in a cache, or was fetched", count(spared), count(of), share(v))}, true
}

func sparedByComputed(s *Scene, w adapter.Who) (spared, of float64, ok bool) {
	prompt, _, ok := s.grown("tokens.prompt", w)
	computed, _, ok2 := s.grown("tokens.prompt_computed", w)
	return prompt - computed, prompt, ok && ok2
}

// pages are the pages of an engine's cache: how many there are, how many live requests hold, and how many tokens fit into one; 0 = not known.
func (s *Scene) pages(w adapter.Who) (used, all, tokens float64, ok bool) {
	tokens, _ = s.last("kv.block_tokens", w)
	for _, r := range s.Of("kv.config") {
		if r.Target != w.Target || r.Who.Rank != "" && w.Rank != "" && r.Who.Rank != w.Rank { // it names no model
			continue
		}
		if n, is := number(r.Labels.Get("block_size")); is {
			tokens = n
		}
		all, _ = number(r.Labels.Get("num_gpu_blocks"))
	}
	if told, is := s.last("kv.blocks", w); is {
		used, ok = s.last("kv.blocks_used", w)
		return used, told, tokens, ok
	}
	usage, is := s.last("kv.usage", w)
	return usage * all, all, tokens, is && all > 0
}

func pagesUsed(s *Scene, w adapter.Who) (Derived, bool) {
	used, all, _, ok := s.pages(w)
	if !ok || all <= 0 || used > all {
		return Derived{}, false
	}
	return Derived{Low: used, High: used, worse: used / all, small: used == 0, Text: fmt.Sprintf("%s of %s KV pages held by live requests, %s can be given", count(used), count(all), count(all-used))}, true
}

// worthSlack is the share of the cache from which on slack is worth a line.
const worthSlack = 0.01

func slack(s *Scene, w adapter.Who) (Derived, bool) {
	running, ok := s.last("request.running", w)
	_, all, tokens, _ := s.pages(w)
	if !ok || running == 0 || tokens <= 1 {
		return Derived{}, false
	}
	most := running * (tokens - 1)
	text := fmt.Sprintf("at most %s tokens of room in last pages (%s running × %s)", count(most), count(running), count(tokens-1))
	if all > 0 {
		text += fmt.Sprintf(", %s of the cache", share(most/(all*tokens)))
	}
	return Derived{Low: 0, High: most, worse: most, small: all > 0 && most < worthSlack*all*tokens, Text: text}, true
}
