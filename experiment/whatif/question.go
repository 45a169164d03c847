package whatif

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/experiment/simulate"
)

// Setting is a change of one setting of the engine.
type Setting struct {
	Name string `json:"setting"` // as vLLM's flag, with underscores
	From string `json:"from"`    // "" = the engine did not tell
	To   string `json:"to"`
}

// kind is what values a setting takes.
type kind int

const (
	number kind = iota
	flag
	policy
)

// knob is a setting that the simulated engine follows.
type knob struct {
	name string // as vLLM's flag
	keys []string
	kind kind
}

// knobs are all settings that may be changed. A setting that the engine derives from another follows it.
var knobs = []knob{
	{"max_num_batched_tokens", []string{"max_num_batched_tokens", "max_num_scheduled_tokens"}, number},
	{"max_num_seqs", []string{"max_num_seqs"}, number},
	{"num_gpu_blocks", []string{"num_gpu_blocks"}, number},
	{"long_prefill_token_threshold", []string{"long_prefill_token_threshold"}, number},
	{"watermark_blocks", []string{"watermark_blocks"}, number},
	{"enable_chunked_prefill", []string{"enable_chunked_prefill"}, flag},
	{"enable_prefix_caching", []string{"enable_prefix_caching"}, flag},
	{"scheduler_reserve_full_isl", []string{"scheduler_reserve_full_isl"}, flag},
	{"scheduling_policy", []string{"policy"}, policy},
}

// aliases are other names of a knob: the engine's own flags for the same thing.
var aliases = map[string]string{"num_gpu_blocks_override": "num_gpu_blocks", "policy": "scheduling_policy", "max_num_scheduled_tokens": "max_num_batched_tokens"}

// Knobs are the names of the settings that may be changed.
func Knobs() []string {
	var names []string
	for _, k := range knobs {
		names = append(names, k.name)
	}
	return names
}

// apply makes the engine's settings with the changes, which are "name=value". What changes nothing is an error: it would be answered with
// a comparison of noise.
func apply(version string, settings map[string]any, changes []string) (map[string]any, []Setting, error) {
	out := make(map[string]any, len(settings))
	for k, v := range settings {
		out[k] = v
	}
	if len(changes) == 0 {
		return nil, nil, fmt.Errorf("whatif: nothing is changed: give a setting and its value, such as max_num_batched_tokens=1024; settings are %s", strings.Join(Knobs(), ", "))
	}
	var made []Setting
	for _, c := range changes {
		name, text, ok := strings.Cut(c, "=")
		if !ok {
			return nil, nil, fmt.Errorf("whatif: %q: write it as setting=value", c)
		}
		name = strings.ReplaceAll(strings.TrimLeft(strings.TrimSpace(name), "-"), "-", "_")
		if other, ok := aliases[name]; ok {
			name = other
		}
		i := slices.IndexFunc(knobs, func(k knob) bool { return k.name == name })
		if i < 0 {
			return nil, nil, fmt.Errorf("whatif: %q is no setting that is simulated: those are %s", name, strings.Join(Knobs(), ", "))
		}
		if slices.ContainsFunc(made, func(s Setting) bool { return s.Name == name }) {
			return nil, nil, fmt.Errorf("whatif: %s is set twice", name)
		}
		v, err := knobs[i].value(strings.TrimSpace(text))
		if err != nil {
			return nil, nil, err
		}
		was := settings[knobs[i].keys[0]]
		if was != nil && fmt.Sprint(was) == fmt.Sprint(v) {
			return nil, nil, fmt.Errorf("whatif: %s is %v in the capture already", name, was)
		}
		s := Setting{Name: name, To: fmt.Sprint(v)}
		if was != nil {
			s.From = fmt.Sprint(was)
		}
		made = append(made, s)
		for _, key := range knobs[i].keys {
			out[key] = v
		}
	}
	_, _, err := simulate.FromHello(version, out)
	return out, made, err
}

func (k *knob) value(text string) (any, error) {
	switch k.kind {
	case number:
		if n, err := strconv.ParseUint(text, 10, 31); err == nil {
			return json.Number(strconv.FormatUint(n, 10)), nil
		}
		return nil, fmt.Errorf("whatif: %s = %q: give a whole number, 0 or more", k.name, text)
	case flag:
		if on, err := strconv.ParseBool(text); err == nil {
			return on, nil
		}
		return nil, fmt.Errorf("whatif: %s = %q: give true or false", k.name, text)
	}
	if text == "fcfs" || text == "priority" {
		return text, nil
	}
	return nil, errors.New("whatif: scheduling_policy = " + strconv.Quote(text) + ": give fcfs or priority")
}
