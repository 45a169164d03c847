package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"

	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/config"
)

// A page is read, kept, asked for in PromQL and told of; so is what a Prometheus sends.
func TestServeScrapes(t *testing.T) {
	page, err := os.ReadFile("../testdata/cases/C31-vllm-renames-mixed-fleet.pod-new.prom")
	if err != nil {
		t.Fatal(err)
	}
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	defer engine.Close()
	target := strings.TrimPrefix(engine.URL, "http://")
	s := startServe(t, t.TempDir(), fmt.Sprintf("WHYLATE_SCRAPE_JOBS=[{job_name: vllm, scrape_interval: 100ms, static_configs: [{targets: ['%s'], labels: {rack: r7}}]}]", target))
	c, err := client.New("http://"+s.address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	limit := time.After(30 * time.Second)
	for {
		l, err := c.Targets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Targets) == 1 && l.Targets[0].Health == "up" {
			break
		}
		select {
		case <-limit:
			t.Fatalf("%+v", l)
		case <-time.After(20 * time.Millisecond):
		}
	}
	ask := func(q string) string {
		t.Helper()
		resp, err := http.Get("http://" + s.address + "/prometheus/api/v1/" + q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b)
	}
	until(t, func() bool { // a target is up a moment before its samples are there
		got := ask("query?query=" + url.QueryEscape(`count({__name__=~"vllm:.+",rack="r7"})`))
		return strings.Contains(got, `"success"`) && !strings.Contains(got, `"result":[]`)
	})
	if got := ask("targets"); !strings.Contains(got, `"scrapePool":"vllm"`) || !strings.Contains(got, engine.URL+"/metrics") {
		t.Error(got)
	}
	b, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__", Value: "vllm:sent"}, {Name: "job", Value: "j"}}, Samples: []prompb.Sample{{Timestamp: time.Now().UnixMilli(), Value: 7}}}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post("http://"+s.address+"/prometheus/api/v1/write", "application/x-protobuf", bytes.NewReader(snappy.Encode(nil, b)))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := ask("query?query=vllm:sent"); resp.StatusCode != http.StatusNoContent || !strings.Contains(got, `"7"`) {
		t.Errorf("%d %s", resp.StatusCode, got)
	}
	if code, out, errOut := run(t, "targets", "--server", "http://"+s.address); code != 0 || !strings.Contains(out, target) {
		t.Errorf("%d %s %s", code, out, errOut)
	}
}

func TestConfigCheckReadsJobs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "w.yaml")
	if err := os.WriteFile(file, []byte("scrape: {jobs: [{job_name: a, portz: 1}, {job_name: b, consul_sd_configs: []}]}"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Input{File: file, Environ: []string{"HOME=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(checkScrape(c))
	if !strings.Contains(string(b), "there is no key portz in a job") {
		t.Errorf("%s", b)
	}
}
