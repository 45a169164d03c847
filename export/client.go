package export

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Target says where to and how.
type Target struct {
	// Endpoint is http://host:4318 or https://… (OTLP/HTTP, /v1/traces unless a path is given), grpc://host:4317 or grpcs://… (OTLP/gRPC).
	Endpoint    string
	Headers     map[string]string
	TLS         *tls.Config   // of https and grpcs; nil trusts the system's authorities
	Compression string        // "gzip" or "none"
	Timeout     time.Duration // of one batch, retries included; 0 = 10 s
	// Setting is what a person calls a setting of this struct: "export.endpoint", or "--to". Nil gives the former.
	Setting func(name string) string
}

// Names of settings for [Target.Setting].
const (
	SettingEndpoint    = "endpoint"
	SettingHeaders     = "headers_file"
	SettingCA          = "tls.ca"
	SettingCert        = "tls.cert"
	SettingName        = "tls.name"
	SettingCompression = "compression"
	SettingTimeout     = "timeout"
)

func (t *Target) setting(name string) string {
	if t.Setting == nil {
		return "export." + name
	}
	return t.Setting(name)
}

// Client sends spans; retries, backoff, compression and partial success are OpenTelemetry's own.
type Client struct {
	target Target
	client otlptrace.Client
}

// Dial makes a client. It does not connect yet: a receiver that is down is found out by sending.
func Dial(ctx context.Context, t Target) (*Client, error) {
	if t.Timeout == 0 {
		t.Timeout = 10 * time.Second
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%s %q: give http://host:4318, https://…, grpc://host:4317 or grpcs://…", t.setting(SettingEndpoint), t.Endpoint)
	}
	c := &Client{target: t}
	switch u.Scheme {
	case "http", "https":
		c.client = otlptracehttp.NewClient(t.http(u)...)
	case "grpc", "grpcs":
		c.client = otlptracegrpc.NewClient(t.grpc(u)...)
	default:
		return nil, fmt.Errorf("%s %q: %q is none of http, https, grpc and grpcs", t.setting(SettingEndpoint), t.Endpoint, u.Scheme)
	}
	if err := c.client.Start(ctx); err != nil {
		return nil, c.explain(err)
	}
	return c, nil
}

func (t *Target) http(u *url.URL) []otlptracehttp.Option {
	path := u.Path
	if path == "" || path == "/" {
		path = "/v1/traces"
	}
	opts := []otlptracehttp.Option{otlptracehttp.WithEndpoint(u.Host), otlptracehttp.WithURLPath(path), otlptracehttp.WithHeaders(t.headers()),
		otlptracehttp.WithTimeout(t.Timeout), otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: firstRetry, MaxInterval: t.Timeout, MaxElapsedTime: t.Timeout})}
	if t.Compression == "gzip" {
		opts = append(opts, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	}
	if u.Scheme == "http" {
		return append(opts, otlptracehttp.WithInsecure())
	}
	return append(opts, otlptracehttp.WithTLSClientConfig(t.tls()))
}

// firstRetry is how long is waited before a batch is sent a second time; then longer and longer.
const firstRetry = 500 * time.Millisecond

func (t *Target) grpc(u *url.URL) []otlptracegrpc.Option {
	opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(u.Host), otlptracegrpc.WithHeaders(t.headers()), otlptracegrpc.WithTimeout(t.Timeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: firstRetry, MaxInterval: t.Timeout, MaxElapsedTime: t.Timeout})}
	if t.Compression == "gzip" {
		opts = append(opts, otlptracegrpc.WithCompressor("gzip"))
	}
	if u.Scheme == "grpc" {
		return append(opts, otlptracegrpc.WithInsecure())
	}
	return append(opts, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(t.tls())))
}

func (t *Target) headers() map[string]string {
	if t.Headers == nil {
		return map[string]string{} // none, and not those of an environment variable
	}
	return t.Headers
}

func (t *Target) tls() *tls.Config {
	if t.TLS == nil {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return t.TLS
}

// Send sends spans. An error says what to change.
func (c *Client) Send(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, c.target.Timeout)
	defer cancel()
	return c.explain(c.client.UploadTraces(ctx, spans))
}

// Close lets go of the connections.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.client.Stop(ctx)
}

