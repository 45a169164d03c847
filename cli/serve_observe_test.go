package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
)

// pages serves metrics pages, and says where.
func pages(t *testing.T, text string) (target string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// A server that scrapes an engine says what arrives, who it is, and looks at it; a hostile label reaches no terminal.
func TestServeObserves(t *testing.T) {
	page, err := os.ReadFile("../look/testdata/vllm-0.32.0.prom")
	if err != nil {
		t.Fatal(err)
	}
	hostile := "\napp_hits{path=\"/\\u001b[31m\x1b[2J<script>\"} 1\nvllm:num_requests_running{engine=\"1\",model_name=\"\x1b]0;x\x07\",node=\"evil\x1b[2J\"} 1\n"
	target := pages(t, string(page)+hostile)
	s := startServe(t, t.TempDir(), fmt.Sprintf("WHYLATE_SCRAPE_JOBS=[{job_name: vllm, scrape_interval: 100ms, static_configs: [{targets: ['%s']}]}]", target),
		"WHYLATE_OBJECTIVES_TTFT=333ms", "WHYLATE_IDENTITY_ALIASES=['nobody = vLLM at "+target+"']")
	c := s.client(t, "http", client.Options{})
	var list *api.SignalList
	until(t, func() bool {
		if list, err = c.Signals(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(list.Arrives) > 0 && list.Arrives[0].Every > 0
	})
	a := list.Arrives[0]
	if len(a.Came) != 1 || a.Came[0] != "scrape" || a.Newest == 0 || a.Producer != "vllm" {
		t.Errorf("%+v", a)
	}
	for _, u := range list.Unused {
		if u.PerSecond <= 0 || u.BytesPerDay <= 0 || strings.HasPrefix(u.Family, "whylate_") || u.Family == "up" {
			t.Errorf("%+v", u)
		}
	}
	server := "http://" + s.address
	clean := func(out string) {
		t.Helper()
		if strings.ContainsAny(out, "\x1b\x07") {
			t.Errorf("a control character reaches the terminal: %q", out)
		}
	}
	for _, x := range []struct {
		args []string
		want []string
	}{
		{[]string{"signals", "--server", server}, []string{"CAME BY", "vllm:num_requests_running", "scrape", "Not sent, and what that leaves unanswered", "Arrives without a use"}},
		{[]string{"signals", "join", "--server", server}, []string{"vLLM at " + target, "alias nobody = vLLM at " + target + ": 0 things are called nobody"}},
		{[]string{"look", "--server", server}, []string{"asked", server + ": 0 requests of the last hour", "vLLM", "1 target", "next"}},
		{[]string{"look", server, "--for", "0", "--history", "10m"}, []string{"vLLM", "1 target"}},
		{[]string{"doctor", "--server", server, "--ring-dir", filepath.Join(t.TempDir(), "none")}, []string{"ok    rings: ", "none does not exist", "1 of 1 targets are read", "objectives.ttft 333ms cannot be seen in vllm:time_to_first_token_seconds", "Set objectives.ttft: ", "0 things are called nobody"}},
	} {
		_, out, errOut := run(t, x.args...)
		for _, want := range x.want {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s%s", strings.Join(x.args, " "), want, out, errOut)
			}
		}
		clean(out + errOut)
	}
	status, out, errOut := run(t, "signals", "join", "--server", server, "-o", "json")
	var j api.Identities
	if err := json.Unmarshal([]byte(out), &j); status != ExitOK || err != nil || len(j.Things) != 1 || j.Things[0].Target != target {
		t.Errorf("%d %v %s%s", status, err, out, errOut)
	}
}

// Where nothing is read and nothing comes, doctor gives the line to write.
func TestDoctorOfNothing(t *testing.T) {
	s := startServe(t, t.TempDir())
	s.client(t, "http", client.Options{})
	_, out, _ := run(t, "doctor", "--server", "http://"+s.address, "--ring-dir", filepath.Join(t.TempDir(), "none"))
	if !strings.Contains(out, "WRONG rings: ") {
		t.Error(out)
	}
	if !strings.Contains(out, "WRONG scraping: no metrics page is read") || !strings.Contains(out, "scrape.jobs: [{job_name: engines") {
		t.Error(out)
	}
	if _, out, _ = run(t, "doctor", "--from", "demo", "--ring-dir", t.TempDir()); !strings.Contains(out, "could not be looked at: only a server takes in series") {
		t.Error(out)
	}
	if _, out, _ = run(t, "signals", "--server", "http://"+s.address); !strings.Contains(out, "Nothing has arrived in the last 10m0s") {
		t.Error(out)
	}
	if _, out, _ = run(t, "look", "--server", "http://"+s.address); !strings.Contains(out, "0 requests of the last hour") || !strings.Contains(out, "neither series nor requests") {
		t.Error(out)
	}
}
