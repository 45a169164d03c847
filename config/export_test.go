package config

import (
	"strings"
	"testing"
)

func TestExportRules(t *testing.T) {
	for setting, want := range map[string]string{"WHYLATE_EXPORT_SPANS_PER_SECOND=7": "export.spans_per_second", "WHYLATE_EXPORT_TLS_CA=/ca.pem": "export.tls.ca"} {
		_, err := Load(Input{Environ: []string{"HOME=/home/x", "WHYLATE_EXPORT_ENDPOINT=http://localhost:4318", setting}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", setting, err)
		}
	}
	if _, err := Load(Input{Environ: []string{"HOME=/home/x", "WHYLATE_EXPORT_ENDPOINT=grpcs://otel.example:4317", "WHYLATE_EXPORT_SPANS_PER_SECOND=0", "WHYLATE_EXPORT_TLS_CA=/ca.pem"}}); err != nil {
		t.Error(err)
	}
}

func TestReceiver(t *testing.T) {
	for _, good := range []string{"", "http://localhost:4318", "https://otel.example/v1/traces", "grpc://[::1]:4317", "grpcs://otel.example:4317"} {
		if got, err := parseReceiver(good); err != nil || got != good {
			t.Errorf("%q: %v, %v", good, got, err)
		}
	}
	for bad, want := range map[string]string{"localhost:4317": "is not where a receiver is", "4317": "is not where a receiver is", "ftp://x": "has another scheme, or a path where gRPC has none",
		"grpc://x:1/v1/traces": "has another scheme, or a path where gRPC has none", "https://u:p@x": "holds a secret: put an authorization header into export.headers_file", "http://x?a=b": "has a query or a fragment"} {
		if _, err := parseReceiver(bad); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", bad, err, want)
		}
	}
}
