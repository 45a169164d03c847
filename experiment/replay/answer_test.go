package replay

import (
	"reflect"
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	f := func(stream string, sequences []int, want answer) {
		t.Helper()
		var a answer
		var got []int
		for _, e := range slowEvents([]byte(stream)) {
			a.take(event{name: e.name, data: []byte(e.data)}, func(s int) { got = append(got, s) })
		}
		if !reflect.DeepEqual(got, sequences) || !reflect.DeepEqual(a, want) {
			t.Errorf("%s\ngot  %v %+v\nwant %v %+v", stream, got, a, sequences, want)
		}
	}
	events := func(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

	// Completions: an empty text is a token that has no form yet; usage comes last, in a chunk without choices.
	f(events(
		`{"id":"cmpl-1","object":"text_completion","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"cmpl-1","choices":[{"index":0,"text":"","finish_reason":null}]}`,
		`{"id":"cmpl-1","choices":[{"index":0,"text":"b","finish_reason":"length"}]}`,
		`{"id":"cmpl-1","choices":[],"usage":{"prompt_tokens":5,"total_tokens":9,"completion_tokens":4}}`,
		`[DONE]`,
	), []int{0, 0, 0}, answer{id: "cmpl-1", counted: 3, usage: &usage{5, 4}, finished: 1, done: true})

	// Chat: neither the announcement of the role nor a bare finish reason is output; all kinds of content are.
	f(events(
		`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`,
		`{"id":"chatcmpl-1","choices":[{"index":1,"delta":{"role":"assistant"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning":"hm"}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}`,
		`{"choices":[{"index":1,"delta":{"role":"assistant","content":"x"},"finish_reason":""}]}`,
		`{"choices":[{"index":0,"delta":{"content":""}}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
		`{"choices":[{"index":1,"delta":{"content":null},"finish_reason":"stop"}]}`,
		`[DONE]`,
	), []int{0, 0, 0, 1, 0}, answer{id: "chatcmpl-1", counted: 5, finished: 2, done: true})

	// Tokens are counted by whatever lists them.
	f(events(
		`{"choices":[{"index":0,"text":"abc","token_ids":[5,6,7],"logprobs":{"tokens":["a"]}}]}`,
		`{"choices":[{"index":0,"text":"ab","token_ids":null,"logprobs":{"tokens":["a","b"],"top_logprobs":[{"a":-1}]}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"ab"},"logprobs":{"content":[{"token":"a"},{"token":"b"}]}},{"index":1,"text":"x"}]}`,
	), []int{0, 0, 0, 1}, answer{counted: 8})

	// Usage in every chunk: the last one holds.
	f(events(`{"choices":[{"text":"a"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}`, `{"choices":[{"text":"b"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`),
		[]int{0, 0}, answer{counted: 2, usage: &usage{5, 2}})

	// Errors, in the forms that servers send them. The first is kept, the reading goes on.
	for _, form := range []string{
		"data: {\"error\":{\"message\":\"out of blocks\",\"type\":\"Internal\",\"code\":500}}\n\n",
		"data: {\"error\":\"out of blocks\"}\n\n",
		"data: {\"object\":\"error\",\"message\":\"out of blocks\"}\n\n",
		"event: error\ndata: {\"message\":\"out of blocks\"}\n\n",
		"event: error\ndata: {\"detail\":\"out of blocks\"}\n\n",
		"event: error\ndata: out of\ndata: blocks\n\n",
	} {
		f(form+events(`{"error":"second"}`, `{"choices":[{"text":"a"}],"error":null}`), []int{0}, answer{counted: 1, fault: "the server says: out of blocks"})
	}

	// What makes no sense is said, and the rest is read.
	f(events(`{"choices":[{"te`, `{"choices":[{"text":"a"}]}`), []int{0}, answer{counted: 1, fault: `{"choices":[{"te is not a completion: unexpected end of JSON input`})
	f(events(`{"choices":7}`), nil, answer{fault: `{"choices":7} is not a completion: choices is a number`})
	f(events(`null`, ``), nil, answer{})
	f(events(`5`), nil, answer{fault: `5 is not a completion: it is a number`})
	f(events(`{"choices":[{"index":-1,"text":"a"},{"index":65536,"text":"a"}]}`), nil, answer{fault: "output for sequence -1, which was not asked for"})
	f(events(`{"usage":{"prompt_tokens":-5}}`), nil, answer{fault: "usage of -5 and 0 tokens is negative"})
}
