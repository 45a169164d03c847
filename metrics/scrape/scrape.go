// Package scrape reads metrics pages, with Prometheus's own scrape manager and discovery: static targets, files and DNS. What Prometheus
// refuses whole for one bad line is mended before it sees it.
package scrape

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/model/labels"
	promscrape "github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/renew"
)

// Scraper reads the metrics pages of its jobs' targets, each at its interval, and writes them to a storage. It writes up,
// scrape_duration_seconds, scrape_samples_scraped and the others of Prometheus's own series beside them.
type Scraper struct {
	set   Settings
	log   *slog.Logger
	file  *renew.File[*jobs] // of Settings.PrometheusFile; nil without one
	fixed *jobs              // without one
	relay *relay
	opts  Options

	manager  *promscrape.Manager
	discover *discovery.Manager
	stop     context.CancelFunc

	mu      sync.Mutex
	applied *jobs
}

// Options may all be left out.
type Options struct {
	Settle time.Duration         // how long found targets may wait until they are taken up; 0 = Prometheus's 5 s
	Labels func(names ...string) // is told the labels that targets were given by whoever configured them; again when there are more
}

// New prepares a scraper. An error says which job is wrong, and what to do. Settings.PrometheusFile is looked at by the group from then on;
// [Scraper.Renew] takes up what it found.
func New(set Settings, to storage.AppendableV2, files *renew.Group, log *slog.Logger, opts Options) (*Scraper, error) {
	s := &Scraper{set: set, log: log, relay: newRelay(), opts: opts}
	var err error
	if set.PrometheusFile != "" {
		parse := func(b ...[]byte) (*jobs, error) { return set.read(b[0]) }
		s.file, err = renew.Open(files, "scrape.prometheus_file "+set.PrometheusFile, parse, set.PrometheusFile)
	} else {
		s.fixed, err = set.read(nil)
	}
	if err != nil {
		return nil, err
	}
	s.opts.Settle = cmp.Or(opts.Settle, 5*time.Second)
	registry := prometheus.NewRegistry()
	s.manager, err = promscrape.NewManager(&promscrape.Options{
		DiscoveryReloadInterval: model.Duration(s.opts.Settle), DiscoveryReloadOnStartup: true, AppendMetadata: true,
		HTTPClientOptions: []config.HTTPClientOption{config.WithDialContextFunc(s.relay.Dial), config.WithHTTP2Disabled()},
	}, log, nil, nil, to, registry)
	if err != nil {
		return nil, fmt.Errorf("prepare Prometheus's scraper: %w", err)
	}
	finders, err := discovery.CreateAndRegisterSDMetrics(registry)
	if err != nil {
		return nil, fmt.Errorf("prepare Prometheus's discovery: %w", err)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.discover = discovery.NewManager(ctx, log, registry, finders, discovery.Updatert(s.opts.Settle))
	if s.discover == nil {
		s.stop()
		return nil, errors.New("prepare Prometheus's discovery: it did not start")
	}
	return s, nil
}

// Run scrapes until ctx ends. It is called once.
func (s *Scraper) Run(ctx context.Context) error {
	defer s.stop()
	if err := s.Renew(); err != nil {
		return err
	}
	var parts sync.WaitGroup
	parts.Go(func() { _ = s.relay.server.Serve(s.relay) })
	parts.Go(func() { _ = s.discover.Run() })
	parts.Go(func() { _ = s.manager.Run(s.discover.SyncCh()) })
	s.tellLabels(ctx)
	s.stop() // no new targets …
	s.manager.Stop()
	s.relay.server.Close()
	s.relay.use(map[string]*fetcher{})
	parts.Wait()
	return nil
}

// tellLabels tells which labels targets have been given, as they are found, until ctx ends.
func (s *Scraper) tellLabels(ctx context.Context) {
	if s.opts.Labels == nil {
		<-ctx.Done()
		return
	}
	known := map[string]bool{}
	t := time.NewTicker(s.opts.Settle)
	defer t.Stop()
	for {
		var more []string
		for _, targets := range s.manager.TargetsActive() {
			for _, x := range targets {
				x.LabelsRange(func(l labels.Label) {
					if !known[l.Name] {
						known[l.Name] = true
						more = append(more, l.Name)
					}
				})
			}
		}
		if len(more) > 0 {
			s.opts.Labels(more...)
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// jobs are those in force.
func (s *Scraper) jobs() *jobs {
	if s.file != nil {
		return s.file.Get()
	}
	return s.fixed
}

// Renew takes up the jobs that are in force now, if they are others than before. Targets of jobs that did not change go on undisturbed.
func (s *Scraper) Renew() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs()
	if j == s.applied {
		return nil
	}
	for _, n := range j.notTaken {
		s.log.Warn("not taken of the scrape settings", "job", n.Job, "what", n.What, "remedy", n.Remedy)
	}
	s.relay.use(j.fetchers)
	if s.opts.Labels != nil {
		s.opts.Labels(j.labels...)
	}
	if err := s.manager.ApplyConfig(j.config); err != nil {
		return fmt.Errorf("take up the scrape jobs: %w", err)
	}
	found := map[string]discovery.Configs{}
	for _, sc := range j.config.ScrapeConfigs {
		found[sc.JobName] = sc.ServiceDiscoveryConfigs
	}
	if err := s.discover.ApplyConfig(found); err != nil {
		return fmt.Errorf("take up where targets are found: %w", err)
	}
	s.applied = j
	return nil
}

// Targets says how each target does.
func (s *Scraper) Targets() *api.TargetList {
	s.mu.Lock()
	list := &api.TargetList{Targets: []api.Target{}}
	if s.applied != nil {
		list.NotTaken = s.applied.notTaken
	}
	s.mu.Unlock()
	for job, targets := range s.manager.TargetsActive() {
		for _, t := range targets {
			list.Targets = append(list.Targets, s.target(job, t))
		}
	}
	slices.SortFunc(list.Targets, func(a, b api.Target) int { return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.URL, b.URL)) })
	return list
}

func (s *Scraper) target(job string, t *promscrape.Target) api.Target {
	u := real(t.URL())
	seen := s.relay.sight(job, u)
	b := labels.NewBuilder(labels.EmptyLabels())
	out := api.Target{Job: job, URL: u.Redacted(), Labels: t.Labels(b).Map(), Discovered: t.DiscoveredLabels(b).Map(), Health: api.TargetHealth(t.Health()), Samples: seen.samples, LeftOut: seen.leftOut, Problems: seen.problems}
	if d, err := model.ParseDuration(t.GetValue(model.ScrapeIntervalLabel)); err == nil {
		out.Interval = int64(d)
	}
	if at := t.LastScrape(); !at.IsZero() {
		out.LastAt, out.TookNs = at.UnixNano(), int64(t.LastScrapeDuration())
	}
	if err := t.LastError(); err != nil {
		out.Error, out.Remedy = explained(cmp.Or(seen.err, err))
	}
	return out
}

// Faults tells of each target that brings nothing, and of lines that had to be left out, as long as that is so.
func (s *Scraper) Faults() (out []api.Fault) {
	for _, t := range s.Targets().Targets {
		what := "scraping " + t.Job + " " + t.URL
		switch {
		case t.Health == api.TargetDown:
			out = append(out, api.Fault{What: what, Count: 1, Last: t.Error, Remedy: t.Remedy, At: t.LastAt})
		case len(t.Problems) > 0:
			out = append(out, api.Fault{What: what, Count: t.LeftOut, Last: strings.Join(t.Problems, "; "), Remedy: "the rest of the page is kept; tell whoever makes it", At: t.LastAt})
		}
	}
	return out
}
