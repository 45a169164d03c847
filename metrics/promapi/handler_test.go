package promapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/promapi"
)

var began = time.Unix(1_796_000_000, 0)

// serve is a server over what answering answers from.
func serve(t testing.TB) string {
	s := httptest.NewServer(answering(t, metrics.Limits{}))
	t.Cleanup(s.Close)
	return s.URL + promapi.Prefix
}

// answering answers from two engines' series of ten minutes and a native histogram.
func answering(t testing.TB, limits metrics.Limits) http.Handler {
	t.Helper()
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Query: limits})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	app := db.Appendable("test").AppenderV2(context.Background())
	for i := range 41 {
		at := began.Add(time.Duration(i) * 15 * time.Second).UnixMilli()
		put := func(v float64, fh *histogram.FloatHistogram, ls ...string) {
			if _, err := app.Append(0, labels.FromStrings(ls...), 0, at, v, nil, fh, storage.AppendV2Options{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, instance := range []string{"a:8000", "b:8000"} {
			put(float64(i), nil, "__name__", "vllm:num_requests_running", "instance", instance, "model_name", "tiny")
		}
		put([]float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e-7}[i%4], nil, "__name__", "odd", "instance", "a:8000")
		put(0, &histogram.FloatHistogram{Count: float64(3 * (i + 1)), Sum: 7, Schema: 0, PositiveSpans: []histogram.Span{{Offset: 0, Length: 2}}, PositiveBuckets: []float64{float64(i + 1), 2 * float64(i+1)}},
			"__name__", "native", "instance", "a:8000")
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	return promapi.New(db, promapi.Options{Version: "test", Started: began, Now: func() time.Time { return began.Add(10 * time.Minute) }, Flags: map[string]string{"metrics.retention.detail": "7d"},
		Targets: func() []promapi.Target {
			return []promapi.Target{{Health: "up", ScrapePool: "vllm", Labels: labels.FromStrings("job", "vllm")}}
		}})
}

func get(t testing.TB, address string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, resp)
}

func read(t testing.TB, resp *http.Response) (int, string) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(b) {
		t.Errorf("no JSON: %s", b)
	}
	return resp.StatusCode, string(b)
}

