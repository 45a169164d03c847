package config

// OTLP says where OpenTelemetry's protocol is taken in, beside the paths /v1/traces, /v1/metrics and /v1/logs of [Listen].HTTP.
type OTLP struct {
	GRPC    string // host:port, or "" where it is switched off
	HTTP    string // the same
	Request int64  // bytes that one request may have
}

// otlpKeys are the settings of OTLP.
var otlpKeys = []Key{
	{Name: "otlp.grpc", kind: address, Default: "off", For: Server, field: func(c *Config) any { return &c.OTLP.GRPC },
		Doc: "Address that takes OTLP over gRPC: traces, metrics and logs. Usual is 127.0.0.1:4317; `off` listens on none. It has the server's TLS, and asks for a token of the role operator where `tokens_file` is set."},
	{Name: "otlp.http", kind: address, Default: "off", For: Server, field: func(c *Config) any { return &c.OTLP.HTTP },
		Doc: "Address that takes OTLP over HTTP and nothing else, beside `listen.http`, which takes it too. Usual is 127.0.0.1:4318; `off` listens on none. TLS and tokens are those of `otlp.grpc`."},
	{Name: "otlp.request_bytes", kind: size, Default: "64MiB", Least: "1KiB", Most: "1GiB", For: Server, field: func(c *Config) any { return &c.OTLP.Request },
		Doc: "The largest OTLP request, before and after decompression. A larger one is refused, and its sender told to send smaller batches."},
}

func (r *ruling) otlpRules() {
	addresses := []struct{ key, value string }{{"listen.http", r.c.Listen.HTTP}, {"listen.agents", r.c.Listen.Agents}, {"otlp.grpc", r.c.OTLP.GRPC}, {"otlp.http", r.c.OTLP.HTTP}}
	for i, a := range addresses[2:] {
		for _, b := range addresses[:i+2] {
			if same(a.value, b.value) {
				r.wrong(a.key, "is the address of "+b.key+"; each needs its own port")
			}
		}
		r.reachable(a.key, a.value, "tokens_file", "send telemetry")
	}
}
