package config

import (
	"errors"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Scrape says whose metrics pages the server reads itself.
type Scrape struct {
	Jobs           string // a YAML list, on one line, in the form of Prometheus's scrape_configs; "" is none
	PrometheusFile string
	Interval       time.Duration // of jobs that name none
	SampleLimit    int
	BodyLimit      int64
}

// scrapeKeys are the settings of scraping.
var scrapeKeys = []Key{
	{Name: "scrape.jobs", kind: jobs, For: Server, field: func(c *Config) any { return &c.Scrape.Jobs },
		Doc: "Whose metrics pages are read: a list of jobs in the form of `scrape_configs` of a prometheus.yml, with targets of `static_configs`, `file_sd_configs` and `dns_sd_configs` ([scrape.md](scrape.md)). Empty: none."},
	{Name: "scrape.prometheus_file", kind: path, For: Server, field: func(c *Config) any { return &c.Scrape.PrometheusFile },
		Doc: "A prometheus.yml whose jobs are taken too, as far as they find their targets in those ways. Taken up within two seconds when it changes. Empty: none."},
	{Name: "scrape.interval", kind: duration, Default: "15s", Least: "1s", Most: "1h", For: Server, field: func(c *Config) any { return &c.Scrape.Interval },
		Doc: "How often targets are read, of those `scrape.jobs` that do not say."},
	{Name: "scrape.sample_limit", kind: count, Default: "100000", Least: "1", For: Server, field: func(c *Config) any { return &c.Scrape.SampleLimit },
		Doc: "How many samples one page may have, for jobs without `sample_limit`. A page with more is refused whole."},
	{Name: "scrape.body_limit", kind: size, Default: "64MiB", Least: "1KiB", Most: "1GiB", For: Server, field: func(c *Config) any { return &c.Scrape.BodyLimit },
		Doc: "How large one page may be, unpacked, for jobs without `body_size_limit`. A larger one is refused whole."},
}

// jobs is a list that is handed on as it was written, on one line.
var jobs = kind{name: "jobs", allowed: "a list of jobs as in scrape_configs of a prometheus.yml", list: true, format: asText,
	parse: func(s string, _ place) (any, error) { return parseJobs(s) }}

func parseJobs(s string) (any, error) {
	if s == "" {
		return "", nil
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) != 1 || n.Content[0].Kind != yaml.SequenceNode {
		return nil, errors.New("is no list")
	}
	if key := secretIn(&n); key != "" {
		return nil, errors.New("has a secret under " + key + ": no secret belongs here; write " + key + "_file and the path of a file that holds it")
	}
	return oneLine(&n), nil
}

// oneLine is a list in YAML's flow style. Scalars stay as they were written.
func oneLine(n *yaml.Node) string {
	flow(n)
	b, err := yaml.Marshal(n)
	if err != nil {
		return "" // it was read from text, so it can be written
	}
	return strings.TrimSpace(string(b))
}

func flow(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		n.Style = yaml.FlowStyle
	case yaml.ScalarNode:
		if n.Style == yaml.LiteralStyle || n.Style == yaml.FoldedStyle {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, c := range n.Content {
		flow(c)
	}
}

// secrets are the keys of a job under which Prometheus takes a secret itself; each has one with _file beside it.
var secrets = []string{"password", "bearer_token", "credentials", "client_secret"}

// secretIn is the first key that holds a secret, "" where there is none.
func secretIn(n *yaml.Node) string {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			v := n.Content[i+1]
			if v.Kind == yaml.ScalarNode && (slices.Contains(secrets, c.Value) || strings.Contains(v.Value, "PRIVATE KEY")) {
				return c.Value
			}
			continue
		}
		if key := secretIn(c); key != "" {
			return key
		}
	}
	return ""
}
