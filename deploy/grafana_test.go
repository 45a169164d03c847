package deploy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/signals"
)

// dashboard is what of Grafana's form is used.
type dashboard struct {
	file string

	ID            *int   `json:"id"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	Timezone      string `json:"timezone"`
	Refresh       string `json:"refresh"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

type datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type variable struct {
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Query      json.RawMessage `json:"query"` // a word for a data source, else an object
	Definition string          `json:"definition"`
	Datasource datasource      `json:"datasource"`
	IncludeAll bool            `json:"includeAll"`
	AllValue   string          `json:"allValue"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []target `json:"targets"`
}

type target struct {
	RefID      string     `json:"refId"`
	Expr       string     `json:"expr"`
	Legend     string     `json:"legendFormat"`
	Interval   string     `json:"interval"` // its min step
	Format     string     `json:"format"`
	Datasource datasource `json:"datasource"`
}

func dashboards(t *testing.T) (ds []dashboard) {
	t.Helper()
	paths, _ := filepath.Glob("grafana/*.json")
	if len(paths) != 4 {
		t.Fatalf("%d dashboards", len(paths))
	}
	for _, path := range paths {
		d := dashboard{file: path}
		if err := json.Unmarshal([]byte(read(t, path)), &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		ds = append(ds, d)
	}
	return ds
}

// queries calls f with every query of every panel.
func queries(ds []dashboard, f func(where string, p panel, q target)) {
	for _, d := range ds {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				f(fmt.Sprintf("%s, %s, %s", d.file, p.Title, q.RefID), p, q)
			}
		}
	}
}

// Each dashboard is told of, and Grafana finds it where the documentation says.
func TestDashboardsAreDocumented(t *testing.T) {
	text := read(t, "../docs/dashboards.md")
	for _, d := range dashboards(t) {
		if !strings.Contains(text, "`"+filepath.Base(d.file)+"`") {
			t.Errorf("docs/dashboards.md does not tell of %s", d.file)
		}
	}
}

func TestDashboardsAreGrafanas(t *testing.T) {
	uids := map[string]bool{}
	for _, d := range dashboards(t) {
		if d.ID != nil || d.UID == "" || len(d.UID) > 40 || uids[d.UID] || d.Title == "" || d.Timezone != "browser" || d.Refresh != "15s" || d.SchemaVersion < 38 {
			t.Errorf("%s: id %v, uid %q, title %q, timezone %q, refresh %q, schema %d", d.file, d.ID, d.UID, d.Title, d.Timezone, d.Refresh, d.SchemaVersion)
		}
		uids[d.UID] = true
		if v := d.Templating.List[0]; v.Name != "datasource" || v.Type != "datasource" || string(v.Query) != `"prometheus"` {
			t.Errorf("%s: its first variable is %+v", d.file, v)
		}
		ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
		for _, p := range d.Panels {
			where := d.file + ", " + p.Title
			if p.ID == 0 || ids[p.ID] || p.Title == "" || titles[p.Title] {
				t.Errorf("%s: id %d or its title stands twice", where, p.ID)
			}
			ids[p.ID], titles[p.Title] = true, true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s lies on %q, or outside", where, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			if p.Type == "row" {
				continue
			}
			if p.FieldConfig.Defaults.Unit == "" || p.Datasource != (datasource{"prometheus", "${datasource}"}) || len(p.Targets) == 0 {
				t.Errorf("%s: unit %q, data source %v, %d queries", where, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
			}
			if !regexp.MustCompile(`(?s)^\*\*Means\.\*\* .+\n\n\*\*Cannot say\.\*\* .+\n\n\*\*When it is bad\.\*\* .+$`).MatchString(p.Description) {
				t.Errorf("%s: its description lacks what it means, what it cannot say, or what to do: %s", where, p.Description)
			}
			refs := map[string]bool{}
			for _, q := range p.Targets {
				if refs[q.RefID] || q.Legend == "" || q.Datasource != p.Datasource || (q.Format == "heatmap") != (p.Type == "heatmap") {
					t.Errorf("%s: query %+v", where, q)
				}
				refs[q.RefID] = true
			}
		}
	}
}

// Commands that a description names are there, with their flags.
func TestDashboardsNameCommands(t *testing.T) {
	named := regexp.MustCompile("`whylate ([a-z]+)((?: --?[a-z]+| [a-z]+)*)`")
	for _, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, m := range named.FindAllStringSubmatch(p.Description, -1) {
				var out bytes.Buffer
				if status := cli.Main([]string{m[1], "--help"}, nil, &out, &out); status != cli.ExitOK || !strings.Contains(out.String(), "whylate "+m[1]) {
					t.Errorf("%s, %s: there is no %s\n%s", d.file, p.Title, m[0], &out)
				}
				for word := range strings.FieldsSeq(m[2]) {
					if !strings.Contains(out.String(), word) {
						t.Errorf("%s, %s: %s knows no %s", d.file, p.Title, m[0], word)
					}
				}
			}
		}
	}
}

// scrapeInterval is a data source's in Grafana unless somebody changes it.
const scrapeInterval = 15 * time.Second

// step is the time between two points of a query in a panel of an hour, and rate what Grafana puts in the place of $__rate_interval.
func (q target) step(t *testing.T) (step, rate time.Duration) {
	t.Helper()
	least := scrapeInterval
	if q.Interval != "" {
		d, err := model.ParseDuration(q.Interval)
		if err != nil {
			t.Fatal(err)
		}
		least = time.Duration(d)
	}
	step = max(least, 15*time.Second)
	return step, max(step+least, 4*least)
}

// fill puts values in the place of variables, as Grafana does.
func (q target) fill(t *testing.T, values map[string]string) string {
	t.Helper()
	step, rate := q.step(t)
	expr := strings.NewReplacer("$__rate_interval", model.Duration(rate).String(), "$__interval", model.Duration(step).String()).Replace(q.Expr)
	return os.Expand(expr, func(name string) string {
		v, ok := values[name]
		if !ok {
			t.Errorf("%s: there is no variable %s", q.Expr, name)
		}
		return v
	})
}

// all are the values of variables when All is chosen.
func (d dashboard) all() map[string]string {
	values := map[string]string{}
	for _, v := range d.Templating.List[1:] {
		values[v.Name] = v.AllValue
	}
	return values
}

func TestDashboardsOnAFleet(t *testing.T) {
	f := newFleet(t)
	t.Run("show what is there", func(t *testing.T) { showWhatIsThere(t, f) })
	t.Run("are honest", func(t *testing.T) { areHonest(t, f) })
	t.Run("say what is so", func(t *testing.T) { sayWhatIsSo(t, f) })
	t.Run("labels get in", func(t *testing.T) {
		for _, r := range f.refused {
			if r.Why != "sent as other" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// Every query is executed over what an engine, a GPU exporter, a gateway and whylate itself send, by the way that Grafana takes: none fails or
// draws a warning, none names what nobody sends, and none stays empty although what it names is there.
func showWhatIsThere(t *testing.T, fleet *fleet) {
	for _, d := range dashboards(t) {
		values, chosen := d.all(), map[string]string{}
		for _, v := range d.Templating.List[1:] {
			found := fleet.values(t, v)
			if len(found) == 0 || !v.IncludeAll || v.Type != "query" || v.Datasource.UID != "${datasource}" {
				t.Errorf("%s: variable %s finds %q", d.file, v.Name, found)
			}
			for i := range found {
				found[i] = strings.ReplaceAll(regexp.QuoteMeta(found[i]), `\`, `\\`)
			}
			chosen[v.Name] = "(" + strings.Join(found, "|") + ")"
		}
		for _, p := range d.Panels {
			shown := p.Type == "row"
			for _, q := range p.Targets {
				where := fmt.Sprintf("%s, %s, %s", d.file, p.Title, q.RefID)
				expr := q.fill(t, values)
				names, present := fleet.names(t, where, expr)
				for _, n := range names {
					if !fleet.knows(n) {
						t.Errorf("%s: nobody sends %s", where, n)
					}
				}
				step, _ := q.step(t)
				n := fleet.ask(t, where, expr, step)
				if present && n == 0 {
					t.Errorf("%s is empty, although %q are there: %s", where, names, expr)
				}
				if !present {
					t.Logf("%s: not in the fixtures: %q", where, names)
				}
				shown = shown || n > 0
				if n > 0 && fleet.ask(t, where, q.fill(t, chosen), step) == 0 {
					t.Errorf("%s is empty when every value is chosen by name", where)
				}
			}
			if !shown {
				t.Errorf("%s, %s shows nothing", d.file, p.Title)
			}
		}
	}
}

// A stuck engine is told from one that works, and a share within an objective is the one that was counted.
func sayWhatIsSo(t *testing.T, f *fleet) {
	said := map[string]float64{}
	queries(dashboards(t), func(_ string, p panel, q target) {
		if p.Title != "Running requests and no token" && p.Title != "Share within each objective" {
			return
		}
		var vector struct{ Result model.Vector }
		f.get(t, "/query?"+url.Values{"time": {seconds(f.till)}, "query": {q.fill(t, map[string]string{"model": ".*", "deployment": ".*"})}}.Encode(), &vector)
		for _, s := range vector.Result {
			said[cmp.Or(string(s.Metric["instance"]), q.Legend)] = math.Round(100 * float64(s.Value))
		}
	})
	// of 600 requests 333 had their first token within 1 s and 408 a mean gap of at most 50 ms; 100 is 1 of the panel of stuck engines
	want := map[string]float64{"atlas-0:8000": 0, "atlas-2:8000": 100, "first token": 56, "per output token": 68, "whole request": 100}
	if !maps.Equal(said, want) {
		t.Errorf("%v, want %v", said, want)
	}
}

// What makes a query lie is in none: see each check.
func areHonest(t *testing.T, fleet *fleet) {
	queries(dashboards(t), func(where string, p panel, q target) {
		expr, err := metrics.Parser().ParseExpr(q.fill(t, map[string]string{"model": ".*", "deployment": ".*", "node": ".*", "instance": ".*"}))
		if err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		parser.Inspect(expr, func(n parser.Node, above []parser.Node) error {
			switch n := n.(type) {
			case *parser.Call:
				if n.Func.Name == "vector" || n.Func.Name == "absent" {
					t.Errorf("%s: %s makes a value of nothing", where, n)
				}
				if n.Func.Name == "histogram_quantile" && slices.ContainsFunc(above, isAggregate) {
					t.Errorf("%s: quantiles are added up or averaged", where)
				}
				if n.Func.Name == "histogram_quantile" && !regexp.MustCompile(`(?i)interpolated.*(at most|at least)`).MatchString(p.Description) {
					t.Errorf("%s: the description does not say that the quantile is interpolated, and where it ends", where)
				}
			case *parser.VectorSelector:
				selected(t, fleet, where, p, q, n, above)
			}
			return nil
		})
	})
}

func isAggregate(n parser.Node) bool { _, ok := n.(*parser.AggregateExpr); return ok }

// selected checks how a series is used.
func selected(t *testing.T, f *fleet, where string, p panel, q target, v *parser.VectorSelector, above []parser.Node) {
	t.Helper()
	name := v.Name
	grows := f.counters[base(name)] || f.counters[name]
	s := metrics.SignalOf(name)
	if s != nil {
		grows = s.Kind == signals.Counter || s.Kind == signals.Histogram
		if q.Interval != "1m" && slices.ContainsFunc(above, func(n parser.Node) bool { m, ok := n.(*parser.MatrixSelector); return ok && m.Range < 4*time.Minute }) {
			t.Errorf("%s: a range over %s, a point a minute, needs the min step 1m", where, name)
		}
	}
	var function string
	for _, n := range above {
		if c, ok := n.(*parser.Call); ok && slices.Contains([]string{"rate", "increase"}, c.Func.Name) {
			function = c.Func.Name
		}
	}
	switch {
	case grows && function == "" && !inCall(above, "count_over_time"):
		t.Errorf("%s: the level of the counter %s says nothing", where, name)
	case !grows && function != "":
		t.Errorf("%s: %s of %s, which is no counter", where, function, name)
	}
	for _, n := range above {
		a, ok := n.(*parser.AggregateExpr)
		if !ok || s == nil {
			continue
		}
		adds := a.Op == parser.SUM || a.Op == parser.AVG
		if adds && s.Add != signals.Sum && !(p.Title == "Output per GPU activity" && s.Name == "gpu.sm_active") { // shares of whole GPUs, added up, are how many of them were active
			t.Errorf("%s: %s adds up %s, which does not add", where, a, s.Name)
		}
		if adds && s.Scope == signals.OfEngine && !slices.Contains(a.Grouping, "producer") {
			t.Errorf("%s: %s adds up engines and the front ends before them, which tell of the same", where, a)
		}
		if adds && s.Kind == signals.Histogram && strings.HasSuffix(name, "_bucket") && !slices.Contains(a.Grouping, "native") {
			t.Errorf("%s: %s mixes bounds of different producers", where, a)
		}
	}
}

func inCall(above []parser.Node, function string) bool {
	return slices.ContainsFunc(above, func(n parser.Node) bool { c, ok := n.(*parser.Call); return ok && c.Func.Name == function })
}

func base(name string) string {
	b, _ := exposition.Split(name)
	return b
}

// Counters that move only when an answer ends are no sign that nothing comes out.
func TestDashboardsLeaveOutLateCounters(t *testing.T) {
	queries(dashboards(t), func(where string, p panel, q target) {
		if p.Title != "Running requests and no token" {
			return
		}
		for i := range signals.All() {
			for _, n := range signals.All()[i].From {
				if n.Late && signals.All()[i].Name == "tokens.generated" && !strings.Contains(q.Expr, n.Name) {
					t.Errorf("%s does not leave out %s", where, n.Name)
				}
			}
		}
	})
}

// 'whylate look' finds nothing to say of the queries, on a fleet that sends all that they name natively.
func TestDashboardsBeforeLook(t *testing.T) {
	dir := t.TempDir()
	copyTo := func(name, from string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(read(t, from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copyTo("engine.prom", "../look/testdata/vllm-0.32.0.prom")
	copyTo("gpu.prom", "testdata/dcgm.prom")
	facts := func() (texts []string) {
		inputs, err := look.Files(dir)
		if err != nil {
			t.Fatal(err)
		}
		scene, err := look.Read(t.Context(), inputs, look.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range look.Judge(scene).Facts {
			if f.ID == "queries" || strings.Contains(f.Text+f.Do+f.Instead, ".promql") {
				texts = append(texts, f.Text)
			}
		}
		return texts
	}
	for _, d := range dashboards(t) {
		var lines strings.Builder
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				fmt.Fprintf(&lines, "# panel: %s\n%s\n", p.Title, q.fill(t, d.all()))
			}
		}
		if err := os.WriteFile(filepath.Join(dir, strings.TrimSuffix(filepath.Base(d.file), ".json")+".promql"), []byte(lines.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found := facts(); len(found) > 0 {
		t.Errorf("look says:\n%s", strings.Join(found, "\n"))
	}
	if err := os.WriteFile(filepath.Join(dir, "wrong.promql"), []byte("rate(vllm:request_prompt_tokens_sum[5m])\nrate(vllm:gpu_cache_usage_perc[5m])\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if found := facts(); len(found) < 2 {
		t.Errorf("look does not see wrong queries: %q", found)
	}
}

// values are a variable's, as Grafana asks for them.
func (f *fleet) values(t *testing.T, v variable) []string {
	t.Helper()
	m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition)
	if m == nil {
		t.Fatalf("%s is asked for by %q", v.Name, v.Definition)
	}
	var found []string
	f.get(t, "/label/"+m[2]+"/values?"+url.Values{"match[]": {m[1]}, "start": {seconds(f.from)}, "end": {seconds(f.till)}}.Encode(), &found)
	return found
}

// ask is how many values a query of a panel has that are numbers.
func (f *fleet) ask(t *testing.T, where, expr string, step time.Duration) (n int) {
	t.Helper()
	resp, err := http.PostForm(f.api+"/query_range", url.Values{"query": {expr}, "start": {seconds(f.from)}, "end": {seconds(f.till)}, "step": {fmt.Sprint(step.Seconds())}})
	if err != nil {
		t.Fatal(err)
	}
	var matrix struct {
		ResultType string `json:"resultType"`
		Result     []struct {
			Values []model.SamplePair `json:"values"`
		} `json:"result"`
	}
	f.decode(t, where+": "+expr, resp, &matrix)
	for _, series := range matrix.Result {
		for _, v := range series.Values {
			if !math.IsNaN(float64(v.Value)) {
				n++
			}
			if math.IsInf(float64(v.Value), 0) {
				t.Errorf("%s is infinite", where)
				return n
			}
		}
	}
	return n
}

func (f *fleet) get(t *testing.T, path string, to any) {
	t.Helper()
	resp, err := http.Get(f.api + path)
	if err != nil {
		t.Fatal(err)
	}
	f.decode(t, path, resp, to)
}

func (f *fleet) decode(t *testing.T, where string, resp *http.Response, to any) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Status, Error   string
		Data            json.RawMessage
		Warnings, Infos []string
	}
	if err := json.Unmarshal(b, &answer); err != nil {
		t.Fatalf("%s: %v: %s", where, err, b)
	}
	if resp.StatusCode != http.StatusOK || answer.Status != "success" || len(answer.Warnings)+len(answer.Infos) > 0 {
		t.Errorf("%s: %s %s %q %q", where, resp.Status, answer.Error, answer.Warnings, answer.Infos)
		return
	}
	if err := json.Unmarshal(answer.Data, to); err != nil {
		t.Fatalf("%s: %v", where, err)
	}
}

func seconds(at time.Time) string { return fmt.Sprint(at.Unix()) }

// names are the metrics that a query reads, and whether all of them are in the store; of alternatives one is enough.
func (f *fleet) names(t *testing.T, where, query string) (names []string, present bool) {
	t.Helper()
	expr, err := metrics.Parser().ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil, false
	}
	present = true
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		alternatives := []string{v.Name}
		for _, m := range v.LabelMatchers {
			if m.Name == model.MetricNameLabel && m.Type == labels.MatchRegexp {
				alternatives = strings.Split(m.Value, "|")
			}
		}
		names = append(names, alternatives...)
		present = present && slices.ContainsFunc(alternatives, func(n string) bool { return f.stored[n] })
		return nil
	})
	return names, present
}

// knows reports whether somebody may send a metric: whoever is in the fixtures, or is registered.
func (f *fleet) knows(name string) bool {
	return f.stored[name] || f.own[base(name)] || f.own[name] || metrics.SignalOf(name) != nil || signals.Sent(base(name)) != nil
}
