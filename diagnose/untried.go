package diagnose

import (
	"strings"

	"github.com/whylate/whylate/ledger"
)

// Untried names the modes of an engine in which whylate has never been held against a real run: what it says of them follows from
// the engine's code, and may be wrong. This is the one list of them; 'make engine-test' and 'make scheduler-diff' are what shortens it.
func Untried(e *ledger.Engine) []string {
	parallel := func(name string) bool { return e.Setting(name) > 1 }
	connector, _ := e.Settings["kv_connector"].(string)
	rust, _ := e.Settings["rust_frontend"].(bool)
	async, _ := e.Settings["async_scheduling"].(bool)
	ratios, _ := e.Settings["simulated_time"].(string)
	const driven = " (only the scheduler's classes were driven, without a model)"
	var out []string
	for _, m := range []struct {
		on   bool
		name string
	}{
		{async || e.Depth > 1 && !parallel("pipeline_parallel_size"), "asynchronous scheduling" + driven},
		{e.Setting("num_speculative_tokens") > 0, "speculative decoding" + driven},
		{parallel("pipeline_parallel_size"), "pipeline parallelism"},
		{parallel("tensor_parallel_size") || parallel("decode_context_parallel_size"), "several ranks to one scheduler"},
		{connector != "", "a KV connector (" + connector + ")"},
		{ratios != "", "a simulation whose times are reckoned from data sheets: no duration is in seconds, only quotients mean anything"},
		{rust, "the Rust front end, which the probe does not see"},
	} {
		if m.on {
			out = append(out, m.name)
		}
	}
	return out
}

// UntriedWords is the line that an answer about such an engine carries, "" if all its modes were tried.
func UntriedWords(modes []string) string {
	if len(modes) == 0 {
		return ""
	}
	return "Never held against a real run in this mode: " + strings.Join(modes, "; ") + ". What is said here may be wrong."
}
