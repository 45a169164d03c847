package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/promapi"
	"github.com/whylate/whylate/metrics/remotewrite"
	"github.com/whylate/whylate/metrics/scrape"
	"github.com/whylate/whylate/web"
)

// scraping is how series come in from outside: pages that the server reads, and what a Prometheus sends.
type scraping struct {
	scraper *scrape.Scraper // nil: no page is read
	sent    *remotewrite.Handler
}

// open prepares both to write to db, and mounts remote write.
func (p *scraping) open(c *config.Config, db *metrics.DB, files *renew.Group, log *slog.Logger, opts *web.Options) (err error) {
	p.sent = remotewrite.New(db.Appendable("remote write"), nil)
	opts.RemoteWrite = p.sent
	if c.Scrape.Jobs == "" && c.Scrape.PrometheusFile == "" {
		return nil
	}
	p.scraper, err = scrape.New(scrapeSettings(c), db.Appendable("scrape"), files, log, scrape.Options{Labels: db.Allow})
	return err
}

func scrapeSettings(c *config.Config) scrape.Settings {
	set := scrape.Settings{Jobs: c.Scrape.Jobs, PrometheusFile: c.Scrape.PrometheusFile, Interval: c.Scrape.Interval, Samples: c.Scrape.SampleLimit, Body: c.Scrape.BodyLimit}
	set.Dir, _ = os.Getwd()
	if at := c.Source("scrape.jobs"); at.Origin == config.FromFile {
		set.Dir = filepath.Dir(at.Name)
	}
	return set
}

// checkScrape says what is wrong with the jobs, and what of them is not taken.
func checkScrape(c *config.Config) (out []config.Problem) {
	set := scrapeSettings(c)
	var file []byte
	if set.PrometheusFile != "" {
		var err error
		if file, err = os.ReadFile(set.PrometheusFile); err != nil {
			return []config.Problem{{Source: c.Source("scrape.prometheus_file"), Key: "scrape.prometheus_file", Value: set.PrometheusFile, Text: "cannot be read: " + err.Error(), Remedy: "let the user that whylate runs as read it"}}
		}
	}
	not, err := set.Check(file)
	if err != nil {
		out = append(out, config.Problem{Source: c.Source("scrape.jobs"), Text: err.Error(), Remedy: "docs/scrape.md has examples"})
	}
	for _, n := range not {
		out = append(out, config.Problem{Severity: config.Warning, Source: c.Source("scrape.jobs"), Key: n.Job, Text: n.What + " is not taken", Remedy: n.Remedy})
	}
	return out
}

func (p *scraping) renew(log *slog.Logger) {
	if p.scraper == nil {
		return
	}
	if err := p.scraper.Renew(); err != nil {
		log.Error("new scrape settings are not in force", "error", err)
	}
}

func (p *scraping) targets() *api.TargetList {
	if p.scraper == nil {
		return &api.TargetList{Targets: []api.Target{}}
	}
	return p.scraper.Targets()
}

func (p *scraping) faults() (out []api.Fault) {
	if p.scraper != nil {
		out = p.scraper.Faults()
	}
	if p.sent != nil {
		out = append(out, p.sent.Faults()...)
	}
	return out
}

// asOfPrometheus are the targets as Prometheus's API shows them.
func (p *scraping) asOfPrometheus() (out []promapi.Target) {
	for _, t := range p.targets().Targets {
		x := promapi.Target{DiscoveredLabels: labels.FromMap(t.Discovered), Labels: labels.FromMap(t.Labels), ScrapePool: t.Job, ScrapeURL: t.URL, GlobalURL: t.URL, LastError: t.Error,
			LastScrapeDuration: time.Duration(t.TookNs).Seconds(), Health: string(t.Health), ScrapeInterval: model.Duration(t.Interval).String(), ScrapeTimeout: t.Discovered[model.ScrapeTimeoutLabel]}
		if t.LastAt != 0 {
			x.LastScrape = time.Unix(0, t.LastAt)
		}
		out = append(out, x)
	}
	return out
}
