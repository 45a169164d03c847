package genai

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// Class is a kind of key that is not kept. Attributes are counted by class; a key itself may hold personal data (gen_ai.prompt.variable.<key>).
type Class uint8

// Classes.
const (
	OtherKey   Class = iota
	ContentKey       // prompts, answers, tool calls, retrieved texts: measured, never kept
	PersonKey        // users, sessions, conversations, addresses
	SettingKey       // settings of the request that no account needs: temperature and others
	Classes          // how many there are
)

func (c Class) String() string {
	return [...]string{"other", "content", "personal", "setting", "?"}[min(c, Classes)]
}

// contentKeys are keys, or beginnings of keys (with a dot at the end), of content: a closed list, conventions old and new.
var contentKeys = []string{
	"gen_ai.system_instructions", "gen_ai.input.", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "gen_ai.tool.call.arguments", "gen_ai.tool.call.result",
	"gen_ai.tool.definitions", "gen_ai.tool.description", "gen_ai.tool.message", "gen_ai.tool.input", "gen_ai.tool.output", "gen_ai.retrieval.query", "gen_ai.retrieval.documents",
	"gen_ai.memory.query", "gen_ai.memory.records", "gen_ai.evaluation.explanation", "gen_ai.event.content", "gen_ai.content", "gen_ai.request.messages", "gen_ai.request.stop_sequences",
	"gen_ai.request.available_tools", "gen_ai.response.text", "gen_ai.response.tool_calls", "gen_ai.response.object", "gen_ai.user.", "gen_ai.assistant.", "gen_ai.choice", "gen_ai.system.",
	"llm.prompts", "llm.prompt", "llm.completions", "llm.input_messages", "llm.output_messages", "llm.tools", "llm.invocation_parameters", "llm.request.functions", "llm.content",
	"llm.function_call", "message.", "input.", "output.", "tool.", "retrieval.", "document.", "embedding.", "reranker.", "traceloop.entity.",
	"ai.prompt", "ai.response.text", "ai.response.toolCalls", "ai.response.object", "ai.response.reasoning", "ai.toolCall.", "ai.value", "ai.values", "ai.embedding", "ai.settings.",
	"exception.message", "exception.stacktrace", "http.request.body", "http.response.body", "db.statement", "db.query.text", "request_payload",
	"events", "all_messages", "final_result", "tool_arguments", "tool_response", "request_data", "response_data", "prompt", "completion", "messages",
}

var personKeys = []string{"http.target", "http.url", "url.", "user.", "user_", "user", "enduser.", "session.", "session", "client.address", "net.peer.", "net.sock.", "network.peer.", "http.client_ip", "http.request.header.",
	"http.response.header.", "http.user_agent", "user_agent.", "metadata", "tag.tags", "ai.telemetry.", "langfuse.", "gen_ai.conversation.", "source.", "baggage."}

var settingKeys = []string{"gen_ai.request.", "llm.request.", "openai.request.", "llm."}

// ClassOf is the class of a key that the table of names does not have.
func ClassOf(key string) Class {
	for _, c := range contentKeys {
		if matches(key, c) {
			return ContentKey
		}
	}
	for _, c := range personKeys {
		if matches(key, c) {
			return PersonKey
		}
	}
	for _, c := range settingKeys {
		if strings.HasPrefix(key, c) {
			return SettingKey
		}
	}
	return OtherKey
}

func matches(key, known string) bool {
	rest, ok := strings.CutPrefix(key, known)
	return ok && (rest == "" || rest[0] == '.' || strings.HasSuffix(known, "."))
}

// MaxText is how long a kept text may be, in bytes.
const MaxText = 128

// Identifier reports that a text is short and made as identifiers, model names and enumerations are made, and is neither a mail address nor a
// phone number nor what looks like a secret.
func Identifier(s string) bool {
	if s == "" || len(s) > MaxText {
		return false
	}
	at, plus := false, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.', c == '/', c == ':', c == '|', c == ',', c == '=', c == '#':
		case c == '@':
			at = true
		case c == '+':
			plus = true
		default:
			return false
		}
	}
	return !(at && mail.MatchString(s)) && !(plus && phone.MatchString(s)) && !secretive(s)
}