// The answers are, byte for byte, what Prometheus's own handler gives.
func TestAnswers(t *testing.T) {
	base := serve(t)
	q := url.QueryEscape
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/query?query=1%2B1&time=0":                                         {200, `{"status":"success","data":{"resultType":"scalar","result":[0,"2"]}}`},
		"/query?query=" + q(`"x"`) + "&time=1.5":                            {200, `{"status":"success","data":{"resultType":"string","result":[1.500,"x"]}}`},
		"/query?query=" + q(`sum(vllm:num_requests_running)`):               {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1796000600,"80"]}]}}`},
		"/query?query=" + q(`vllm:num_requests_running{instance="a:8000"}`): {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"vllm:num_requests_running","instance":"a:8000","model_name":"tiny"},"value":[1796000600,"40"]}]}}`},
		"/query?query=" + q(`odd[46s]`) + "&time=1796000585":                {200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"odd","instance":"a:8000"},"values":[[1796000540,"NaN"],[1796000555,"+Inf"],[1796000570,"-Inf"],[1796000585,"1e-07"]]}]}}`},
		"/query?query=" + q(`native`):                                       {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"native","instance":"a:8000"},"histogram":[1796000600,{"count":"123","sum":"7","buckets":[[0,"0.5","1","41"],[0,"1","2","82"]]}]}]}}`},
		"/query?query=none":                                                 {200, `{"status":"success","data":{"resultType":"vector","result":[]}}`},
		"/query?query=vllm:num_requests_running&limit=1":                    {200, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"vllm:num_requests_running","instance":"a:8000","model_name":"tiny"},"value":[1796000600,"40"]}]},"warnings":["results truncated due to limit"]}`},
		"/query_range?query=" + q(`sum(vllm:num_requests_running)`) + "&start=1796000000&end=1796000030&step=15": {200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1796000000,"0"],[1796000015,"2"],[1796000030,"4"]]}]}}`},
		"/query_range?query=up&start=2&end=1&step=15":                                                            {400, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"end\": end timestamp must not be before start time"}`},
		"/query_range?query=up&start=1&end=2&step=0":                                                             {400, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"step\": zero or negative query resolution step widths are not accepted. Try a positive integer"}`},
		"/query_range?query=up&start=0&end=1000000&step=1":                                                       {400, `{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"}`},
		"/query?query=" + q(`sum(`):                                                                              {400, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:5: parse error: unclosed left parenthesis"}`},
		"/query?query=up&time=x":                                                                                 {400, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"time\": invalid time value for 'time': cannot parse \"x\" to a valid timestamp"}`},
		"/query?query=" + q(`vllm:num_requests_running * on(model_name) vllm:num_requests_running`):              {422, ""},
		"/query?query=" + q(`rate(vllm:num_requests_running[5m])`):                                               {200, ""},
		"/labels":                                   {200, `{"status":"success","data":["__name__","instance","model_name"]}`},
		"/label/instance/values?match[]=odd":        {200, `{"status":"success","data":["a:8000"]}`},
		"/label/instance/values?limit=1":            {200, `{"status":"success","data":["a:8000"],"warnings":["results truncated due to limit"]}`},
		"/series":                                   {400, `{"status":"error","errorType":"bad_data","error":"no match[] parameter provided"}`},
		"/series?match[]=odd":                       {200, `{"status":"success","data":[{"__name__":"odd","instance":"a:8000"}]}`},
		"/series?match[]=" + q(`{a=~".*"}`):         {400, ""},
		"/format_query?query=" + q(`sum  by(a)(x)`): {200, `{"status":"success","data":"sum by (a) (x)"}`},
		"/query_exemplars?query=up":                 {200, `{"status":"success","data":[]}`},
		"/rules":                                    {200, `{"status":"success","data":{"groups":[]}}`},
		"/alerts":                                   {200, `{"status":"success","data":{"alerts":[]}}`},
		"/status/flags":                             {200, `{"status":"success","data":{"metrics.retention.detail":"7d"}}`},
		"/metadata?metric=whylate_request_running":  {200, `{"status":"success","data":{"whylate_request_running":[{"type":"gauge","unit":"","help":"How many sequences share each iteration?"}]}}`},
		"/status/tsdb":                              {200, ""},
		"/status/runtimeinfo":                       {200, ""},
		"/targets":                                  {200, ""},
		"/admin/tsdb/snapshot":                      {404, ""},
	} {
		status, body := get(t, base+path)
		if status != want.status || want.body != "" && body != want.body {
			t.Errorf("%s: %d\n got %s\nwant %s", path, status, body, want.body)
		}
	}
}

func TestPostedAndCompressed(t *testing.T) {
	base := serve(t)
	resp, err := http.PostForm(base+"/query", url.Values{"query": {"sum(vllm:num_requests_running)"}})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := read(t, resp); status != 200 || !strings.Contains(body, `"80"`) || !resp.Uncompressed {
		t.Errorf("%d %s, compressed %t", status, body, resp.Uncompressed)
	}
	resp, err = http.PostForm(base+"/query", url.Values{"query": {strings.Repeat("1+", 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := read(t, resp); status != 400 {
		t.Errorf("%d %s", status, body)
	}
}

func TestStatsAndNotes(t *testing.T) {
	base := serve(t)
	if _, body := get(t, base+"/query?query=odd&stats=all"); !strings.Contains(body, `"totalQueryableSamples"`) {
		t.Error(body)
	}
	if _, body := get(t, base+"/query?query="+url.QueryEscape(`rate(odd[5m])`)); !strings.Contains(body, `"infos":["PromQL info: metric might not be a counter`) {
		t.Error(body)
	}
	if status, body := get(t, base+"/query?query=odd&timeout=0.000000001"); status != 503 || !strings.Contains(body, `"errorType":"timeout"`) {
		t.Error(status, body)
	}
}

