package diagnose

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/wire"
)

// What an engine says of itself in its hello is what its answers are marked by.
func TestUntriedModesAreNamed(t *testing.T) {
	tests := map[string]struct {
		settings string
		depth    int
		want     []string // beginnings
	}{
		"the modes of the proofs":  {`{"async_scheduling": false, "pipeline_parallel_size": 1, "tensor_parallel_size": 1, "data_parallel_size": 2, "decode_context_parallel_size": 1, "kv_connector": null, "num_speculative_tokens": 0, "rust_frontend": false}`, 1, nil},
		"asynchronous scheduling":  {`{"async_scheduling": true, "pipeline_parallel_size": 1}`, 2, []string{"asynchronous scheduling"}},
		"two decisions in flight":  {`{}`, 2, []string{"asynchronous scheduling"}},
		"a pipeline of two stages": {`{"async_scheduling": false, "pipeline_parallel_size": 2}`, 2, []string{"pipeline parallelism"}},
		"all at once": {`{"async_scheduling": true, "pipeline_parallel_size": 4, "tensor_parallel_size": 8, "kv_connector": "NixlConnector", "num_speculative_tokens": 3, "rust_frontend": true}`, 4,
			[]string{"asynchronous scheduling", "speculative decoding", "pipeline parallelism", "several ranks", "a KV connector (NixlConnector)", "the Rust front end"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hello := wire.Hello{Protocol: [2]uint16{wire.Major, 0}, Engine: wire.Engine{Name: "vllm", Replica: "r"}, Role: "engine", Thread: "scheduler", Boot: "b", Depth: tt.depth}
			if err := json.Unmarshal([]byte(tt.settings), &hello.Settings); err != nil {
				t.Fatal(err)
			}
			object, err := json.Marshal(hello)
			if err != nil {
				t.Fatal(err)
			}
			a := ingest.New()
			id, err := a.Source(wire.Source{Name: "r", Hello: object})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := wire.Append(nil, 1, &wire.Queued{Time: 1, Handle: 1, ID: "q"})
			if err != nil {
				t.Fatal(err)
			}
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Frame(id, f); err != nil {
				t.Fatal(err)
			}
			b := a.Book()
			if len(b.Engines) != 1 {
				t.Fatalf("%d engines", len(b.Engines))
			}
			got := Untried(b.Engines[0])
			if !slices.EqualFunc(got, tt.want, strings.HasPrefix) {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if x := Explain(query.Open(b), b.Requests[0]); !slices.Equal(x.Basis.Untried, got) {
				t.Errorf("the answer says %q", x.Basis.Untried)
			}
			if words := UntriedWords(got); (words == "") != (tt.want == nil) || strings.Contains(words, "\n") {
				t.Errorf("in one line: %q", words)
			}
		})
	}
}
