package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/bundle"
)

// incident is a folder with what a bundle may have: pages and a log of three hours ago, one page of now, and what nobody can take.
func incidentBundle(t *testing.T, now time.Time) (dir string, began time.Time) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "incident")
	began = now.Add(-3 * time.Hour).Truncate(time.Minute)
	put := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, text)
	}
	page := func(engine, minute int, version string) string {
		return fmt.Sprintf("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"atlas\"} %d\n# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total{engine=\"0\",model_name=\"atlas\",user=\"u%d\"} %d\nvllm:engine_info{version=%q} 1\n",
			10*engine+minute%10, minute, 100*minute, version)
	}
	for minute := range 30 {
		at := began.Add(time.Duration(minute) * time.Minute)
		version := "0.31.0"
		if minute >= 15 {
			version = "0.32.0"
		}
		for engine := range 2 {
			put(bundle.ScrapePath(fmt.Sprintf("e%d:8000", engine), at.UnixMilli()), page(engine, minute, version))
		}
	}
	put(bundle.ScrapePath("e0:8000", now.UnixMilli()), page(0, 5, "0.32.0"))
	put(bundle.ScrapePath("e0:8000", now.AddDate(0, 0, -30).UnixMilli()), page(0, 5, "0.32.0"))
	put(bundle.ScrapePath("login:80", began.UnixMilli()), "<html><body>log in</body></html>")
	line := func(minute int, text string) string {
		return began.Add(time.Duration(minute)*time.Minute).UTC().Format("INFO 01-02 15:04:05") + text + "\n"
	}
	put("log/e2.log", line(0, " [api_server.py:1] vLLM API server version 0.31.0")+
		line(1, " [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 20.0 tokens/s, Running: 3 reqs, Waiting: 7 reqs, GPU KV cache usage: 41.0%, Prefix cache hit rate: 0.0%")+
		line(2, " [logger.py:1] Received request r-1: prompt: 'my secret is Running: 9 reqs'")+
		line(3, " [api_server.py:1] vLLM API server version 0.32.0"))
	put("log/kernel.log", "NVRM: something else\n")
	put("notes.txt", "what we thought\n")
	put("truth.json", `{"culprit":"nobody may know"}`)
	put("changes.jsonl", fmt.Sprintf(`{"at_unix_ns":%d,"kind":"deployment","subject":"chat","to":"v42","text":"chat is v42"}`+"\n", began.UnixNano()))
	return dir, began
}

