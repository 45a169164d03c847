package export

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configgrpc"
	"go.opentelemetry.io/collector/config/confighttp"
	"go.opentelemetry.io/collector/config/confignet"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configtls"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	otelreceiver "go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

// authority writes a certificate for 127.0.0.1 that signs itself, and its key.
func authority(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "receiver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, b := range map[string][]byte{cert: certPEM, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return cert, key, pool
}

// free is an address of this host that nothing listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }

// collect starts the OpenTelemetry Collector's own receiver, and returns where it takes gRPC and HTTP, and what it takes.
func collect(t *testing.T, cert, key string) (grpc, http string, taken <-chan ptrace.Traces) {
	t.Helper()
	out := make(chan ptrace.Traces, 100)
	next, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error { out <- td; return nil })
	if err != nil {
		t.Fatal(err)
	}
	grpc, http = free(t), free(t)
	f := otlpreceiver.NewFactory()
	cfg := f.CreateDefaultConfig().(*otlpreceiver.Config)
	g := configgrpc.NewDefaultServerConfig()
	g.NetAddr = confignet.AddrConfig{Endpoint: grpc, Transport: confignet.TransportTypeTCP}
	h := confighttp.NewDefaultServerConfig()
	h.NetAddr = confignet.AddrConfig{Endpoint: http, Transport: confignet.TransportTypeTCP}
	if cert != "" {
		side := configtls.ServerConfig{Config: configtls.Config{CertFile: cert, KeyFile: key}}
		g.TLS, h.TLS = configoptional.Some(side), configoptional.Some(side)
	}
	cfg.Protocols.GRPC = configoptional.Some(g)
	cfg.Protocols.HTTP = configoptional.Some(otlpreceiver.HTTPConfig{ServerConfig: h, TracesURLPath: "/v1/traces"})
	set := otelreceiver.Settings{ID: component.NewIDWithName(f.Type(), t.Name()), TelemetrySettings: component.TelemetrySettings{Logger: zap.NewNop(), TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()}}
	r, err := f.CreateTraces(t.Context(), set, cfg, next)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(context.Background(), host{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return grpc, http, out
}

// The Collector's own receiver takes what is sent, whole, by gRPC and HTTP, with and without TLS and compression.
func TestCollectorTakesIt(t *testing.T) {
	tr := one(t, two, "4bf92f3577b34da6a3ce929d0e0e4736")
	for _, secure := range []bool{false, true} {
		var cert, key string
		var pool *x509.CertPool
		if secure {
			cert, key, pool = authority(t)
		}
		grpc, http, taken := collect(t, cert, key)
		s := map[bool]string{true: "s"}[secure]
		for _, endpoint := range []string{"grpc" + s + "://" + grpc, "http" + s + "://" + http} {
			for _, compression := range []string{"gzip", "none"} {
				target := Target{Endpoint: endpoint, Compression: compression}
				if secure {
					target.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
				}
				c, err := Dial(t.Context(), target)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Send(t.Context(), Batch([]*Trace{tr})); err != nil {
					t.Fatalf("%s: %v", endpoint, err)
				}
				same(t, <-taken, tr)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if secure {
				c, err := Dial(t.Context(), Target{Endpoint: endpoint, Timeout: 3 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Send(t.Context(), Batch([]*Trace{tr})); err == nil || !strings.Contains(err.Error(), "export.tls.ca") {
					t.Errorf("%s without its authority: %v", endpoint, err)
				}
				c.Close()
			}
		}
	}
}

// same compares what a receiver took with what was sent.
func same(t *testing.T, got ptrace.Traces, want *Trace) {
	t.Helper()
	if got.SpanCount() != len(want.Spans) {
		t.Fatalf("%d spans, want %d", got.SpanCount(), len(want.Spans))
	}
	rs := got.ResourceSpans().At(0)
	if rs.SchemaUrl() != "https://opentelemetry.io/schemas/1.41.0" || rs.ScopeSpans().At(0).SchemaUrl() != rs.SchemaUrl() {
		t.Errorf("schema %q", rs.SchemaUrl())
	}
	for i, w := range want.Spans {
		g := rs.ScopeSpans().At(0).Spans().At(i)
		id := g.SpanID()
		if g.Name() != w.Name || string(id[:]) != string(w.SpanId) || uint64(g.StartTimestamp()) != w.StartTimeUnixNano || uint64(g.EndTimestamp()) != w.EndTimeUnixNano ||
			g.Attributes().Len() != len(w.Attributes) || g.Events().Len() != len(w.Events) || int(g.Kind()) != int(w.Kind) {
			t.Errorf("span %d is %s, want %s", i, g.Name(), w.Name)
		}
	}
}

// An error says which setting to change.
func TestErrorsNameTheSetting(t *testing.T) {
	tr := one(t, two, "4bf92f3577b34da6a3ce929d0e0e4736")
	status := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("authorization") == "Bearer right" {
			return
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	defer secure.Close()
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client has gone
		<-r.Context().Done()
	}))
	defer hang.Close()
	for _, c := range []struct {
		endpoint string
		status   int
		want     string
	}{
		{s.URL, 401, "export.headers_file"}, {s.URL, 403, "export.headers_file"}, {s.URL, 404, "port, path and scheme of export.endpoint"}, {s.URL, 415, "export.compression"},
		{s.URL, 413, "export.spans_per_second"}, {"https://" + s.Listener.Addr().String(), 200, "speaks TLS"}, {"grpc://" + s.Listener.Addr().String(), 200, "export.endpoint"},
		{secure.URL, 200, "export.tls.ca"}, {"http://" + free(t), 200, "nobody answers there: check export.endpoint"}, {"grpc://" + free(t), 200, "nobody answers there: check export.endpoint"},
		{hang.URL, 200, "export.timeout"},
	} {
		status = c.status
		client, err := Dial(t.Context(), Target{Endpoint: c.endpoint, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		err = client.Send(t.Context(), Batch([]*Trace{tr}))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.endpoint) {
			t.Errorf("%s with %d: %v, want %s", c.endpoint, c.status, err, c.want)
		}
		client.Close()
	}
	status = 401
	client, err := Dial(t.Context(), Target{Endpoint: s.URL, Headers: map[string]string{"authorization": "Bearer right"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Send(t.Context(), Batch([]*Trace{tr})); err != nil {
		t.Errorf("with its header: %v", err)
	}
	client.Close()
	for _, bad := range []string{"", "x", "localhost:4317", "ftp://x"} {
		if _, err := Dial(t.Context(), Target{Endpoint: bad, Setting: func(n string) string { return "--" + n }}); err == nil || !strings.Contains(err.Error(), "--endpoint") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestReadHeaders(t *testing.T) {
	path := filepath.Join(t.TempDir(), "h")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# for the receiver\n\nAuthorization: Bearer a:b\nx-scope: 1\r\n")
	h, err := ReadHeaders(path)
	if err != nil || fmt.Sprint(h) != "map[authorization:Bearer a:b x-scope:1]" {
		t.Errorf("%v %v", h, err)
	}
	write("hunter2\n")
	if _, err := ReadHeaders(path); err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "line 1") {
		t.Errorf("%v", err)
	}
}
