package config

import (
	"net/url"
	"strings"
	"time"
)

// Metrics says how long time series are kept, how many there may be, and who answers PromQL.
type Metrics struct {
	Detail     time.Duration // how long series are kept as they came; [Forever] keeps them
	Rollup     time.Duration // how long signals are kept, a point a minute
	MaxBytes   int64         // of detail on disk; 0 = any
	OutOfOrder time.Duration
	Series     int // in memory, of each of the two
	SeriesEach int // of one metric that the registry of signals does not know
	Labels     []string
	Query      Query
	Remote     Remote
}

// Query bounds PromQL.
type Query struct {
	Timeout    time.Duration
	Samples    int
	Concurrent int
}

// Remote is a Prometheus, Mimir, Thanos or VictoriaMetrics that answers PromQL instead. Without URL there is none.
type Remote struct {
	URL          string // what stands before /api/v1
	TokenFile    string
	User         string
	PasswordFile string
	CA           string // "" trusts the system's
}

// metricsKeys are the settings of time series.
var metricsKeys = []Key{
	{Name: "metrics.retention.detail", kind: retention, Default: "7d", Least: "2h", For: Server, field: func(c *Config) any { return &c.Metrics.Detail },
		Doc: "How long time series are kept as their producers send them."},
	{Name: "metrics.retention.rollup", kind: retention, Default: "400d", Least: "2h", For: Server, field: func(c *Config) any { return &c.Metrics.Rollup },
		Doc: "How long registered signals are kept, a point a minute: a year and a month, so that the same week of last year can be compared."},
	{Name: "metrics.max_bytes", kind: size, Default: "20GiB", For: Server, field: func(c *Config) any { return &c.Metrics.MaxBytes },
		Doc: "How much `metrics.retention.detail` may take on disk, its log aside. Above it the oldest is dropped. 0 is any."},
	{Name: "metrics.out_of_order", kind: duration, Default: "10m", Least: "1m", Most: "24h", For: Server, field: func(c *Config) any { return &c.Metrics.OutOfOrder },
		Doc: "How much older than the newest sample of its series one may be, as it comes with OTLP and remote write. Longer: more memory."},
	{Name: "metrics.budget.series", kind: count, Default: "500000", Least: "1000", Most: "50000000", For: Server, field: func(c *Config) any { return &c.Metrics.Series },
		Doc: "How many series there may be in memory. A million takes 1 to 2 GB."},
	{Name: "metrics.budget.each", kind: count, Default: "1000", Least: "2", Most: "1000000", For: Server, field: func(c *Config) any { return &c.Metrics.SeriesEach },
		Doc: "How many series one metric may have that the registry of signals does not know; a histogram counts as one. What is more is folded into one."},
	{Name: "metrics.labels", kind: words, For: Server, field: func(c *Config) any { return &c.Metrics.Labels },
		Doc: "Names of labels whose values are kept, beside those that docs/metrics.md lists, with commas between. Values that look like an id, a text or a secret are not kept under any name."},
	{Name: "metrics.query.timeout", kind: duration, Default: "30s", Least: "1s", Most: "10m", For: Server, field: func(c *Config) any { return &c.Metrics.Query.Timeout },
		Doc: "How long one PromQL query may take."},
	{Name: "metrics.query.samples", kind: count, Default: "50000000", Least: "1000", For: Server, field: func(c *Config) any { return &c.Metrics.Query.Samples },
		Doc: "How many samples one query may hold in memory, 16 bytes each."},
	{Name: "metrics.query.concurrent", kind: count, Default: "8", Least: "1", Most: "1000", For: Server, field: func(c *Config) any { return &c.Metrics.Query.Concurrent },
		Doc: "How many queries run at once, or have a large answer that is still being taken. More wait."},
	{Name: "metrics.remote.url", kind: text, For: Server, field: func(c *Config) any { return &c.Metrics.Remote.URL },
		Doc: "Prometheus, Mimir, Thanos or VictoriaMetrics that answers `/prometheus/api/v1` instead of the own store: what stands before `/api/v1`, such as `https://mimir.example/prometheus`. Empty: the own store answers."},
	{Name: "metrics.remote.token_file", kind: secretPath, For: Server, field: func(c *Config) any { return &c.Metrics.Remote.TokenFile },
		Doc: "File with the bearer token for `metrics.remote.url`. Taken up within two seconds when it changes."},
	{Name: "metrics.remote.user", kind: text, For: Server, field: func(c *Config) any { return &c.Metrics.Remote.User },
		Doc: "User for `metrics.remote.url`, with `metrics.remote.password_file`."},
	{Name: "metrics.remote.password_file", kind: secretPath, For: Server, field: func(c *Config) any { return &c.Metrics.Remote.PasswordFile },
		Doc: "File with the password of `metrics.remote.user`. Taken up within two seconds when it changes."},
	{Name: "metrics.remote.ca", kind: path, For: Server, field: func(c *Config) any { return &c.Metrics.Remote.CA },
		Doc: "PEM file with the authorities that may have signed the certificate of `metrics.remote.url`. Taken up within two seconds when it changes. Empty: those of the system."},
}

// metricsRules are what must hold between the keys of time series.
func (r *ruling) metricsRules() {
	m := &r.c.Metrics
	r.both("metrics.remote.user", "metrics.remote.password_file", m.Remote.User, m.Remote.PasswordFile)
	if m.Remote.User != "" && m.Remote.TokenFile != "" {
		r.wrong("metrics.remote.token_file", "cannot be sent beside metrics.remote.user: give one of the two")
	}
	if m.Rollup < m.Detail {
		r.add(Warning, "metrics.retention.rollup", "is shorter than metrics.retention.detail: signals would go before what they are made of", "")
	}
	if m.Remote.URL == "" {
		for _, key := range []string{"metrics.remote.token_file", "metrics.remote.user", "metrics.remote.ca"} {
			if get(find(key).field(r.c)) != "" {
				r.wrong(key, "has no effect without metrics.remote.url")
			}
		}
		return
	}
	u, err := url.Parse(m.Remote.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		r.wrong("metrics.remote.url", "is no address such as https://mimir.example/prometheus")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		r.wrong("metrics.remote.url", "has a user, arguments or a fragment: no secret belongs in it; metrics.remote.user and metrics.remote.password_file name one")
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/api/v1"):
		r.wrong("metrics.remote.url", "ends in /api/v1: give what stands before it")
	case u.Scheme == "http" && !Loopback(withPort(u.Host)) && (m.Remote.TokenFile != "" || m.Remote.User != ""):
		r.add(Warning, "metrics.remote.url", "the token goes over the network in the clear", "write https://"+u.Host)
	}
}

func withPort(host string) string {
	if strings.Contains(host, ":") && !strings.HasSuffix(host, "]") {
		return host
	}
	return host + ":80"
}
