package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/internal/figure"
)

// enginePage is what one engine says: a scrape of a real vLLM, 430 series.
const enginePage = "look/testdata/vllm-0.32.0.prom"

// looking measures 'whylate look', the program itself, on a day of 100 engines: in a Prometheus, and as 50 saved scrapes of each.
func looking(s *figure.Sheet, engines int, every time.Duration) error {
	dir, err := os.MkdirTemp("", "whylate-look-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "whylate")
	if out, err := exec.Command("go", "build", "-o", program, "./cmd/whylate").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	series, err := engineSeries()
	if err != nil {
		return err
	}
	day, err := newDay(filepath.Join(dir, "tsdb"), series, engines, every)
	if err != nil {
		return err
	}
	defer day.db.Close()
	srv := httptest.NewServer(day)
	defer srv.Close()
	took, memory, text, err := timed(program, "look", srv.URL)
	if err != nil {
		return err
	}
	for _, want := range []string{"vLLM: ", fmt.Sprintf("%d targets", engines), "restarted: its process began"} {
		if !strings.Contains(text, want) {
			return fmt.Errorf("the answer does not say %q after %v:\n%s", want, took, text)
		}
	}
	s.Report("look/day_100_engines_samples", float64(day.samples), "count")
	s.Report("look/day_100_engines_queries", float64(day.queries), "count")
	s.Report("look/day_100_engines_answers", float64(day.bytes)/1e6, "MB")
	s.Report("look/day_100_engines_in_prometheus", day.busy.Seconds(), "s")
	s.AtMost("look/day_100_engines", took.Seconds(), "s", 30)
	s.Report("look/day_100_engines_memory", memory, "MB")

	pack := filepath.Join(dir, "scrapes.zip")
	if err := savedScrapes(pack, series, engines, 50); err != nil {
		return err
	}
	took, memory, _, err = timed(program, "look", pack)
	if err != nil {
		return err
	}
	s.AtMost("look/100_engines_50_scrapes", took.Seconds(), "s", 30)
	s.Report("look/100_engines_50_scrapes_memory", memory, "MB")
	return nil
}

// timed runs the program: how long it took, its memory at most in MB, and what it printed.
func timed(program string, args ...string) (time.Duration, float64, string, error) {
	cmd := exec.Command(program, args...)
	var out, bad bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &bad
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, "", err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var peak float64
	for {
		select {
		case err := <-done:
			if err != nil {
				return 0, 0, "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, bad.String())
			}
			return time.Since(begun), peak, out.String(), nil
		case <-again.C:
			peak = max(peak, highWater(cmd.Process.Pid))
		}
	}
}

// highWater is the most memory that a process has had so far, in MB. What the system tells of a process that has ended would be no less than its
// parent's, from which it was forked.
func highWater(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(b), "VmHWM:")
	var kB float64
	if _, err := fmt.Sscan(after, &kB); err != nil {
		return 0
	}
	return kB * 1024 / 1e6
}

// one is a series of an engine, as it stood on its page.
type one struct {
	labels labels.Labels
	text   string // as it is written
	value  float64
	kind   byte // 'c' it counts, 'g' it goes up and down, 's' it stays
}

func engineSeries() (list []one, err error) {
	page, err := os.ReadFile(enginePage)
	if err != nil {
		return nil, err
	}
	p := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var o one
		text, _, value := p.Series()
		p.Labels(&o.labels)
		o.text, o.value = string(text), value
		name := o.labels.Get("__name__")
		switch o.kind = 'g'; {
		case strings.HasSuffix(name, "_info"), strings.HasSuffix(name, "_created"), strings.HasPrefix(name, "process_"):
			o.kind = 's'
		case slices.ContainsFunc([]string{"_total", "_bucket", "_count", "_sum"}, func(s string) bool { return strings.HasSuffix(name, s) }):
			o.kind = 'c'
		}
		list = append(list, o)
	}
}

// at is the series' value of an engine when a share of the day is over. Buckets stay in order, for they all grow by the same law.
func (o *one) at(engine int, share float64, random *rand.Rand) float64 {
	switch o.kind {
	case 'c':
		return math.Floor(o.value * (1 + 100*share*(1+0.01*float64(engine))))
	case 'g':
		return o.value * (0.5 + random.Float64())
	}
	return o.value
}

// day is a day of engines in a Prometheus's own database, and its query API, as far as look uses it.
type day struct {
	db      *tsdb.DB
	engine  *promql.Engine
	names   []string
	samples int

	queries int
	bytes   int64
	busy    time.Duration
}

