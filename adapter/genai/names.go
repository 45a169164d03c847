package genai

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Field is what an attribute is about, whatever its spelling.
type Field uint8

// Fields. There are fewer than 64: a span has a bit for each.
const (
	Operation Field = iota
	SpanType        // LLM, AGENT, TOOL …: openinference and traceloop
	Provider
	RequestModel
	ResponseModel
	RequestID
	ResponseID
	FinishReason
	ErrorType
	InputTokens
	OutputTokens
	TotalTokens
	CacheRead
	CacheWrite
	ReasoningTokens
	MaxTokens
	Choices
	Stream
	FirstToken // from the arrival at who measured to the first token
	FirstChunk // from the sending by a client to the first chunk; another quantity than FirstToken, never merged
	E2E
	QueueTime
	PrefillTime
	DecodeTime
	InferenceTime
	TransferTime
	HTTPMethod
	HTTPStatus
	ASGIEvent
	Module
	ThreadLabel
	HostID
	PID
	TPRank
	PPRank
	DPRank
)

// Shape is a family and generation of names.
type Shape string

// Shapes.
const (
	Old           Shape = "gen_ai before 1.27" // prompt_tokens, completion_tokens
	Middle        Shape = "gen_ai 1.27 to 1.36"
	Standard      Shape = "gen_ai"            // names that 1.27 to 1.41 share
	V137          Shape = "gen_ai 1.37"       // provider.name
	V140          Shape = "gen_ai 1.40"       // cache tokens
	Next          Shape = "gen_ai after 1.41" // cache_write
	Loose         Shape = "gen_ai, not standard"
	EngineShape   Shape = "engine (gen_ai.latency.*)"
	OpenInference Shape = "openinference (llm.token_count.*)"
	OpenLLMetry   Shape = "openllmetry (llm.usage.*)"
	Vercel        Shape = "ai sdk (ai.*)"
	SGLang        Shape = "sglang"
	Dynamo        Shape = "dynamo"
	TGI           Shape = "tgi"
	Vendor        Shape = "vendor"
	Web           Shape = "http"
)

// Unit of the number under a name. The canonical unit of every duration is ns.
type Unit uint8

// Units.
const (
	Ident   Unit = iota // a short text: an enumeration or an identifier
	Count               // tokens, ranks, codes
	Seconds             // number of seconds
	Millis              // number of milliseconds
	Flag                // true or false
)

// Name is one spelling of a field.
type Name struct {
	Key   string
	Field Field
	Unit  Unit
	Shape Shape
}

