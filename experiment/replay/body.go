package replay

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/whylate/whylate/experiment"
)

// parameters are the fields of a request's body that both APIs know. What has its default value is left out, so that a server
// which refuses fields that it does not know gets none that the workload did not ask for: ignore_eos, priority and prompt_logprobs are
// extensions of vLLM, which others share.
//
// Two things that vLLM refuses together are not asked for together: a request for the log-probabilities of its prompt is not
// streamed, and one for several sequences is not greedy.
type parameters struct {
	Model          string         `json:"model,omitempty"`
	MaxTokens      int            `json:"max_tokens"`
	Temperature    float64        `json:"temperature"`
	N              int            `json:"n,omitempty"`
	Logprobs       any            `json:"logprobs,omitempty"`
	TopLogprobs    *int           `json:"top_logprobs,omitempty"`
	PromptLogprobs *int           `json:"prompt_logprobs,omitempty"`
	IgnoreEOS      bool           `json:"ignore_eos,omitempty"`
	Priority       int            `json:"priority,omitempty"`
	Stream         bool           `json:"stream"`
	StreamOptions  *streamOptions `json:"stream_options,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// streamed says whether the answer to r comes piece by piece.
func streamed(r *experiment.Request) bool { return r.PromptLogprobs == nil }

// body renders the request whose id is given.
func (o *Options) body(prompter *experiment.Prompter, r *experiment.Request, id string) []byte {
	p := parameters{
		Model: o.Model, MaxTokens: r.OutputTokens, Temperature: o.Temperature, PromptLogprobs: r.PromptLogprobs,
		IgnoreEOS: !r.StopAtEOS, Priority: r.Priority, Stream: streamed(r),
	}
	if p.Stream {
		p.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if r.N > 1 {
		p.N = r.N
		if p.Temperature == 0 {
			p.Temperature = 1
		}
	}
	switch {
	case r.Logprobs == nil:
	case o.Chat:
		p.Logprobs, p.TopLogprobs = true, r.Logprobs
	default:
		p.Logprobs = *r.Logprobs
	}
	rest, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("BUG: request body: %v", err)) // withDefaults has refused the numbers that JSON cannot hold
	}
	b := make([]byte, 0, 5*r.PromptTokens+len(rest)+64)
	switch {
	case o.Chat:
		b = append(b, `{"messages":[{"role":"user","content":"`...)
		b = append(prompter.AppendText(b, r, id), `"}]`...)
	case o.TextPrompt:
		b = append(b, `{"prompt":"`...)
		b = append(prompter.AppendText(b, r, id), '"')
	default:
		b = append(b, `{"prompt":[`...)
		for i, token := range prompter.AppendTokens(nil, r, id) {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(token), 10)
		}
		b = append(b, ']')
	}
	b = append(b, ',')
	return append(b, rest[1:]...)
}
