package sglang

import (
	"strings"

	"github.com/whylate/whylate/logline"
)

// Start is what one line of a server's start told. Several make up a start.
type Start struct {
	Model    string // its name or folder
	Settings []logline.Setting

	KVTokens      logline.Opt[int]     // tokens that the KV cache has room for
	ChunkTokens   logline.Opt[int]     // of a prompt's part; -1: prompts are not cut
	BatchTokens   logline.Opt[int]     // of a prefill batch
	MaxRunning    logline.Opt[int]     // requests
	ContextTokens logline.Opt[int]     // the longest request
	FreeGB        logline.Opt[float64] // of the device, when all is allocated
	Ready         bool                 // it serves from here on
	logline.Rest
}

var capacityKeys = logline.Keys[Start]{
	"max_total_num_tokens": logline.Int(func(s *Start) *logline.Opt[int] { return &s.KVTokens }),
	"chunked_prefill_size": logline.Int(func(s *Start) *logline.Opt[int] { return &s.ChunkTokens }),
	"max_prefill_tokens":   logline.Int(func(s *Start) *logline.Opt[int] { return &s.BatchTokens }),
	"max_running_requests": logline.Int(func(s *Start) *logline.Opt[int] { return &s.MaxRunning }),
	"context_len":          logline.Int(func(s *Start) *logline.Opt[int] { return &s.ContextTokens }),
	"available_gpu_mem":    logline.Float(func(s *Start) *logline.Opt[float64] { return &s.FreeGB }),
}

// capacity reads "max_total_num_tokens=171008, chunked_prefill_size=8192, …".
func capacity(text string) Record {
	var s Start
	s.Rest = logline.Fill(&s, capacityKeys, "max_total_num_tokens="+text, logline.Equals)
	return s
}

// settings reads "ServerArgs(model_path='…', …)", and the same as JSON.
func settings(text string) Record {
	s := Start{Settings: logline.Settings(text)}
	if len(s.Settings) == 0 {
		return nil
	}
	for _, set := range s.Settings {
		if set.Name == "model_path" {
			s.Model = strings.Clone(set.Value)
		}
	}
	return s
}