// names is the table of all spellings (from the standard's rename history, the engines' and gateways' sources).
var names = []Name{
	{"gen_ai.operation.name", Operation, Ident, Standard},
	{"llm.request.type", Operation, Ident, OpenLLMetry},
	{"ai.operationId", Operation, Ident, Vercel},
	{"openinference.span.kind", SpanType, Ident, OpenInference},
	{"traceloop.span.kind", SpanType, Ident, OpenLLMetry},

	{"gen_ai.provider.name", Provider, Ident, V137},
	{"gen_ai.system", Provider, Ident, Middle},
	{"llm.provider", Provider, Ident, OpenInference},
	{"llm.system", Provider, Ident, OpenInference},
	{"llm.vendor", Provider, Ident, OpenLLMetry},
	{"ai.model.provider", Provider, Ident, Vercel},

	{"gen_ai.request.model", RequestModel, Ident, Standard},
	{"llm.request.model", RequestModel, Ident, OpenLLMetry},
	{"llm.model_name", RequestModel, Ident, OpenInference},
	{"ai.model.id", RequestModel, Ident, Vercel},
	{"model", RequestModel, Ident, Dynamo},
	{"gen_ai.response.model", ResponseModel, Ident, Standard},
	{"llm.response.model", ResponseModel, Ident, OpenLLMetry},
	{"ai.response.model", ResponseModel, Ident, Vercel},

	{"gen_ai.request.id", RequestID, Ident, EngineShape},
	{"rid", RequestID, Ident, SGLang},
	{"request_id", RequestID, Ident, Dynamo},
	{"x_request_id", RequestID, Ident, Dynamo},
	{"triton.request_id", RequestID, Ident, Vendor},
	{"gen_ai.response.id", ResponseID, Ident, Standard},
	{"llm.response.id", ResponseID, Ident, OpenLLMetry},
	{"ai.response.id", ResponseID, Ident, Vercel},

	{"gen_ai.response.finish_reasons", FinishReason, Ident, Standard},
	{"gen_ai.response.finish_reason", FinishReason, Ident, Loose},
	{"llm.response.finish_reason", FinishReason, Ident, OpenLLMetry},
	{"llm.response.stop_reason", FinishReason, Ident, OpenLLMetry},
	{"gen_ai.completion.0.finish_reason", FinishReason, Ident, OpenLLMetry},
	{"ai.response.finishReason", FinishReason, Ident, Vercel},
	{"error.type", ErrorType, Ident, Standard},
	{"exception.type", ErrorType, Ident, Standard},

	{"gen_ai.usage.input_tokens", InputTokens, Count, Standard},
	{"gen_ai.usage.prompt_tokens", InputTokens, Count, Old},
	{"llm.usage.prompt_tokens", InputTokens, Count, OpenLLMetry},
	{"llm.usage.input_tokens", InputTokens, Count, OpenLLMetry},
	{"llm.token_count.prompt", InputTokens, Count, OpenInference},
	{"ai.usage.promptTokens", InputTokens, Count, Vercel},
	{"ai.usage.inputTokens", InputTokens, Count, Vercel},
	{"input_tokens", InputTokens, Count, Dynamo},

	{"gen_ai.usage.output_tokens", OutputTokens, Count, Standard},
	{"gen_ai.usage.completion_tokens", OutputTokens, Count, Old},
	{"llm.usage.completion_tokens", OutputTokens, Count, OpenLLMetry},
	{"llm.usage.output_tokens", OutputTokens, Count, OpenLLMetry},
	{"llm.token_count.completion", OutputTokens, Count, OpenInference},
	{"ai.usage.completionTokens", OutputTokens, Count, Vercel},
	{"ai.usage.outputTokens", OutputTokens, Count, Vercel},
	{"output_tokens", OutputTokens, Count, Dynamo},

	{"gen_ai.usage.total_tokens", TotalTokens, Count, Loose},
	{"llm.usage.total_tokens", TotalTokens, Count, OpenLLMetry},
	{"llm.token_count.total", TotalTokens, Count, OpenInference},
	{"ai.usage.totalTokens", TotalTokens, Count, Vercel},

	{"gen_ai.usage.cache_read.input_tokens", CacheRead, Count, V140},
	{"gen_ai.usage.cache_read_input_tokens", CacheRead, Count, Loose},
	{"gen_ai.usage.cached_tokens", CacheRead, Count, SGLang},
	{"gen_ai.usage.input_tokens.cached", CacheRead, Count, Loose},
	{"gen_ai.usage.prompt_tokens_details.cached_tokens", CacheRead, Count, Loose},
	{"llm.usage.cache_read_input_tokens", CacheRead, Count, OpenLLMetry},
	{"llm.token_count.prompt_details.cache_read", CacheRead, Count, OpenInference},
	{"ai.usage.cachedInputTokens", CacheRead, Count, Vercel},
	{"gen_ai.usage.cache_write.input_tokens", CacheWrite, Count, Next},
	{"gen_ai.usage.cache_creation.input_tokens", CacheWrite, Count, V140},
	{"gen_ai.usage.cache_creation_input_tokens", CacheWrite, Count, Loose},
	{"llm.usage.cache_creation_input_tokens", CacheWrite, Count, OpenLLMetry},
	{"llm.token_count.prompt_details.cache_write", CacheWrite, Count, OpenInference},
	{"gen_ai.usage.reasoning.output_tokens", ReasoningTokens, Count, V140},
	{"gen_ai.usage.reasoning_tokens", ReasoningTokens, Count, Loose},
	{"gen_ai.usage.output_tokens.reasoning", ReasoningTokens, Count, Loose},
	{"llm.usage.reasoning_tokens", ReasoningTokens, Count, OpenLLMetry},
	{"llm.token_count.completion_details.reasoning", ReasoningTokens, Count, OpenInference},
	{"ai.usage.reasoningTokens", ReasoningTokens, Count, Vercel},

	{"gen_ai.request.max_tokens", MaxTokens, Count, Standard},
	{"llm.request.max_tokens", MaxTokens, Count, OpenLLMetry},
	{"gen_ai.request.choice.count", Choices, Count, Standard},
	{"gen_ai.request.n", Choices, Count, EngineShape},
	{"gen_ai.request.stream", Stream, Flag, Standard},
	{"gen_ai.is_streaming", Stream, Flag, OpenLLMetry},
	{"llm.is_streaming", Stream, Flag, OpenLLMetry},

	{"gen_ai.latency.time_to_first_token", FirstToken, Seconds, EngineShape},
	{"gen_ai.server.time_to_first_token", FirstToken, Seconds, Loose},
	{"ttft_ms", FirstToken, Millis, Vendor},
	{"gen_ai.response.time_to_first_chunk", FirstChunk, Seconds, Next},
	{"ai.response.msToFirstChunk", FirstChunk, Millis, Vercel},
	{"gen_ai.latency.e2e", E2E, Seconds, EngineShape},
	{"total_time", E2E, Seconds, TGI},
	{"gen_ai.latency.time_in_queue", QueueTime, Seconds, EngineShape},
	{"queue_time", QueueTime, Seconds, TGI},
	{"gen_ai.latency.time_in_model_prefill", PrefillTime, Seconds, EngineShape},
	{"gen_ai.latency.time_in_model_decode", DecodeTime, Seconds, EngineShape},
	{"gen_ai.latency.time_in_model_inference", InferenceTime, Seconds, EngineShape},
	{"inference_time", InferenceTime, Seconds, TGI},
	{"gen_ai.latency.kv_cache_transfer_time", TransferTime, Seconds, EngineShape},

	{"http.request.method", HTTPMethod, Ident, Web},
	{"http.method", HTTPMethod, Ident, Web},
	{"http.response.status_code", HTTPStatus, Count, Web},
	{"http.status_code", HTTPStatus, Count, Web},
	{"asgi.event.type", ASGIEvent, Ident, Web},

	{"module", Module, Ident, SGLang},
	{"thread_label", ThreadLabel, Ident, SGLang},
	{"host_id", HostID, Ident, SGLang},
	{"pid", PID, Count, SGLang},
	{"tp_rank", TPRank, Count, SGLang},
	{"pp_rank", PPRank, Count, SGLang},
	{"dp_rank", DPRank, Count, SGLang},
}

