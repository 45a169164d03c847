package exposition

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const inText = `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="nova"} 5
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1"} 3
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 4
vllm:time_to_first_token_seconds_sum 0.5
vllm:time_to_first_token_seconds_count 4
`

// inProtobuf is that page in the other format.
func inProtobuf(t testing.TB) []byte {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(inText))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := expfmt.NewEncoder(&b, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, name := range []string{"vllm:num_requests_running", "vllm:time_to_first_token_seconds"} {
		if err := e.Encode(families[name]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func TestFromProtobuf(t *testing.T) {
	b := inProtobuf(t)
	if text, ok := FromProtobuf(b); !ok || string(text) != inText {
		t.Errorf("%v: %s", ok, text)
	}
	if text, ok := FromProtobuf(b[:len(b)-5]); !ok || !strings.HasPrefix(inText, string(text)) {
		t.Errorf("cut, %v: %s", ok, text)
	}
	for _, text := range []string{"", "#", inText, "#\n  HELP a b\na 1\n", "\n\nname 1\n"} {
		if got, ok := FromProtobuf([]byte(text)); ok {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}

func FuzzFromProtobuf(f *testing.F) {
	f.Add(inProtobuf(f))
	f.Add([]byte(inText))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if text, ok := FromProtobuf(b); ok {
			Read(text)
		}
	})
}