// A query that is deep costs the square of its depth, and neither parser nor engine looks at the clock meanwhile.
func TestLongQueriesAreRefused(t *testing.T) {
	base := serve(t)
	for path, form := range map[string]url.Values{
		"/query":        {"query": {strings.Repeat("(", 150_000) + "1" + strings.Repeat(")", 150_000)}},
		"/format_query": {"query": {strings.Repeat("-", 900_000) + "up"}},
		"/query_range":  {"query": {"up" + strings.Repeat("-1", 400_000)}, "start": {"0"}, "end": {"1"}, "step": {"1"}},
		"/series":       {"match[]": slices.Repeat([]string{"up"}, 6_000)},
	} {
		resp, err := http.PostForm(base+path, form)
		if err != nil {
			t.Fatal(err)
		}
		if status, body := read(t, resp); status != 400 || !strings.Contains(body, "more than 5000 words and signs") {
			t.Errorf("%s: %d %.200s", path, status, body)
		}
	}
	many := `vllm:num_requests_running{instance=~"` + strings.Repeat("10.0.0.1:8000|", 20_000) + `a:8000"}` // one word, however long
	resp, err := http.PostForm(base+"/query", url.Values{"query": {many}})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := read(t, resp); status != 200 || !strings.Contains(body, `"a:8000"`) {
		t.Errorf("%d %.200s", status, body)
	}
}

// slowReader takes nothing of an answer until it may.
type slowReader struct {
	*httptest.ResponseRecorder
	began, may chan struct{}
	once       sync.Once
}

func (s *slowReader) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	<-s.may
	return s.ResponseRecorder.Write(b)
}

func TestALargeAnswerKeepsItsPlace(t *testing.T) {
	h := answering(t, metrics.Limits{Concurrent: 1})
	ask := func(ctx context.Context, w http.ResponseWriter, path string) {
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, promapi.Prefix+path, nil))
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	all := "query=" + url.QueryEscape(`{__name__=~".+"}`)
	for path, meanwhile := range map[string]int{
		"/query?" + all: 200,
		"/query_range?start=1796000000&end=1796000600&step=0.055&" + all: 499,
	} {
		slow := &slowReader{ResponseRecorder: httptest.NewRecorder(), began: make(chan struct{}), may: make(chan struct{})}
		var done sync.WaitGroup
		done.Go(func() { ask(t.Context(), slow, path) })
		<-slow.began
		other, ctx := httptest.NewRecorder(), t.Context()
		if meanwhile != 200 {
			ctx = impatient
		}
		if ask(ctx, other, "/labels"); other.Code != meanwhile {
			t.Errorf("while %s is taken: %d %s", path, other.Code, other.Body)
		}
		close(slow.may)
		done.Wait()
		if slow.Code != 200 || !json.Valid(slow.Body.Bytes()) {
			t.Errorf("%s: %d, %d bytes", path, slow.Code, slow.Body.Len())
		}
	}
	w := httptest.NewRecorder()
	if ask(t.Context(), w, "/labels"); w.Code != 200 {
		t.Errorf("after it: %d %s", w.Code, w.Body)
	}
}

// gone takes a little and then nothing more.
type gone struct {
	*httptest.ResponseRecorder
	writes int
}

func (g *gone) Write(b []byte) (int, error) {
	if g.writes++; g.writes > 2 {
		return 0, io.ErrClosedPipe
	}
	return len(b), nil
}

// What nobody takes any more is not gathered in memory: writing ends.
func TestAReaderThatIsGone(t *testing.T) {
	g := &gone{ResponseRecorder: httptest.NewRecorder()}
	answering(t, metrics.Limits{}).ServeHTTP(g, httptest.NewRequest(http.MethodGet, promapi.Prefix+"/query_range?query="+url.QueryEscape(`{__name__=~".+"}`)+"&start=1796000000&end=1796000600&step=0.055", nil))
	if g.writes > 4 {
		t.Errorf("%d writes to whoever is gone", g.writes)
	}
}
