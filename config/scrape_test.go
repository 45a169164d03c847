package config

import (
	"bytes"
	"strings"
	"testing"
)

// Jobs are taken as they stand in a prometheus.yml, and printed so that they are read as the same.
func TestJobs(t *testing.T) {
	c, err := Load(input("scrape:\n  jobs:\n    # the engines\n    - job_name: vllm # ours\n      metrics_path: /metrics\n      relabel_configs:\n        - regex: '0123'\n          replacement: |\n            a\n            b\n      static_configs: [{targets: ['a:1']}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `[{job_name: vllm, metrics_path: /metrics, relabel_configs: [{regex: '0123', replacement: "a\nb\n"}], static_configs: [{targets: ['a:1']}]}]`
	if c.Scrape.Jobs != want {
		t.Errorf("%s", c.Scrape.Jobs)
	}
	var b bytes.Buffer
	if err := c.WriteYAML(&b); err != nil {
		t.Fatal(err)
	}
	again, err := Load(input(b.String()))
	if err != nil || again.Scrape.Jobs != want {
		t.Errorf("%v, %s", err, again.Scrape.Jobs)
	}
}

func TestWrongJobs(t *testing.T) {
	for file, want := range map[string]string{
		"scrape: {jobs: {a: b}}": "holds a list or keys",
		"scrape: {jobs: a}":      "is no list",
		"scrape: {jobs: [{job_name: a, basic_auth: {username: u, password: s3cret}}]}":             "has a secret under password",
		"scrape: {jobs: [{job_name: a, authorization: {credentials: s3cret}}]}":                    "has a secret under credentials",
		"scrape: {jobs: [{tls_config: {key: '-----BEGIN PRIVATE KEY-----s3cret'}}]}":               "has a secret under key",
		"scrape: {jobs: [{job_name: a, static_configs: [{labels: {key: x, password_file: /p}}]}]}": "",
	} {
		_, err := Load(input(file))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", file, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the secret is printed: %v", file, err)
		}
	}
}
