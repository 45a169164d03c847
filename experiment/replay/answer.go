package replay

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// An answer is what a stream of completion chunks, or a whole completion, has said so far.
type answer struct {
	id       string
	counted  int    // tokens of output, as far as they can be counted from the chunks
	usage    *usage // as the server reported last
	finished int    // sequences that were given a finish reason
	done     bool   // the stream said [DONE]
	fault    string // the first error event or chunk that makes no sense
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
}

// message is one chunk of either API, as far as it is of interest.
type message struct {
	ID      string          `json:"id"`
	Object  string          `json:"object"`
	Choices []choice        `json:"choices"`
	Usage   *usage          `json:"usage"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"` // beside "object":"error", the form of older servers
}

type choice struct {
	Index        int       `json:"index"`
	Text         *string   `json:"text"`
	Delta        *delta    `json:"delta"`
	FinishReason string    `json:"finish_reason"`
	TokenIDs     length    `json:"token_ids"`
	Logprobs     *logprobs `json:"logprobs"`
}

type delta struct {
	Role             string  `json:"role"`
	Content          *string `json:"content"`
	ReasoningContent string  `json:"reasoning_content"`
	Reasoning        string  `json:"reasoning"`
	Refusal          string  `json:"refusal"`
	ToolCalls        length  `json:"tool_calls"`
}

type logprobs struct {
	Tokens  length `json:"tokens"`  // completions
	Content length `json:"content"` // chat
}

// length is the length of an array whose elements are of no interest.
type length int

// UnmarshalJSON counts the elements of an array; null has none.
func (l *length) UnmarshalJSON(b []byte) error {
	var elements []json.RawMessage
	if err := json.Unmarshal(b, &elements); err != nil {
		return err
	}
	*l = length(len(elements))
	return nil
}

// take reads one event and calls output for each sequence that it brings output of. A fault is kept, and the reading goes on:
// hanging up at the first would change the load that the others see.
func (a *answer) take(e event, output func(sequence int)) {
	data := bytes.TrimSpace(e.data)
	switch {
	case string(data) == "[DONE]":
		a.done = true
		return
	case e.name == "error":
		a.blame("the server says: " + errorText(data))
		return
	case len(data) == 0:
		return
	}
	var m message
	if err := json.Unmarshal(data, &m); err != nil {
		a.blame(fmt.Sprintf("%s is not a completion: %s", excerpt(data), jsonError(err)))
		return
	}
	if a.id == "" {
		a.id = m.ID
	}
	switch {
	case len(m.Error) > 0 && string(m.Error) != "null":
		a.blame("the server says: " + errorText(data))
	case m.Object == "error":
		a.blame("the server says: " + m.Message)
	}
	if u := m.Usage; u != nil {
		if u.PromptTokens < 0 || u.CompletionTokens < 0 {
			a.blame(fmt.Sprintf("usage of %d and %d tokens is negative", u.PromptTokens, u.CompletionTokens))
		} else {
			a.usage = u
		}
	}
	for _, c := range m.Choices {
		if c.Index < 0 || c.Index > maxIndex {
			a.blame(fmt.Sprintf("output for sequence %d, which was not asked for", c.Index))
			continue
		}
		if c.FinishReason != "" {
			a.finished++
		}
		if c.hasOutput() {
			a.counted += c.tokens()
			output(c.Index)
		}
	}
}

// maxIndex bounds the index of a sequence; it is that of a workload's n.
const maxIndex = 1<<16 - 1

func (a *answer) blame(fault string) {
	if a.fault == "" {
		a.fault = fault
	}
}

// whole says whether a stream that has ended had said everything: [DONE], or a finish reason for each of n sequences.
func (a *answer) whole(n int) bool { return a.done || a.finished >= n }

// hasOutput tells a piece of output from what only looks like one. Text that is present but empty is output: the token had no
// printable form yet. A chat stream's first chunk, which announces the role before there is any output, is none, and neither
// is a last one that brings nothing but the finish reason.
func (c *choice) hasOutput() bool {
	d := c.Delta
	switch {
	case c.Text != nil:
		return true
	case d == nil:
		return false
	case d.Content != nil && *d.Content != "", d.Reasoning != "", d.ReasoningContent != "", d.Refusal != "", d.ToolCalls > 0:
		return true
	}
	return d.Role == "" && d.Content != nil
}

// tokens counts the tokens of a piece of output by whatever lists them, else as one.
func (c *choice) tokens() int {
	listed := int(c.TokenIDs)
	if listed == 0 && c.Logprobs != nil {
		listed = int(max(c.Logprobs.Tokens, c.Logprobs.Content))
	}
	return max(listed, 1)
}

// errorText finds the message in the forms of error that servers send: {"error": {"message": …}}, {"error": "…"},
// {"message": …}, {"detail": …}, or plain text.
func errorText(body []byte) string {
	var form struct {
		Error, Message, Detail json.RawMessage
	}
	if json.Unmarshal(body, &form) != nil {
		return excerpt(body)
	}
	for _, part := range []json.RawMessage{form.Error, form.Message, form.Detail} {
		var text string
		if json.Unmarshal(part, &text) == nil && text != "" {
			return text
		}
		var inner struct{ Message string }
		if json.Unmarshal(part, &inner) == nil && inner.Message != "" {
			return inner.Message
		}
	}
	return excerpt(body)
}

// jsonError words a decoder's complaint without the names of our types.
func jsonError(err error) string {
	var mistyped *json.UnmarshalTypeError
	if errors.As(err, &mistyped) {
		return fmt.Sprintf("%s is a %s", cmp.Or(mistyped.Field, "it"), mistyped.Value)
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// excerpt shows the beginning of what was found, on one line.
func excerpt(b []byte) string {
	const most = 60
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(b[:min(len(b), most)]), "\ufffd")), " ")
	if len(b) > most {
		text += "…"
	}
	return text
}