func newDay(dir string, series []one, engines int, every time.Duration) (*day, error) {
	o := tsdb.DefaultOptions()
	o.WALSegmentSize = -1                                             // it is not to outlive this run
	o.MinBlockDuration, o.MaxBlockDuration = 48*3600*1e3, 48*3600*1e3 // nor to be compacted in it
	db, err := tsdb.Open(dir, nil, nil, o, nil)
	if err != nil {
		return nil, err
	}
	d := &day{db: db, engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: 2 * time.Minute, Parser: parser.NewParser(parser.Options{})})}
	names := map[string]bool{}
	type ref struct {
		storage.SeriesRef
		labels labels.Labels
	}
	refs := make([]ref, engines*len(series))
	for e := range engines {
		for i, o := range series {
			b := labels.NewBuilder(o.labels)
			b.Set("instance", fmt.Sprintf("pod-%d:8000", e)).Set("job", "vllm")
			refs[e*len(series)+i].labels = b.Labels()
			names[o.labels.Get("__name__")] = true
		}
	}
	for name := range names {
		d.names = append(d.names, name)
	}
	slices.Sort(d.names)
	random := rand.New(rand.NewPCG(1, 2))
	end := time.Now()
	n := int(24 * time.Hour / every)
	for k := range n {
		at := end.Add(-time.Duration(n-1-k) * every)
		app := db.Appender(context.Background())
		for r := range refs {
			e, o := r/len(series), &series[r%len(series)]
			v := o.at(e, float64(k)/float64(n), random)
			if o.labels.Get("__name__") == "process_start_time_seconds" && e == 7 && k > n/2 {
				v = float64(end.Add(-12 * time.Hour).Unix()) // one engine was restarted at noon
			}
			if refs[r].SeriesRef, err = app.Append(refs[r].SeriesRef, refs[r].labels, at.UnixMilli(), v); err != nil {
				return nil, err
			}
			d.samples++
		}
		if err := app.Commit(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (d *day) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begun := time.Now()
	var b []byte
	switch r.URL.Path {
	case "/api/v1/label/__name__/values":
		b = append(b, `{"status":"success","data":["`+strings.Join(d.names, `","`)+`"]}`...)
	case "/api/v1/query_range":
		matrix, err := d.query(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		b = answer(matrix)
	default:
		http.NotFound(w, r)
		return
	}
	d.queries++
	d.bytes += int64(len(b))
	d.busy += time.Since(begun)
	w.Write(b)
}

func (d *day) query(r *http.Request) (promql.Matrix, error) {
	number := func(name string) float64 {
		v, _ := strconv.ParseFloat(r.FormValue(name), 64)
		return v
	}
	at := func(name string) time.Time { return time.UnixMilli(int64(1e3 * number(name))) }
	q, err := d.engine.NewRangeQuery(r.Context(), d.db, nil, r.FormValue("query"), at("start"), at("end"), time.Duration(number("step")*1e9))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	m, err := q.Exec(r.Context()).Matrix()
	for i := range m { // its points go back with the query
		m[i].Floats = slices.Clone(m[i].Floats)
	}
	return m, err
}

// answer writes a matrix as Prometheus does.
func answer(m promql.Matrix) []byte {
	b := []byte(`{"status":"success","data":{"resultType":"matrix","result":[`)
	for i, s := range m {
		if i > 0 {
			b = append(b, ',')
		}
		metric, _ := s.Metric.MarshalJSON()
		b = append(append(append(b, `{"metric":`...), metric...), `,"values":[`...)
		for k, p := range s.Floats {
			if k > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendFloat(append(b, '['), float64(p.T)/1e3, 'f', 3, 64)
			b = strconv.AppendFloat(append(b, `,"`...), p.F, 'f', -1, 64)
			b = append(b, `"]`...)
		}
		b = append(b, `]}`...)
	}
	return append(b, `]}}`...)
}

// savedScrapes writes pages of engines, a minute apart, as a bundle.
func savedScrapes(path string, series []one, engines, scrapes int) error {
	random := rand.New(rand.NewPCG(1, 2))
	text, err := os.ReadFile(enginePage)
	if err != nil {
		return err
	}
	var parts []bundle.Part
	for e := range engines {
		for k := range scrapes {
			var page bytes.Buffer
			i := 0
			for line := range bytes.Lines(text) {
				if line[0] == '#' {
					page.Write(line)
					continue
				}
				fmt.Fprintf(&page, "%s %v\n", series[i].text, series[i].at(e, float64(k)/1440, random))
				i++
			}
			parts = append(parts, bundle.Text(bundle.ScrapePath(fmt.Sprintf("pod-%d:8000", e), 1773219000000+60_000*int64(k)), page.Bytes()))
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(bundle.WriteZip(f, bundle.Manifest{Producer: "bench"}, parts), f.Close())
}
