package scrape

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/units"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	prom "github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery"
	_ "github.com/prometheus/prometheus/discovery/dns"  // dns_sd_configs
	_ "github.com/prometheus/prometheus/discovery/file" // file_sd_configs
	"go.yaml.in/yaml/v3"

	"github.com/whylate/whylate/api"
)

// Settings say what to scrape.
type Settings struct {
	Jobs string // a YAML list of jobs in the form of Prometheus's scrape_configs; "" is none
	Dir  string // relative paths of Jobs are below it

	PrometheusFile string // a prometheus.yml whose jobs are taken too; "" is none

	Interval time.Duration // of those Jobs that name none; 0 = 15 s
	Samples  int           // of one page, for jobs without sample_limit; 0 = 100,000
	Body     int64         // bytes of one page, decompressed, for jobs without body_size_limit; 0 = 64 MiB
}

func (s Settings) withDefaults() Settings {
	if s.Interval == 0 {
		s.Interval = 15 * time.Second
	}
	if s.Samples == 0 {
		s.Samples = 100_000
	}
	if s.Body == 0 {
		s.Body = 64 << 20
	}
	return s
}

// jobs is what Settings say, read.
type jobs struct {
	config   *prom.Config // for Prometheus's managers: every page comes through the relay
	fetchers map[string]*fetcher
	notTaken []api.NotTaken
	labels   []string // that targets are given, as far as the settings say
}

// fetcher is how the pages of one job are really asked for.
type fetcher struct {
	client   *http.Client
	compress bool
	body     int64 // bytes of a page
}

// taken are the ways of finding targets that there are here.
var taken = []string{"static_configs", "file_sd_configs", "dns_sd_configs"}

// Check says what is wrong with the settings. prometheusFile is the contents of Settings.PrometheusFile.
func (s Settings) Check(prometheusFile []byte) ([]api.NotTaken, error) {
	j, err := s.read(prometheusFile)
	if err != nil {
		return nil, err
	}
	return j.notTaken, nil
}

// read makes the jobs of both sources. A job of Settings.Jobs that is wrong is an error; one of the Prometheus file is not taken, since
// that file is somebody else's.
func (s Settings) read(prometheusFile []byte) (*jobs, error) {
	s = s.withDefaults()
	empty, err := prom.Load("", slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	j := &jobs{config: empty, fetchers: map[string]*fetcher{}}
	var own []yaml.Node
	if err := yaml.Unmarshal([]byte(s.Jobs), &own); err != nil {
		return nil, fmt.Errorf("scrape.jobs is no list of jobs: %w; write them as in scrape_configs of a prometheus.yml", plain(err))
	}
	global := mapping("scrape_interval", model.Duration(s.Interval).String())
	var errs []error
	for i := range own {
		if err := j.add(s, &own[i], global, s.Dir); err != nil {
			errs = append(errs, fmt.Errorf("scrape.jobs, %s: %w", nameOf(&own[i], i), err))
		}
	}
	if err := j.addFile(s, prometheusFile); err != nil {
		errs = append(errs, err)
	}
	return j, errors.Join(errs...)
}

// addFile takes the jobs of a prometheus.yml.
func (j *jobs) addFile(s Settings, contents []byte) error {
	if s.PrometheusFile == "" {
		return nil
	}
	var file struct {
		Global yaml.Node   `yaml:"global"`
		Jobs   []yaml.Node `yaml:"scrape_configs"`
		Files  []string    `yaml:"scrape_config_files"`
	}
	if err := yaml.Unmarshal(contents, &file); err != nil {
		return fmt.Errorf("scrape.prometheus_file %s: %w; name a prometheus.yml", s.PrometheusFile, plain(err))
	}
	if len(file.Files) > 0 {
		j.notTaken = append(j.notTaken, api.NotTaken{What: "scrape_config_files of " + s.PrometheusFile, Remedy: "write their jobs into scrape.jobs"})
	}
	for i := range file.Jobs {
		n := &file.Jobs[i]
		if err := j.add(s, n, scrapingOnly(&file.Global), filepath.Dir(s.PrometheusFile)); err != nil {
			j.notTaken = append(j.notTaken, api.NotTaken{Job: nameOf(n, i), What: "the job in " + s.PrometheusFile + ": " + err.Error(), Remedy: "correct it there, or write it into scrape.jobs"})
		}
	}
	return nil
}

// add takes one job: Prometheus's own parser reads it, and its pages are led through the relay.
func (j *jobs) add(s Settings, n *yaml.Node, global *yaml.Node, dir string) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("it is no job; write job_name, static_configs and so on")
	}
	if aliased(n) {
		return errors.New("it has a YAML anchor or alias; write the value out")
	}
	own, strangers := withoutStrangers(n)
	name := nameOf(n, 0)
	for _, what := range strangers {
		j.notTaken = append(j.notTaken, api.NotTaken{Job: name, What: what, Remedy: "list its targets under static_configs, have them written to a file for file_sd_configs, or let the Prometheus that finds them send by remote write to /prometheus/api/v1/write"})
	}
	if len(strangers) > 0 && !hasTargets(own) {
		return nil
	}
	text, err := yaml.Marshal(map[string]any{"global": global, "scrape_configs": []*yaml.Node{own}})
	if err != nil {
		return plain(err)
	}
	c, err := prom.Load(string(text), slog.New(slog.DiscardHandler))
	if err != nil {
		return plain(err)
	}
	c.SetDirectory(dir)
	sc := c.ScrapeConfigs[0]
	if j.fetchers[sc.JobName] != nil {
		return errors.New("another job has this name; give it one of its own")
	}
	if sc.SampleLimit == 0 {
		sc.SampleLimit = uint(s.Samples)
	}
	if sc.BodySizeLimit == 0 {
		sc.BodySizeLimit = units.Base2Bytes(s.Body)
	}
	if sc.ScrapeFallbackProtocol == "" {
		sc.ScrapeFallbackProtocol = prom.PrometheusText0_0_4 // many a page says nothing of its format
	}
	client, err := config.NewClientFromConfig(sc.HTTPClientConfig, sc.JobName)
	if err != nil {
		return err
	}
	j.fetchers[sc.JobName] = &fetcher{client: client, compress: sc.EnableCompression, body: int64(sc.BodySizeLimit)}
	j.labels = append(j.labels, labelsOf(sc)...)
	if err := lead(sc); err != nil {
		return err
	}
	j.config.ScrapeConfigs = append(j.config.ScrapeConfigs, sc)
	return nil
}