// maxWords is how many words a span's name may have; more are a sentence of somebody.
const maxWords = 12

// Label is a span's name made safe: what stands in it that looks private is struck out, it is cut at a length, and a sentence is no name.
func Label(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText]
	}
	if strings.Count(s, " ") >= maxWords {
		return "[a sentence]"
	}
	plain := true
	for i := 0; i < len(s); i++ {
		c := s[i]
		plain = plain && c >= ' ' && c < 0x7f && c != '@' && c != '+' && c != '?' && c != '='
	}
	if !plain {
		s = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f || r == 0xfffd {
				return '_'
			}
			return r
		}, strings.ToValidUTF8(s, "_"))
		s, _, _ = strings.Cut(s, "?") // a path's query
		s = mail.ReplaceAllString(s, "[mail]")
	}
	if secretive(s) {
		s = secret.ReplaceAllString(s, "[secret]")
	}
	if longDigits(s) {
		s = phone.ReplaceAllString(s, "[number]")
	}
	return s
}

var (
	mail   = regexp.MustCompile(`[^\s@]+@[^\s@]+\.[A-Za-z]{2,}`)
	phone  = regexp.MustCompile(`\+\d[\d ()/-]{6,}\d|\b\d{3,4}[ -]\d{3,4}[ -]\d{3,4}\b`)
	secret = regexp.MustCompile(`(?i)(sk-|pk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|AIza|hf_|eyJ)[A-Za-z0-9_-]{12,}[A-Za-z0-9_.-]*|[\w-]*secret[\w-]*`)
)

// secretive is a cheap test before the expression.
func secretive(s string) bool {
	if len(s) < 6 {
		return false
	}
	for _, p := range []string{"sk-", "pk-", "gh", "glpat", "xox", "AKIA", "AIza", "hf_", "eyJ", "ecret", "ECRET"} {
		if strings.Contains(s, p) {
			return secret.MatchString(s)
		}
	}
	return false
}

func longDigits(s string) bool {
	n := 0
	for i := 0; i < len(s); i++ {
		if '0' <= s[i] && s[i] <= '9' {
			if n++; n >= 8 {
				return true
			}
		}
	}
	return false
}

// Measure adds a content attribute: its size, and whose messages it held where that can be read. limit is the size above which it is not
// looked into.
func (c *Content) Measure(key, value []byte, limit int) {
	c.Attributes++
	c.Bytes += int64(len(value))
	switch {
	case len(value) > limit:
		c.Oversized++
	case bytes.HasSuffix(key, []byte(".role")) && len(value) < 24:
		c.Roles.count(string(value))
	case len(value) > 0 && (value[0] == '[' || value[0] == '{'):
		var messages []struct {
			Role message `json:"role"`
		}
		if json.Unmarshal(value, &messages) == nil {
			for _, m := range messages {
				c.Roles.count(string(m.Role))
			}
		} else if !json.Valid(value) {
			c.Truncated++
		}
	}
}

// message takes a role that is text, and nothing else; what else stands there is no error.
type message string

func (m *message) UnmarshalJSON(b []byte) error {
	if len(b) < 24 && len(b) > 1 && b[0] == '"' {
		*m = message(b[1 : len(b)-1])
	}
	return nil
}

// Role counts one message of a role that came by itself.
func (c *Content) Role(role string) { c.Roles.count(role) }

func (r *Roles) count(role string) {
	switch strings.ToLower(role) {
	case "":
	case "system", "developer":
		r.System++
	case "user", "human":
		r.User++
	case "assistant", "ai", "model":
		r.Assistant++
	case "tool", "function":
		r.Tool++
	default:
		r.Other++
	}
}
