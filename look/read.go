package look

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/adapter/dynamo"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/adapter/trtllm"
	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/logline"
)

// Options say how inputs are read.
type Options struct {
	Interval time.Duration  // between scrapes of one target where nothing says it; 0 = it stays unknown
	Most     int64          // bytes of one input that is no log, unpacked; 0 = 256 MiB. A log is read line by line
	Zone     *time.Location // of times in logs that come without one; nil = it stays unknown
	Good     Objectives     // of requests; zero = none are given
	Now      time.Time      // when it is looked at: how old what a log says is; zero = that is not said
}

// Read reads inputs into a scene. What cannot be read of one is told in its source, and costs nothing else.
func Read(ctx context.Context, inputs []Input, o Options) (*Scene, error) {
	if o.Most == 0 {
		o.Most = 256 << 20
	}
	r := reader{ctx: ctx, scene: &Scene{now: o.Now, objectives: o.Good}, options: o, scrapes: map[string]int{}}
	for _, in := range inputs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.read(in)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.tracks.Assemble()
	r.scene.Passes = r.passes.InOrder()
	r.scene.Tracks = slices.Concat(r.tracks.All, r.scene.Tracks, r.passes.Tracks())
	r.scene.understand()
	r.captured()
	if len(r.spans) > 0 {
		r.scene.Traces = genai.Calls(r.spans)
	}
	return r.scene, nil
}

// until is a reader that ends with its context.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

type reader struct {
	ctx     context.Context // ends a read in the middle of an input
	scene   *Scene
	options Options
	tracks  dialects.Tracks
	scrapes map[string]int // by target
	spans   []genai.Span
	frames  *ingest.Assembler // of captures; nil where there are none
	passes  dynamo.Passes     // a worker's go on from one file to the next
}

func (r *reader) read(in Input) {
	src := Source{Name: in.Name, Target: in.Target, from: in.From}
	if in.manifest != nil {
		r.scene.Bundles = append(r.scene.Bundles, Bundle{in.Name, in.From, in.manifest})
		return
	}
	if bundle.IsTruth(in.Name) {
		src.Kind, src.Target = "truth", ""
		r.scene.Sources = append(r.scene.Sources, src)
		return
	}
	b, err := r.content(in, &src)
	switch {
	case err != nil:
		src.Kind = cmp.Or(src.Kind, "unreadable")
		src.Problems = append(src.Problems, err.Error())
	case src.Kind == "":
		r.recognise(in, &src, b)
	}
	r.scene.Sources = append(r.scene.Sources, src)
}

// content is what an input holds, unpacked, up to the limit. It is nil where it was a log and has been taken line by line.
func (r *reader) content(in Input, src *Source) ([]byte, error) {
	if in.Refused != "" {
		return nil, errors.New(in.Refused)
	}
	f, err := in.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, done, err := logline.Unpack(until{r.ctx, f}, 0)
	if err != nil {
		return nil, err
	}
	defer done()
	head, _ := text.Peek(4096)
	switch bundle.Sniff(head) {
	case bundle.Capture:
		return nil, r.capture(in, src, text)
	case bundle.Ring:
		src.Kind = "ring"
		return nil, errors.New("a ring, which is read where it lies: 'whylate requests --from FOLDER'")
	case bundle.Archive:
		return nil, errors.New("a zip inside of another: unpack it")
	case bundle.Changes:
		return nil, r.changes(src, text)
	}
	if dynamo.ArePasses(head) {
		src.Kind = "forward-pass metrics"
		src.Problems = append(src.Problems, r.passes.Read(in.Target, text)...)
		return nil, nil
	}
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

// IsMetrics reports whether a text begins like a page of metrics.
func IsMetrics(head []byte) bool {
	if i := bytes.LastIndexByte(head, '\n'); i >= 0 {
		head = head[:i+1] // the last line may be cut
	}
	page := exposition.Read(head)
	return len(page.Families) > 0 && len(page.Problems) == 0
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
	case len(b) > 262 && string(b[257:262]) == "ustar":
		src.Kind = "archive"
		src.Problems = append(src.Problems, "a tar archive: unpack it, and give its folder")
	case text[0] == '<':
		src.Kind = "HTML"
		src.Problems = append(src.Problems, "a web page, no metrics: a login page, a proxy's error, or the wrong path ('/metrics' is usual)")
	case r.table(in, src, text):
	default:
		r.page(in, src, b)
	}
}

func (r *reader) page(in Input, src *Source, b []byte) {
	if text, ok := exposition.FromProtobuf(b); ok {
		b = text
	}
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
	src.Problems = append(src.Problems, noNumbers(page)...)
	federated := federates(page)
	for _, f := range page.Families {
		f.Name = dialects.Spelt(f.Name)
		if base := trim(f.Name); f.Type == exposition.Unknown && base != f.Name && page.Family(base) == nil && dialects.IsHistogram(base) { // a sum or a count, without buckets and undeclared
			for _, s := range f.Samples {
				_, put, _ := r.tracks.Series(speaker(in.Target, s.Labels, federated), f.Name, s.Labels)
				put(adapter.Point{At: cmp.Or(s.At*1e6, at), Value: s.Value})
			}
			continue
		}
		for _, s := range f.Samples {
			t := r.tracks.Track(speaker(in.Target, s.Labels, federated), f.Name, f.Type, s.Labels)
			t.Points = append(t.Points, adapter.Point{At: cmp.Or(s.At*1e6, at), Value: s.Value, Text: s.Text})
			if at == 0 {
				t.Order = append(t.Order, int32(r.scrapes[in.Target]))
			}
		}
		for _, h := range f.Histograms {
			t := r.tracks.Track(speaker(in.Target, h.Labels, federated), f.Name, f.Type, h.Labels)
			t.Hists = append(t.Hists, adapter.HistPoint{At: cmp.Or(h.At*1e6, at), Hist: likeBefore(t, h)})
		}
		for _, n := range f.NaN {
			r.tracks.Track(speaker(in.Target, n.Labels, federated), f.Name, f.Type, n.Labels).NaN++
		}
	}
}

