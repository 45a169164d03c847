package look

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/logline"
)

// Options say how inputs are read.
type Options struct {
	Interval time.Duration  // between scrapes of one target where nothing says it; 0 = it stays unknown
	Most     int64          // bytes of one input that is no log, unpacked; 0 = 256 MiB. A log is read line by line
	Zone     *time.Location // of times in logs that come without one; nil = it stays unknown
	Now      time.Time      // when it is looked at: how old what a log says is; zero = that is not said
}

// Read reads inputs into a scene. What cannot be read of one is told in its source, and costs nothing else.
func Read(ctx context.Context, inputs []Input, o Options) (*Scene, error) {
	if o.Most == 0 {
		o.Most = 256 << 20
	}
	r := reader{scene: &Scene{now: o.Now}, options: o, scrapes: map[string]int{}}
	for _, in := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.read(in)
	}
	r.tracks.Assemble()
	r.scene.Tracks = append(r.tracks.All, r.scene.Tracks...)
	r.scene.understand()
	if len(r.spans) > 0 {
		r.scene.Traces = genai.Calls(r.spans)
	}
	return r.scene, nil
}

type reader struct {
	scene   *Scene
	options Options
	tracks  dialects.Tracks
	scrapes map[string]int // by target
	spans   []genai.Span
}

func (r *reader) read(in Input) {
	src := Source{Name: in.Name, Target: in.Target}
	b, err := r.content(in, &src)
	switch {
	case err != nil:
		src.Kind = "unreadable"
		src.Problems = append(src.Problems, err.Error())
	case src.Kind == "":
		r.recognise(in, &src, b)
	}
	r.scene.Sources = append(r.scene.Sources, src)
}

// content is what an input holds, unpacked, up to the limit. It is nil where it was a log and has been taken line by line.
func (r *reader) content(in Input, src *Source) ([]byte, error) {
	f, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, done, err := logline.Unpack(f, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	if !isQueries(in) && r.log(in, src, text) {
		return nil, nil
	}
	b, err := io.ReadAll(io.LimitReader(text, r.options.Most+1))
	if err != nil {
		return nil, fmt.Errorf("after %d bytes: %w", len(b), err)
	}
	if int64(len(b)) > r.options.Most {
		return nil, fmt.Errorf("over %d MiB unpacked: cut it, or read a part", r.options.Most>>20)
	}
	return b, nil
}

func isQueries(in Input) bool { return filepath.Ext(in.Name) == ".promql" }

// recognise decides by content what an input is. Names decide only where content cannot: a file of queries is text like any other.
func (r *reader) recognise(in Input, src *Source, b []byte) {
	text := bytes.TrimLeft(b, " \t\r\n\ufeff")
	switch {
	case len(text) == 0:
		src.Kind = "empty"
		src.Problems = append(src.Problems, "it is empty: absent, not zero")
	case isQueries(in):
		src.Kind = "queries"
		r.queries(in.Name, string(b))
	case text[0] == '{' || text[0] == '[':
		r.json(in, src, text)
	case text[0] == '<':
		src.Kind = "HTML"
		src.Problems = append(src.Problems, "a web page, no metrics: a login page, a proxy's error, or the wrong path ('/metrics' is usual)")
	case r.table(in, src, text):
	default:
		r.page(in, src, b)
	}
}

func (r *reader) page(in Input, src *Source, b []byte) {
	page := exposition.Read(b)
	src.Kind = "metrics"
	for _, p := range page.Problems {
		src.Problems = append(src.Problems, p.String())
	}
	if len(page.Families) == 0 {
		src.Kind = "unknown"
		src.Problems = []string{"neither metrics nor anything else that is known"}
		return
	}
	at := in.At
	if at == 0 && r.options.Interval > 0 {
		at = int64(1+r.scrapes[in.Target]) * int64(r.options.Interval)
	}
	r.scrapes[in.Target]++
	for _, f := range page.Families {
		for _, s := range f.Samples {
			t := r.tracks.Track(in.Target, f.Name, f.Type, s.Labels)
			t.Points = append(t.Points, adapter.Point{At: cmp.Or(s.At*1e6, at), Value: s.Value, Text: s.Text})
		}
		for _, h := range f.Histograms {
			t := r.tracks.Track(in.Target, f.Name, f.Type, h.Labels)
			t.Hists = append(t.Hists, adapter.HistPoint{At: at, Hist: h})
		}
		for _, n := range f.NaN {
			r.tracks.Track(in.Target, f.Name, f.Type, n.Labels).NaN++
		}
	}
}

func (r *reader) json(in Input, src *Source, b []byte) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   *struct {
			ResultType string         `json:"resultType"`
			Result     []promqlSeries `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(b, &answer) == nil && answer.Status != "" {
		src.Kind = "Prometheus answer"
		if answer.Status != "success" || answer.Data == nil {
			src.Problems = append(src.Problems, "the query failed: "+exposition.Printable(answer.Error, 200))
			return
		}
		for _, series := range answer.Data.Result {
			r.series(in.Target, src, series)
		}
		return
	}
	if bytes.Contains(b[:min(len(b), sniffed)], []byte(`"resourceSpans"`)) {
		r.traces(src, b)
		return
	}
	if it, err := trtllm.ReadIterations(in.Target, b); err == nil {
		src.Kind = "iteration statistics of TensorRT-LLM"
		r.scene.Iterations = append(r.scene.Iterations, Iterations{in.Target, it})
		r.scene.Tracks = append(r.scene.Tracks, it.Tracks...)
		return
	}
	src.Kind = "JSON"
	src.Problems = append(src.Problems, "JSON of a kind that is not known")
}

// queries takes a file of queries: one a line, a comment "# panel: NAME" names the next.
func (r *reader) queries(source, text string) {
	panel := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		comment, isComment := strings.CutPrefix(line, "#")
		switch {
		case line == "":
		case isComment:
			if name, ok := strings.CutPrefix(strings.TrimSpace(comment), "panel:"); ok {
				panel = strings.TrimSpace(name)
			}
		default:
			r.scene.Queries = append(r.scene.Queries, Query{source, i + 1, panel, line})
			panel = ""
		}
	}
}

// Of is the scene of series that were read elsewhere.
func Of(tracks []*adapter.Track, now time.Time) *Scene {
	s := &Scene{Tracks: tracks, now: now}
	s.understand()
	return s
}

// understand lets the adapters read what is theirs.
func (s *Scene) understand() {
	all := dialects.Read(s.Tracks)
	loneRanks(all)
	s.Readings = adapter.Best(slices.Clone(all))
	if len(s.Readings) == len(all) {
		return
	}
	best := map[*adapter.Reading]bool{}
	for _, r := range s.Readings {
		best[r] = true
	}
	s.outdone = slices.DeleteFunc(all, func(r *adapter.Reading) bool { return best[r] })
}

// loneRanks forgets the rank of an engine that has no other: a number for which there is no second says nothing.
func loneRanks(rs []*adapter.Reading) {
	ranks := map[[2]string]map[string]bool{}
	for _, r := range rs {
		key := [2]string{r.Target, r.Who.Model}
		if ranks[key] == nil {
			ranks[key] = map[string]bool{}
		}
		ranks[key][r.Who.Rank] = true
	}
	for _, r := range rs {
		if len(ranks[[2]string{r.Target, r.Who.Model}]) == 1 {
			r.Who.Rank = ""
		}
	}
}