// A folder by the command, and the same as a zip by the API: the series are there at the pages' times, and each file that is none is named.
func TestImportOfScrapesAndLogs(t *testing.T) {
	now := time.Now()
	dir, began := incidentBundle(t, now)
	s := startServe(t, filepath.Join(t.TempDir(), "data"))
	c := s.client(t, "http", client.Options{})
	server := "http://" + s.address

	status, text, errOut := run(t, "import", dir, "--server", server, "-o", "json")
	var a imported
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != ExitOK {
		t.Fatalf("%d: %v: %s%s", status, err, text, errOut)
	}
	checkImported(t, a.Series, a.NotTaken, a.Changes)
	at := func(minute int) string { return fmt.Sprint(began.Add(time.Duration(minute) * time.Minute).Unix()) }
	check := func() {
		t.Helper()
		for query, want := range map[string]string{
			`vllm:num_requests_running{instance="e1:8000",job="import"} @ ` + at(7):  "17",
			`vllm:num_requests_running{instance="e0:8000",job="import"} @ ` + at(29): "9",
			`vllm:num_requests_running{instance="e0:8000",job="import"}`:             "5",
			`vllm:num_requests_waiting{instance="e2",job="import"} @ ` + at(1):       "7",
			`count(vllm:num_requests_running @ ` + at(10) + `)`:                      "2", // e2's is older than five minutes
			`count(count_over_time({user=~"u.+"}[5m] @ ` + at(10) + `))`:             "",  // the guard's
			`sum(count_over_time({instance="e0:8000"}[4h])) >bool 60`:                "1",
		} {
			if got := strings.Join(valuesOf(t, s, query), " "); got != want {
				t.Errorf("%s: %q, not %q", query, got, want)
			}
		}
		_, text, _ := run(t, "changes", "--server", server)
		for _, want := range []string{"chat is v42", "vllm:engine_info is 0.32.0, was 0.31.0", "vllm is 0.32.0, was 0.31.0"} {
			if !strings.Contains(text, want) {
				t.Errorf("changes: no %q in %s", want, text)
			}
		}
		if n := strings.Count(text, "e2"); n != 1 || strings.Contains(text, "secret") {
			t.Errorf("of e2 there is one change: %s", text)
		}
	}
	check()

	zip := filepath.Join(t.TempDir(), "incident.zip")
	f, err := os.Create(zip)
	if err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir, bundle.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var parts []bundle.Part
	for _, m := range b.Members {
		text, err := os.ReadFile(filepath.Join(dir, m.Path))
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, bundle.Text(m.Path, text))
	}
	if err := bundle.WriteZip(f, bundle.Manifest{Span: bundle.Span{To: now.UnixNano()}}, parts); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	r, err := c.Import(t.Context(), api.ImportQuery{Name: "incident.zip"}, f)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, r.Series, r.NotTaken, r.Changes)
	check()
	if status, text, errOut := run(t, "import", zip, "--server", server); status != ExitOK || !strings.Contains(text, "SERIES OF") || !strings.Contains(text, "taken as UTC") || !strings.Contains(text, "notes.txt: neither capture") {
		t.Errorf("%d: %s%s", status, text, errOut)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "import-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}

	only := filepath.Join(t.TempDir(), "only")
	old := filepath.Join(only, bundle.ScrapePath("e0:8000", now.AddDate(0, 0, -30).UnixMilli()))
	if err := os.MkdirAll(filepath.Dir(old), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, old, "up 1\n")
	if status, _, errOut := run(t, "import", only, "--server", server); status != ExitFailed || !strings.Contains(errOut, "metrics.retention.detail") {
		t.Errorf("%d: %s", status, errOut)
	}
}

func checkImported(t *testing.T, series []api.ImportedSeries, not []api.ImportRefusal, changes int) {
	t.Helper()
	byTarget := map[string]api.ImportedSeries{}
	for _, s := range series {
		byTarget[s.Target] = s
	}
	if e := byTarget["e0:8000"]; len(byTarget) != 3 || e.Files != 31 || e.Samples != 62 || e.Guarded != 31 || e.Late != 0 {
		t.Errorf("%+v", series)
	}
	if e := byTarget["e2"]; e.Kind != "log" || e.Lines != 4 || e.Samples != 3 || e.Note != "its times carry no zone: taken as UTC" {
		t.Errorf("%+v", e)
	}
	if changes == 0 {
		t.Error("no change")
	}
	var names []string
	for _, n := range not {
		base, _, _ := strings.Cut(filepath.ToSlash(n.Path), "/1")
		names = append(names, base+": "+n.Why)
	}
	slices.Sort(names)
	for i, want := range []string{"log/kernel.log: no line of it", "notes.txt: neither capture", "scrape/e0:8000: it is of ", "scrape/login:80: no line of it is a metric", "truth.json: the truth"} {
		if len(names) != 5 || !strings.HasPrefix(names[i], want) {
			t.Errorf("no %q in %q", want, names)
		}
	}
}

// valuesOf are the values of the answer to an instant query.
func valuesOf(t *testing.T, s *serving, query string) (values []string) {
	t.Helper()
	status, body := s.promql(t, query, "")
	var a struct {
		Data struct {
			Result []struct {
				Value [2]any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("%s: %d %s", query, status, body)
	}
	for _, r := range a.Data.Result {
		values = append(values, fmt.Sprint(r.Value[1]))
	}
	return values
}
