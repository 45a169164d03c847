package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/promapi"
	"github.com/whylate/whylate/metrics/rollup"
	"github.com/whylate/whylate/web"
)

// timeSeries are the server's time series: where they are kept, and who answers PromQL.
type timeSeries struct {
	db    *metrics.DB
	log   *slog.Logger
	began time.Time
}

// openSeries opens the time series below the data directory and mounts PromQL.
func openSeries(c *config.Config, files *renew.Group, log *slog.Logger, opts *web.Options, targets func() []promapi.Target) (*timeSeries, error) {
	m := c.Metrics
	db, err := metrics.Open(metrics.Config{
		Dir: filepath.Join(c.DataDir, "metrics"), OutOfOrder: m.OutOfOrder, Log: log,
		Detail: metrics.Keep{For: unlimited(m.Detail), Bytes: m.MaxBytes}, Rollup: metrics.Keep{For: unlimited(m.Rollup)},
		Budget: metrics.Budget{Total: m.Series, Each: m.SeriesEach, Labels: m.Labels},
		Query:  metrics.Limits{Samples: m.Query.Samples, Timeout: m.Query.Timeout, Concurrent: m.Query.Concurrent},
	})
	if err != nil {
		return nil, err
	}
	opts.PromQL = promapi.New(db, promapi.Options{Version: Version, Started: time.Now(), Flags: metricFlags(c), Targets: targets})
	if m.Remote.URL != "" {
		if opts.PromQL, err = remoteSeries(m, files, log); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	opts.Gatherer = prometheus.Gatherers{opts.Gatherer, db.Gatherer()}
	return &timeSeries{db: db, log: log, began: time.Now()}, nil
}

// metricFlags are the settings of time series, as a client may ask for them.
func metricFlags(c *config.Config) map[string]string {
	flags := map[string]string{}
	for _, k := range config.Keys() {
		if strings.HasPrefix(k.Name, "metrics.") && !k.Secret() {
			e, _ := c.Explain(k.Name) // the key is there
			flags[k.Name] = e.Value
		}
	}
	return flags
}

func remoteSeries(m config.Metrics, files *renew.Group, log *slog.Logger) (http.Handler, error) {
	u, err := url.Parse(m.Remote.URL)
	if err != nil {
		return nil, fmt.Errorf("metrics.remote.url: %w", err)
	}
	to := promapi.Remote{URL: u, User: m.Remote.User, Timeout: m.Query.Timeout, Log: log}
	if m.Remote.TokenFile != "" {
		if to.Token, err = secretOf(files, "token of metrics.remote.url ", m.Remote.TokenFile); err != nil {
			return nil, err
		}
	}
	if m.Remote.PasswordFile != "" {
		if to.Secret, err = secretOf(files, "password of metrics.remote.url ", m.Remote.PasswordFile); err != nil {
			return nil, err
		}
	}
	if u.Scheme == "https" {
		if to.TLS, err = (renew.TLS{CA: m.Remote.CA}).Client(files, u.Hostname()); err != nil {
			return nil, err
		}
	}
	return promapi.Forward(to), nil
}

// secretOf is the secret in a file, as of now.
func secretOf(files *renew.Group, what, path string) (func() string, error) {
	f, err := renew.Open(files, what+path, func(b ...[]byte) (string, error) {
		if secret := strings.TrimSpace(string(b[0])); secret != "" && !strings.ContainsAny(secret, "\r\n") {
			return secret, nil
		}
		return "", fmt.Errorf("%s holds no secret of one line: write it there, or take the setting away", path)
	}, path)
	if err != nil {
		return nil, err
	}
	return f.Get, nil
}

// faults are what time series lost at the start, and what there is no room for. Values that no label may have are no fault: they are counted.
func (s *timeSeries) faults() (out []api.Fault) {
	if s == nil {
		return nil
	}
	for _, l := range s.db.Lost() {
		out = append(out, api.Fault{What: "time series: the log of " + l.Store + " was damaged", Count: 1, Last: fmt.Sprintf("%s: %s; at most %d bytes are lost", l.At, l.Why, l.Bytes), At: s.began.UnixNano(),
			Remedy: "samples after " + l.After.UTC().Format(time.RFC3339) + " may be missing; look at the disk"})
	}
	for _, r := range s.db.Refused() {
		if r.Label == "" && len(out) < mostFaults {
			out = append(out, api.Fault{What: "time series: " + cmp.Or(r.Metric, "a metric") + " in " + r.Store, Count: r.Count, Last: r.Why, At: r.Last.UnixNano(),
				Remedy: "send fewer series, or raise metrics.budget; docs/metrics.md says what is not let in"})
		}
	}
	return out
}

const mostFaults = 10

// run records what the server says of itself, and makes signals of each minute, until ctx ends.
func (s *timeSeries) run(ctx context.Context, own prometheus.Gatherer) error {
	host, _ := os.Hostname()
	target := labels.FromStrings("job", "whylate", "instance", host)
	to := s.db.Appendable(metrics.Own)
	t := time.NewTicker(metrics.OwnEvery)
	defer t.Stop()
	minute := time.Now().Truncate(rollup.Every).Add(-rollup.Every) // the last before the start may not have been written
	for tell := (once{log: s.log}); ; {
		now := time.Now()
		tell.of("own metrics", metrics.Record(ctx, to, own, target, now))
		for ; !minute.Add(rollup.Every + late).After(now); minute = minute.Add(rollup.Every) {
			_, err := rollup.Minute(ctx, s.db.Detail(), s.db.Signals("rollup"), minute, minute.Add(rollup.Every))
			tell.of("signals", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// late is how long after a minute's end its samples may still come.
const late = 5 * time.Second

// once warns when something begins to fail, not each time.
type once struct {
	log     *slog.Logger
	failing map[string]bool
}

func (o *once) of(what string, err error) {
	if err != nil && !o.failing[what] && !errors.Is(err, context.Canceled) {
		o.log.Warn("time series: not all "+what+" are written", "error", err)
	}
	if o.failing == nil {
		o.failing = map[string]bool{}
	}
	o.failing[what] = err != nil
}