var byKey = func() map[string]*Name {
	m := make(map[string]*Name, len(names))
	for i := range names {
		m[names[i].Key] = &names[i]
	}
	return m
}()

// Named is the entry of a key, nil for a key that is not kept.
func Named[K string | []byte](key K) *Name { return byKey[string(key)] }

// Names lists every spelling that is understood.
func Names() []Name { return append([]Name(nil), names...) }

var (
	errNumber = errors.New("not a usable number")
	errText   = errors.New("not a short identifier")
)

// SetInt, SetFloat, SetText and SetBool keep an attribute. They fail where the value cannot be what the name stands for; then the field stays
// unknown. A number may come as text.
func (s *Span) SetInt(n *Name, v int64) error {
	switch n.Unit {
	case Count:
		if v < 0 {
			return errNumber
		}
		s.set(n, v, "")
	case Seconds, Millis:
		return s.SetFloat(n, float64(v))
	case Flag:
		return s.SetBool(n, v != 0)
	default:
		s.set(n, 0, strconv.FormatInt(v, 10))
	}
	return nil
}

// SetFloat is SetInt for a floating-point number.
func (s *Span) SetFloat(n *Name, v float64) error {
	switch n.Unit {
	case Seconds:
		v *= 1e9
	case Millis:
		v *= 1e6
	case Count:
		if v != math.Trunc(v) {
			return errNumber
		}
	default:
		return errNumber
	}
	if !(v >= 0 && v < 1<<62) { // NaN too
		return errNumber
	}
	s.set(n, int64(math.Round(v)), "")
	return nil
}

// SetBool is SetInt for a truth value.
func (s *Span) SetBool(n *Name, v bool) error {
	if n.Unit != Flag {
		return errNumber
	}
	k := int64(0)
	if v {
		k = 1
	}
	s.set(n, k, "")
	return nil
}

// SetText is SetInt for text.
func (s *Span) SetText(n *Name, v string) error {
	if n.Field == FinishReason {
		v = oneReason(v)
	}
	switch n.Unit {
	case Ident:
		if !Identifier(v) {
			return errText
		}
		s.set(n, 0, v)
		return nil
	case Flag:
		b, err := strconv.ParseBool(v)
		if err != nil {
			return errNumber
		}
		return s.SetBool(n, b)
	}
	if len(v) > 40 {
		return errNumber
	}
	v = strings.TrimSpace(v)
	if k, err := strconv.ParseInt(v, 10, 64); err == nil {
		return s.SetInt(n, k)
	}
	if f, err := strconv.ParseFloat(v, 64); err == nil {
		return s.SetFloat(n, f)
	}
	if n.Unit == Seconds || n.Unit == Millis {
		if d, err := time.ParseDuration(v); err == nil && d >= 0 { // "456.7ms": the Debug form of Rust and others
			s.set(n, int64(d), "")
			return nil
		}
	}
	return errNumber
}

func (s *Span) set(n *Name, number int64, text string) {
	s.Attrs = append(s.Attrs, Attr{n, number, text, n.Field})
	s.has |= 1 << n.Field
}

// oneReason is the reason in a JSON list that came as text: ["stop"].
func oneReason(v string) string {
	if len(v) <= MaxText && strings.HasPrefix(v, "[") {
		v, _, _ = strings.Cut(strings.Trim(v, "[] "), ",")
		v = strings.Trim(strings.TrimSpace(v), `"'`)
	}
	return v
}
