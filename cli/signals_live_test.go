package cli

import (
	"bytes"
	"testing"

	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/look"
)

const aDay = int64(20_786 * 24 * 3600 * 1e9)

// What arrives, as it is printed. Names from outside are printed without what a terminal would obey.
func TestPrintArriving(t *testing.T) {
	l := &api.SignalList{Now: aDay, Window: 600e9, Inventory: look.Inventory{
		Arrives: []look.Arrival{
			{Signal: "kv.usage", Unit: "1", Producer: "vllm", Native: "vllm:kv_cache_usage_perc", Came: []string{"remote write", "scrape"}, Targets: 2, Series: 4, Newest: aDay - 7e9, Every: 15e9},
			{Signal: "gpu.power", Unit: "W", Producer: "dcgm", Native: "DCGM_FI_DEV_POWER_USAGE", Came: []string{"scrape"}, Targets: 1, Series: 8, Newest: aDay - 500e6, Unknown: 3}},
		Missing: []look.Missing{{Signal: "preemptions", Producer: "vllm", Native: "vllm:num_preemptions_total", Question: "How often does a running request lose its blocks?"}},
		Unused:  []look.Unused{{Family: "python_gc_total", Series: 3, PerSecond: 0.2, BytesPerDay: 34_560, Came: []string{"scrape"}}, {Family: "evil\x1b[2J", Series: 1}}},
		Records: []api.Records{{Came: "probe", Name: "chat/0/0@5f0c1a2b", Count: 118, Newest: aDay - 20e6}, {Came: "spans", Count: 7}},
		Refused: []api.RefusedSeries{{Metric: "app_requests_total", Label: "re\tquest", Why: "looks like an id", Count: 40, Example: "aaa-9999"}}}
	var b bytes.Buffer
	(&env{out: &b}).printArriving(l)
	const want = `SIGNAL     UNIT  FROM  NATIVE                    CAME BY               TARGETS  SERIES  AGE    EVERY
kv.usage   1     vllm  vllm:kv_cache_usage_perc  remote write, scrape  2        4       7s     15s
gpu.power  W     dcgm  DCGM_FI_DEV_POWER_USAGE   scrape                1        8       500ms  -  3 samples are no values

Records beside series
CAME BY  ENGINE             RECORDS                   AGE
probe    chat/0/0@5f0c1a2b  118 iterations in memory  20ms
spans    -                  7 spans since the start   -

Not sent, and what that leaves unanswered
preemptions  vllm  vllm:num_preemptions_total  How often does a running request lose its blocks?

Arrives without a use (2 metrics; the most series first; the room on disk is estimated)
METRIC           CAME BY  SERIES  SAMPLES/S  DISK A DAY
python_gc_total  scrape   3       0.20       33 kB
evil�[2J         -        1       -          -

Not let in as it was (the most frequent first)
METRIC              LABEL     SAMPLES  SUCH AS   WHY
app_requests_total  re�quest  40       aaa-9999  looks like an id
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

// Who is one, what was told, and whose clocks are apart, as it is printed.
func TestPrintIdentities(t *testing.T) {
	says := func(a identity.Attr, v, from string) []identity.Said {
		return []identity.Said{{Attr: a, Value: v, From: from}}
	}
	told, _ := identity.ParseAlias("chat/1 = vLLM at b:1")
	nothing, _ := identity.ParseAlias("gone = vLLM at b:1")
	j := identity.Join([]identity.Thing{
		{Kind: identity.Engine, Source: "probe", Name: "chat/0", Says: says(identity.Host, "gpu-7", "hello: host")},
		{Kind: identity.Engine, Source: "metrics", Name: "vLLM at a:1", Says: says(identity.Host, "gpu-7", "label node"), Target: "a:1"},
		{Kind: identity.Engine, Source: "probe", Name: "chat/1"},
		{Kind: identity.Engine, Source: "metrics", Name: "vLLM at b:1", Target: "b:1"},
		{Kind: identity.Gateway, Source: "traces", Name: "gw\x1b[2J"},
	}, told, nothing)
	var b bytes.Buffer
	e := &env{out: &b}
	e.printJoined(j)
	e.printClocks(api.ShiftsOf([]genai.Shift{
		{Outer: genai.Clock{Of: "host", Name: "edge"}, Inner: genai.Clock{Of: "host", Name: "gpu-7"}, Low: 1e6, High: 2e6, Pairs: 3},
		{Outer: genai.Clock{Of: "host", Name: "edge"}, Inner: genai.Clock{Of: "host", Name: "gpu-7"}, From: 5, Low: -52e6, High: -48e6, Pairs: 12}}))
	const want = `One engine
  vLLM at a:1
  chat/0 (probe)  only likely: host gpu-7 (label node; hello: host)
One engine
  vLLM at b:1
  chat/1 (probe)  told: chat/1 = vLLM at b:1
Joined with nothing
  gw�[2J (traces)  it says nothing of itself that another source could know it by
alias gone = vLLM at b:1: 0 things are called gone
Clocks that are apart
  host gpu-7  48.0 ms to 52.0 ms ahead of that of host edge (no answer before its question: 12 pairs of spans)
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
