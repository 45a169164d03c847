package metrics

import (
	"strings"
	"testing"
)

func TestUnfit(t *testing.T) {
	for value, why := range map[string]string{
		"stop": "", "2xx": "", "/v1/chat/completions": "", "/api/v1/openapi.json": "", "/api/v1/requests/{id}": "", "/prometheus/": "", "none": "", "0.32.0": "", "fp8_e4m3": "", "length": "",
		"NVIDIA H100 80GB HBM3": "", "TimeoutError": "", "AWQ-int4": "", "kv_cache_dtype=fp8": "", "535.129.03": "", "gpt-4o-2024-11-20": "", "Qwen/Qwen2.5-0.5B-Instruct": "",
		"/wp-login.php": "a path of no API", "/v1/../etc/passwd": "a path of no API", "/v1/files/9f86d081884c7d65": "an id", "/v1/users/12345678": "an id",
		"3f2504e0-4f89-11d3-9a0c-0305e82c3301": "an id", "3f2504e04f8911d39a0c0305e82c3301": "an id", "chatcmpl-9f86d081884c7d65": "an id", "req_011CSHoEeqs5C35K2UUqR7Fy": "an id", "1732900000": "an id",
		"alice@example.com": "an e-mail address", "https://u:p@host/x": "a URL with arguments", "/v1/models?key=1": "a URL with arguments", "sk-proj-abcdefgh": "a secret",
		"eyJhbGciOiJIUzI1NiJ9.e30": "a secret", "Bearer abcdefgh": "a secret", "tell me a joke, please": "text", "a\nb": "text", strings.Repeat("a", 300): "text", "\xff": "not UTF-8",
	} {
		if got := unfit(ordinary, value); got != why {
			t.Errorf("%q: %q, want %q", value, got, why)
		}
	}
	for _, value := range []string{"GPU-1f0c9f64-7f0a-4a5e-9d53-4c2f7a1b9e10", "vllm-7d9f8b6c5d-x2v4k", "10.0.0.1:8000", "00000000:1B:00.0", "serving/vllm-0", "/data"} {
		if why := unfit(identity, value); why != "" {
			t.Errorf("%q identifies what is measured, and is %q", value, why)
		}
	}
	if unfit(identity, "alice@example.com") == "" || unfit(unknown, "a") == "" {
		t.Error("content, or a label that nobody knows, got in")
	}
}

func TestShapeShowsNothing(t *testing.T) {
	for value, want := range map[string]string{"alice@example.com": "a@a.a", "3f2504e0-4f89": "9a9a9-9a9", "": "", "Hi, Bob!": "a, a!", "日本\x00": "a."} {
		if got := shape(value); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
}

// No label is on two lists with different trust, and none that names a user, a key or a request is on one.
func TestLists(t *testing.T) {
	seen := map[string]bool{}
	for _, n := range strings.Fields(identities + settings + ordinaries) {
		if seen[n] {
			t.Errorf("%s is listed twice", n)
		}
		seen[n] = true
	}
	for _, n := range []string{"user", "end_user", "user_id", "hashed_api_key", "api_key_alias", "request_id", "trace_id", "session_id", "prompt", "url", "email", "ip", "client_ip"} {
		if known[n] != unknown && known[n] != length { // a class of lengths is no text
			t.Errorf("%s is on the list", n)
		}
	}
}