// labelsOf are the labels that a job gives to its targets, but for those of targets that are still to be found.
func labelsOf(sc *prom.ScrapeConfig) (names []string) {
	add := func(ls model.LabelSet) {
		for name := range ls {
			names = append(names, string(name))
		}
	}
	for _, found := range sc.ServiceDiscoveryConfigs {
		static, _ := found.(discovery.StaticConfig)
		for _, group := range static {
			add(group.Labels)
			for _, target := range group.Targets {
				add(target)
			}
		}
	}
	for _, r := range sc.RelabelConfigs {
		names = append(names, r.TargetLabel)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return name == "" || strings.HasPrefix(name, model.ReservedLabelPrefix) || strings.Contains(name, "$")
	})
}

// nameOf is a job's name, else its place in the list.
func nameOf(n *yaml.Node, i int) string {
	if v := value(n, "job_name"); v != nil && v.Value != "" {
		return "job " + v.Value
	}
	return fmt.Sprintf("job number %d", i+1)
}

// withoutStrangers is a job without the ways of finding targets that are not there, and their names.
func withoutStrangers(n *yaml.Node) (own *yaml.Node, strangers []string) {
	own = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i].Value; strings.HasSuffix(key, "_sd_configs") && !slices.Contains(taken, key) || key == "scrape_failure_log_file" {
			strangers = append(strangers, key)
			continue
		}
		own.Content = append(own.Content, n.Content[i], n.Content[i+1])
	}
	return own, strangers
}

func hasTargets(n *yaml.Node) bool {
	return slices.ContainsFunc(taken, func(key string) bool { return value(n, key) != nil })
}

// scrapingOnly is what a Prometheus's global section says of scraping.
func scrapingOnly(global *yaml.Node) *yaml.Node {
	out := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	others := []string{"evaluation_interval", "rule_query_offset", "query_log_file", "query_max_series", "query_max_samples_read", "query_max_duration", "external_labels", "scrape_failure_log_file"}
	for i := 0; i+1 < len(global.Content); i += 2 {
		if !slices.Contains(others, global.Content[i].Value) {
			out.Content = append(out.Content, global.Content[i], global.Content[i+1])
		}
	}
	return out
}

// value is the value of a key of a mapping, nil where it is absent.
func value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func mapping(key, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: key}, {Kind: yaml.ScalarNode, Value: value}}}
}

func aliased(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || n.Anchor != "" || slices.ContainsFunc(n.Content, aliased)
}

var (
	yamlPrefix = regexp.MustCompile(`^yaml: (unmarshal errors:\s*)?`)
	yamlLine   = regexp.MustCompile(`line \d+: `)
	yamlType   = regexp.MustCompile(`field (\S+) not found in type \S+`)
)

// plain is an error of the YAML reader without lines, which would be those of a text that nobody wrote, and without names of Go types.
func plain(err error) error {
	s := yamlPrefix.ReplaceAllString(err.Error(), "")
	s = yamlLine.ReplaceAllString(s, "")
	s = yamlType.ReplaceAllString(s, "there is no key $1 in a job")
	var said []string
	for line := range strings.Lines(s) {
		said = append(said, strings.Join(strings.Fields(line), " "))
	}
	return errors.New(strings.Join(said, "; "))
}
