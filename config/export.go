package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Export says where finished requests go as OTLP spans, and which. Without Endpoint none does.
type Export struct {
	Endpoint       string
	HeadersFile    string
	TLS            ExportTLS
	Compression    string // gzip or none
	Timeout        time.Duration
	SampleOneIn    int           // 0 = none for its own sake
	TailTTFT       time.Duration // 0 = nobody is late for that
	TailE2E        time.Duration // 0 = nobody is late for that
	SpansPerSecond int           // 0 = no limit
	QueueSpans     int
	IDs            bool
}

// ExportTLS is how spans are sent where Export.Endpoint says TLS.
type ExportTLS struct {
	CA        string // "" trusts the system's
	Cert, Key string // this side's own certificate, where the receiver asks for one
	Name      string // of the receiver in its certificate; "" expects the host of Export.Endpoint
}

var receiver = kind{name: "receiver", allowed: "http://host:4318, https://host, grpc://host:4317 or grpcs://host:4317", format: asText,
	parse: func(s string, _ place) (any, error) { return parseReceiver(s) }}

// parseReceiver reads where an OTLP receiver is; empty is none. What stands before an @ would be logged, so there may be none.
func parseReceiver(s string) (any, error) {
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, errors.New("is not where a receiver is")
	case u.User != nil:
		return nil, errors.New("holds a secret: put an authorization header into export.headers_file")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("has a query or a fragment")
	case u.Scheme == "http" || u.Scheme == "https":
		return s, nil
	case (u.Scheme == "grpc" || u.Scheme == "grpcs") && strings.Trim(u.Path, "/") == "":
		return s, nil
	}
	return nil, errors.New("has another scheme, or a path where gRPC has none")
}

var exportKeys = []Key{
	{Name: "export.endpoint", kind: receiver, For: Server, field: func(c *Config) any { return &c.Export.Endpoint },
		Doc: "OTLP receiver that requests are sent to as spans when they have ended: `http://` and `https://` are OTLP/HTTP (path `/v1/traces` where none is given), `grpc://` and `grpcs://` OTLP/gRPC. Empty: none."},
	{Name: "export.headers_file", kind: secretPath, For: Server, field: func(c *Config) any { return &c.Export.HeadersFile },
		Doc: "File with headers for the receiver, such as `authorization: Bearer …`, one a line. Read at the start. Empty: none."},
	{Name: "export.tls.ca", kind: path, For: Server, field: func(c *Config) any { return &c.Export.TLS.CA },
		Doc: "PEM file with the authorities that may have signed the receiver's certificate. Read at the start. Empty: those of the system."},
	{Name: "export.tls.cert", kind: path, For: Server, field: func(c *Config) any { return &c.Export.TLS.Cert },
		Doc: "PEM file with this side's certificate, for a receiver that asks for one. Read at the start."},
	{Name: "export.tls.key", kind: secretPath, For: Server, field: func(c *Config) any { return &c.Export.TLS.Key },
		Doc: "PEM file with the private key of `export.tls.cert`."},
	{Name: "export.tls.name", kind: text, For: Server, field: func(c *Config) any { return &c.Export.TLS.Name },
		Doc: "The name that the receiver's certificate must carry. Empty: the host of `export.endpoint`."},
	{Name: "export.compression", kind: word, Default: "gzip", OneOf: []string{"gzip", "none"}, For: Server, field: func(c *Config) any { return &c.Export.Compression },
		Doc: "How what is sent is compressed."},
	{Name: "export.timeout", kind: duration, Default: "10s", Least: "100ms", Most: "5m", For: Server, field: func(c *Config) any { return &c.Export.Timeout },
		Doc: "How long sending one batch may take, retries included. Then it is dropped and counted."},
	{Name: "export.sample_one_in", kind: count, Default: "100", Least: "0", Most: "1000000000", For: Server, field: func(c *Config) any { return &c.Export.SampleOneIn },
		Doc: "One of how many requests leaves for its own sake: a share without bias, whose weight stands in the tracestate. 1 is all, 0 none. Failed and late requests leave besides."},
	{Name: "export.tail_ttft", kind: duration, Default: "5s", Least: "0s", For: Server, field: func(c *Config) any { return &c.Export.TailTTFT },
		Doc: "Every request leaves whose TTFT is longer. 0 switches it off."},
	{Name: "export.tail_e2e", kind: duration, Default: "1m", Least: "0s", For: Server, field: func(c *Config) any { return &c.Export.TailE2E },
		Doc: "Every request leaves that took longer. 0 switches it off."},
	{Name: "export.spans_per_second", kind: count, Default: "1000", Least: "0", Most: "1000000", For: Server, field: func(c *Config) any { return &c.Export.SpansPerSecond },
		Doc: "The most spans that are sent in a second, 100 at least. Above it the share becomes smaller, and the weights say so. 0 is no limit."},
	{Name: "export.queue_spans", kind: count, Default: "20000", Least: "100", Most: "10000000", For: Server, field: func(c *Config) any { return &c.Export.QueueSpans },
		Doc: "The most spans that wait for the receiver, about 1 kB each. More are dropped and counted."},
	{Name: "export.ids", kind: boolean, Default: "true", For: Server, field: func(c *Config) any { return &c.Export.IDs },
		Doc: "Whether spans carry the request's id, the response's id and the sentence of the first finding, which may name other requests. Ids that look like a person's or a secret never leave."},
}

// leastSpans is the lowest rate limit of spans: a request's own go together.
const leastSpans = 100

// exporting are the rules of the section.
func (r *ruling) exporting() {
	e := &r.c.Export
	r.both("export.tls.cert", "export.tls.key", e.TLS.Cert, e.TLS.Key)
	scheme, rest, _ := strings.Cut(e.Endpoint, "://")
	secure := scheme == "https" || scheme == "grpcs"
	for _, key := range []string{"export.tls.ca", "export.tls.cert", "export.tls.name"} {
		if get(find(key).field(r.c)) != "" && !secure {
			r.wrong(key, "has no effect: export.endpoint is "+e.Endpoint+", without TLS")
		}
	}
	if n := e.SpansPerSecond; n > 0 && n < leastSpans {
		r.wrong("export.spans_per_second", fmt.Sprintf("is less than %d: the spans of one request might not fit into it; 0 is no limit", leastSpans))
	}
	host, _, _ := strings.Cut(rest, "/")
	if e.Endpoint != "" && !secure && e.HeadersFile != "" && !Loopback(host) {
		r.add(Warning, "export.endpoint", "spans and the headers of export.headers_file go over the network in the clear", "write https:// or grpcs://")
	}
}