// explain says of an error which setting to change.
func (c *Client) explain(err error) error {
	if err == nil {
		return nil
	}
	t := &c.target
	text, code := err.Error(), status.Code(err)
	says := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(text, w) {
				return true
			}
		}
		return false
	}
	remedy := ""
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case rejected.MatchString(text):
		return fmt.Errorf("%s: %w", t.Endpoint, err)
	case says("401 Unauthorized", "403 Forbidden") || code == codes.Unauthenticated || code == codes.PermissionDenied:
		remedy = "it wants credentials: put its header, such as 'authorization: Bearer …', into the file of " + t.setting(SettingHeaders)
	case errors.As(err, &name) || says("certificate is valid for", "not valid for any names"):
		remedy = "its certificate is for another name: set " + t.setting(SettingName) + ", or use that name in " + t.setting(SettingEndpoint)
	case errors.As(err, &unknown) || says("unknown authority", "certificate signed by"):
		remedy = "its certificate is not trusted: put its authority's certificate into the file of " + t.setting(SettingCA)
	case says("certificate required", "bad certificate"):
		remedy = "it wants a certificate of this side: set " + t.setting(SettingCert)
	case says("first record does not look like a TLS handshake", "server gave HTTP response to HTTPS client", "malformed HTTP response", "authentication handshake failed", "error reading server preface", "HTTP/1.x transport"):
		remedy = "one side speaks TLS or gRPC and the other does not: check scheme and port of " + t.setting(SettingEndpoint)
	case says("404 Not Found", "405 Method") || code == codes.Unimplemented:
		remedy = "nothing takes traces there: check port, path and scheme of " + t.setting(SettingEndpoint)
	case says("no such host", "connection refused", "network is unreachable", "name resolver", "no route to host"):
		remedy = "nobody answers there: check " + t.setting(SettingEndpoint)
	case code == codes.ResourceExhausted || says("413 ", "429 "):
		remedy = "it takes less than is sent: lower export.spans_per_second or export.sample_one_in"
	case says("415 ", "Decompressor is not installed"):
		remedy = "it does not know the compression: set " + t.setting(SettingCompression) + " to none"
	case errors.Is(err, context.DeadlineExceeded) || code == codes.DeadlineExceeded || says("Client.Timeout", "max retry time elapsed", "context deadline exceeded"):
		remedy = "it did not answer in " + t.Timeout.String() + ": raise " + t.setting(SettingTimeout) + ", or check " + t.setting(SettingEndpoint)
	}
	if remedy == "" {
		return fmt.Errorf("%s: %w", t.Endpoint, err)
	}
	return fmt.Errorf("%s: %w; %s", t.Endpoint, err, remedy)
}

// ReadHeaders reads a file of headers, "name: value" a line; empty lines and those that begin with # are passed over. No file is no headers.
func ReadHeaders(path string) (map[string]string, error) {
	if path == "" {
		return nil, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	headers := map[string]string{}
	for i, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || name == "" || strings.ContainsAny(name, " \t\"") {
			return nil, fmt.Errorf("%s line %d: write 'name: value'", path, i+1) // the line may hold a secret
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

// Lines is a client that writes OTLP/JSON, one request a line, as the OpenTelemetry Collector's file exporter does and 'whylate look' reads.
func Lines(ctx context.Context, w io.Writer) (*Client, error) {
	c := &Client{target: Target{Endpoint: "file", Timeout: time.Minute}, client: otlptracehttp.NewClient(otlptracehttp.WithEndpoint("file"), otlptracehttp.WithInsecure(), otlptracehttp.WithHeaders(map[string]string{}),
		otlptracehttp.WithEncoding(otlptracehttp.EncodingJSON), otlptracehttp.WithCompression(otlptracehttp.NoCompression),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}), otlptracehttp.WithHTTPClient(&http.Client{Transport: lines{w}}))}
	return c, c.client.Start(ctx)
}

// lines writes the bodies of requests as lines: the JSON form is the exporter's own.
type lines struct{ w io.Writer }

// RoundTrip implements [http.RoundTripper].
func (l lines) RoundTrip(r *http.Request) (*http.Response, error) {
	defer r.Body.Close()
	if _, err := io.Copy(l.w, r.Body); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(l.w, "\n"); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
