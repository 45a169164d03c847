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
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/promapi"
)

var began = time.Unix(1_796_000_000, 0)

// serve is a server over two engines' series of ten minutes and a native histogram.
func serve(t testing.TB) string {
	t.Helper()
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
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
	s := httptest.NewServer(promapi.New(db, promapi.Options{Version: "test", Started: began, Now: func() time.Time { return began.Add(10 * time.Minute) }, Flags: map[string]string{"metrics.retention.detail": "7d"},
		Targets: func() []promapi.Target {
			return []promapi.Target{{Health: "up", ScrapePool: "vllm", Labels: labels.FromStrings("job", "vllm")}}
		}}))
	t.Cleanup(s.Close)
	return s.URL + promapi.Prefix
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
