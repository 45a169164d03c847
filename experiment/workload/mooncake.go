package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
)

// mooncakeBlock is how many tokens one of Mooncake's hash ids stands for; the last of a prompt may stand for fewer.
const mooncakeBlock = 512

// mooncakeLine is a line of Mooncake's traces (https://github.com/kvcache-ai/Mooncake, FAST25-release/traces, Apache-2.0).
type mooncakeLine struct {
	Timestamp    *int64   `json:"timestamp"` // ms
	InputLength  *int     `json:"input_length"`
	OutputLength *int     `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`
}

// mooncake reads one line. Equal ids are equal blocks after equal blocks, so each is a run of the prefix, the last as well: a
// prompt that was sent twice has it twice.
func mooncake(text []byte) (r experiment.Request, ok bool, err error) {
	var l mooncakeLine
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&l); err != nil {
		return r, false, mooncakeError(text, err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return r, false, &experiment.FieldError{Value: shown(text), Kind: "not JSON", Advice: "something follows the object; put one request on each line"}
	}
	if l.Timestamp == nil || *l.Timestamp < 0 || *l.Timestamp > int64(maxTimestamp) {
		return r, false, mooncakeField("timestamp", l.Timestamp, "give whole milliseconds since the start of the trace, not more than 146 years")
	}
	for _, f := range []struct {
		name  string
		value *int
	}{{"input_length", l.InputLength}, {"output_length", l.OutputLength}} {
		if f.value == nil || *f.value < 1 || *f.value > experiment.MaxTokens {
			return r, false, mooncakeField(f.name, f.value, fmt.Sprintf("give a whole number from 1 to %d, or leave the line out (--skip-bad)", experiment.MaxTokens))
		}
	}
	r = experiment.Request{At: time.Duration(*l.Timestamp) * time.Millisecond, PromptTokens: *l.InputLength, OutputTokens: *l.OutputLength}
	blocks := (r.PromptTokens + mooncakeBlock - 1) / mooncakeBlock
	if n := len(l.HashIDs); n != 0 && n != blocks {
		return r, false, &experiment.FieldError{Field: "hash_ids", Value: fmt.Sprintf("%d ids", n),
			Advice: fmt.Sprintf("an input of %d tokens has %d blocks of %d; a trace with blocks of another size is not Mooncake's", r.PromptTokens, blocks, mooncakeBlock)}
	}
	if len(l.HashIDs) > 0 {
		r.Prefix = make([]experiment.PrefixRun, blocks)
	}
	for i, id := range l.HashIDs {
		r.Prefix[i] = experiment.PrefixRun{Hash: experiment.Hash(id), Tokens: min(mooncakeBlock, r.PromptTokens-i*mooncakeBlock)}
	}
	return r, true, nil
}

const maxTimestamp = (1 << 62) / time.Millisecond

func mooncakeField[T any](name string, value *T, advice string) error {
	if value == nil {
		return &experiment.FieldError{Field: name, Kind: name + " missing", Advice: "it is missing; " + advice}
	}
	return &experiment.FieldError{Field: name, Value: fmt.Sprint(*value), Advice: advice}
}

// mooncakeError words a decoder's complaint.
func mooncakeError(text []byte, err error) error {
	var mistyped *json.UnmarshalTypeError
	switch {
	case errors.As(err, &mistyped) && mistyped.Field != "":
		field, _, _ := strings.Cut(mistyped.Field, ".")
		return &experiment.FieldError{Field: field, Value: mistyped.Value, Advice: "give whole numbers, 0 or more"}
	case errors.As(err, &mistyped):
		return &experiment.FieldError{Value: shown(text), Advice: "it is not a JSON object; a trace has one {…} on each line"}
	case err == io.ErrUnexpectedEOF:
		return &experiment.FieldError{Value: shown(text), Kind: "not JSON", Advice: "the object does not end; is the line cut?"}
	}
	return &experiment.FieldError{Value: shown(text), Kind: "not JSON", Advice: "it is not JSON, which has no NaN or Infinity either: " + err.Error()}
}