// likeBefore is a histogram that shares with the one before it of its series what has not changed: fifty scrapes of a hundred engines have a
// million of them.
func likeBefore(t *adapter.Track, h exposition.Hist) exposition.Hist {
	h.Labels = t.Labels
	if n := len(t.Hists); n > 0 {
		before := &t.Hists[n-1]
		if slices.Equal(h.Bounds, before.Bounds) {
			h.Bounds = before.Bounds
		}
		if slices.Equal(h.Counts, before.Counts) {
			h.Counts = before.Counts
		}
	}
	return h
}

// noNumbers tell of registered metrics whose value is none, family by family, where the page's own problems do not yet.
func noNumbers(page *exposition.Page) (problems []string) {
	told := map[int]bool{}
	for _, p := range page.Problems {
		told[p.Line] = true
	}
	for _, f := range page.Families {
		left := slices.DeleteFunc(slices.Clone(f.NaN), func(n exposition.NotANum) bool { return told[n.Line] })
		if len(left) == 0 || !registered(f.Name) {
			continue
		}
		text := fmt.Sprintf("line %d: %s: not a number: it is unknown, not 0", left[0].Line, exposition.Printable(f.Name, 80))
		if len(left) > 1 {
			text += fmt.Sprintf(", and so are %d more of it", len(left)-1)
		}
		problems = append(problems, text)
	}
	return problems
}

// federates reports whether a page holds series of several targets, as a Prometheus's /federate does: then who speaks is in their labels.
func federates(page *exposition.Page) bool {
	first := ""
	for _, f := range page.Families {
		for _, s := range f.Samples {
			if instance := s.Labels.Get("instance"); instance != "" && s.Labels.Get("job") != "" {
				if first != "" && instance != first {
					return true
				}
				first = instance
			}
		}
	}
	return false
}

func speaker(target string, ls exposition.Labels, federated bool) string {
	if federated {
		return cmp.Or(ls.Get("instance"), target)
	}
	return target
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
		r.scene.asked = max(r.scene.asked, in.At)
		nameless := 0
		for _, series := range answer.Data.Result {
			if series.Metric["__name__"] == "" {
				nameless++
			}
			r.series(in.Target, src, series)
		}
		if nameless > 0 {
			src.Problems = append(src.Problems, plural(nameless, "series has", "series have")+" no name: the result of an expression (a rate, a sum), of which nobody can tell what it counts; ask for the metric itself")
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

// familyName is what may be one in a query.
var familyName = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

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
			r.scene.Queries = append(r.scene.Queries, Query{source, i + 1, panel, familyName.ReplaceAllStringFunc(line, dialects.Spelt)})
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

// understand lets the adapters read what is theirs, of metrics that have no crowd of series.
func (s *Scene) understand() {
	crowded := s.crowds()
	all := dialects.Read(slices.DeleteFunc(slices.Clone(s.Tracks), func(t *adapter.Track) bool { return crowded[t] }))
	tellApart(all)
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

// mostSeries of one metric at one target are understood: no engine has more, and each would be an engine of its own.
const mostSeries = 2000

// crowds are the series of metrics that have too many of them. They are counted (labelsExplode), and no evidence.
func (s *Scene) crowds() map[*adapter.Track]bool {
	n := map[[2]string]int{}
	for _, t := range s.Tracks {
		n[[2]string{t.Target, t.Family}]++
	}
	crowded := map[*adapter.Track]bool{}
	for _, t := range s.Tracks {
		if n[[2]string{t.Target, t.Family}] > mostSeries {
			crowded[t] = true
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(n), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) }) {
		if n[k] > mostSeries && producerOf(k[1]) != "" {
			s.Sources = append(s.Sources, Source{Name: k[0], Target: k[0], Kind: "metrics", Problems: []string{
				fmt.Sprintf("%s has %s series, and %s are understood of one metric: none of them is used", exposition.Printable(k[1], 80), count(float64(n[k])), count(mostSeries))}})
		}
	}
	return crowded
}

// tellApart gives each pod of a target that speaks for several, as a relabelled page of a whole namespace does, a target of its own.
func tellApart(rs []*adapter.Reading) {
	pods := map[string]map[string]bool{}
	for _, r := range rs {
		if isDevice(r) || r.Who.Workload == "" {
			continue
		}
		if pods[r.Target] == nil {
			pods[r.Target] = map[string]bool{}
		}
		pods[r.Target][r.Who.Workload] = true
	}
	for _, r := range rs {
		if !isDevice(r) && r.Who.Workload != "" && len(pods[r.Target]) > 1 {
			r.Target = r.Who.Workload
			r.Who.Target = r.Target
		}
	}
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
