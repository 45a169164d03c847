package look

import (
	"fmt"
	"strconv"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// started is what the lines of an engine's start told; of several starts, the newest.
type started struct {
	version  string
	model    string
	settings map[string]string
	blocks   logline.Opt[int]
	kvTokens logline.Opt[int]
	longest  logline.Opt[int]     // tokens of a request
	fit      logline.Opt[float64] // requests of that length
}

// worth are the settings that are worth a place on the screen, of both engines.
var worth = []string{"max_num_seqs", "max_running_requests", "max_num_batched_tokens", "chunked_prefill_size", "block_size", "page_size",
	"tensor_parallel_size", "tp_size", "data_parallel_size", "dp_size"}

func (s *started) take(e *entry) {
	switch r := e.Record.(type) {
	case vllm.Start:
		s.told(r.Version, r.Model, r.Settings)
		newer(&s.blocks, r.Blocks)
		newer(&s.kvTokens, r.KVTokens)
		newer(&s.longest, r.RequestTokens)
		newer(&s.fit, r.Concurrency)
	case sglang.Start:
		s.told("", r.Model, r.Settings)
		newer(&s.kvTokens, r.KVTokens)
		newer(&s.longest, r.ContextTokens)
		if r.MaxRunning.Known {
			s.set("max_running_requests", strconv.Itoa(r.MaxRunning.Value))
		}
		if r.ChunkTokens.Known {
			s.set("chunked_prefill_size", strconv.Itoa(r.ChunkTokens.Value))
		}
	}
}

func newer[T any](old *logline.Opt[T], now logline.Opt[T]) {
	if now.Known {
		*old = now
	}
}

func (s *started) told(version, model string, settings []logline.Setting) {
	if version != "" {
		s.version = version
	}
	if model != "" {
		s.model = model
	}
	for _, set := range settings {
		if !set.Withheld {
			s.set(set.Name, set.Value)
		}
	}
}

func (s *started) set(name, value string) {
	if s.settings == nil {
		s.settings = map[string]string{}
	}
	s.settings[name] = value
}

// text are the settings that are worth knowing, and the room for KV.
func (s *started) text() (said []string) {
	for _, name := range worth {
		if v := s.settings[name]; v != "" && v != "None" {
			said = append(said, name+" "+v)
		}
	}
	if s.blocks.Known {
		said = append(said, count(float64(s.blocks.Value))+" KV blocks")
	}
	if s.kvTokens.Known {
		said = append(said, "room for "+count(float64(s.kvTokens.Value))+" tokens")
	}
	if s.fit.Known && s.longest.Known {
		said = append(said, fmt.Sprintf("%s requests of %s tokens fit, a bound of memory and no number of users", significant(s.fit.Value), count(float64(s.longest.Value))))
	}
	return said
}
