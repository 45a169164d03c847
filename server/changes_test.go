package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// life is one start of an engine: a short run of a scenario.
type life struct {
	incarnation, version, producer string
	rank                           int
	after                          time.Duration // from the scenario's epoch
	settings                       map[string]any
}

// records are what a life's probes write.
func (l life) records(t *testing.T) (out []store.Record) {
	t.Helper()
	run, err := scenario.Parse(`
engine vllm depth=1
0ms        http r1
0ms        submit r1 prompt=16
0ms        arrive r1
0ms        queue r1 prompt=16 max=8
1..10ms    iter r1:16
10ms       x6 10ms iter r1
70..80ms   iter r1 end=r1:length
81ms       first r1
82ms       last r1
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range run.Sources() {
		if len(s.Frames) == 0 {
			continue
		}
		s.Hello.Boot = l.incarnation // a clock line of its own
		s.Hello.Clock = [3]int64{scenario.Boot, scenario.Epoch + int64(l.after), scenario.Boot}
		s.Hello.Engine.Incarnation, s.Hello.Engine.Version, s.Hello.Engine.Rank = l.incarnation, l.version, l.rank
		s.Hello.Producer.Version = l.producer
		s.Hello.Settings = l.settings
		source := wire.Source{Name: fmt.Sprintf("%s-%s-%d", s.Name, l.incarnation, l.rank), Hello: s.HelloJSON()}
		for _, raw := range s.Frames {
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, store.Record{Source: source, Frame: f})
		}
	}
	return out
}

var (
	first  = life{"1111aaaa", "0.31.0", "1", 0, 0, map[string]any{"model": "a", "max_num_seqs": json.Number("128"), "gone": true, "same": "x", "quantization": nil}}
	second = life{"2222bbbb", "0.32.0", "2", 0, time.Minute, map[string]any{"model": "b", "max_num_seqs": json.Number("256"), "new": json.Number("0.5"), "same": "x", "quantization": nil}}
	third  = life{"3333cccc", "0.32.0", "2", 0, 2 * time.Minute, second.settings}
)

func changes(t *testing.T, s api.Service, q api.ChangesQuery) (*api.ChangeList, string) {
	t.Helper()
	l, err := s.Changes(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, c := range l.Changes {
		lines = append(lines, fmt.Sprintf("%s %s %s %s: %s -> %s", time.Duration(c.At-scenario.Epoch), c.Engine, c.Kind, c.Subject, c.From, c.To))
	}
	return l, strings.Join(lines, "\n")
}

// What differs between incarnations is told, once, from memory, from sealed periods and after a restart alike, and as it is seen.
func TestChanges(t *testing.T) {
	const want = `2m0.001s test/0@3333cccc restart test/0: 2222bbbb -> 3333cccc
1m0.001s test/0@2222bbbb restart test/0: 1111aaaa -> 2222bbbb
1m0.001s test/0@2222bbbb version test/0: vllm 0.31.0 -> vllm 0.32.0
1m0.001s test/0@2222bbbb probe test/0: scenario 1 -> scenario 2
1m0.001s test/0@2222bbbb model test/0: a -> b
1m0.001s test/0@2222bbbb setting gone: true -> 
1m0.001s test/0@2222bbbb setting max_num_seqs: 128 -> 256
1m0.001s test/0@2222bbbb setting new:  -> 0.5`
	ctx := context.Background()
	disk := vfs.NewMemory()
	now := time.Unix(0, scenario.Epoch).Add(time.Hour)
	s := start(t, disk, now)
	put := func(l life) {
		t.Helper()
		if err := s.accept(ctx, l.records(t)); err != nil {
			t.Fatal(err)
		}
		if err := s.settle(ctx); err != nil {
			t.Fatal(err)
		}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	events, err := s.Watch(watching, "")
	if err != nil {
		t.Fatal(err)
	}
	put(first)
	put(first) // once more: the same incarnation is no change
	if l, text := changes(t, s, api.ChangesQuery{}); text != "" || l.Matched != 0 || !slices.Contains(l.Recorded, api.ChangeRestart) || slices.Contains(l.Recorded, "deployment") {
		t.Errorf("one incarnation: %+v", l)
	}
	for e := range events { // until the server has looked once: what it finds then is no news
		if e.Kind == api.EventEngine {
			break
		}
	}
	put(second)
	var told []string
	for e := range events {
		if e.Kind == api.EventChange {
			told = append(told, e.Text)
		}
		if len(told) == 7 {
			break
		}
	}
	if text := strings.Join(told, "\n"); !strings.Contains(text, "test/0@2222bbbb: restarted: 2222bbbb after 1111aaaa") || !strings.Contains(text, "max_num_seqs is 256, was 128") ||
		!strings.Contains(text, "gone is not told any more, was true") || !strings.Contains(text, "new is 0.5, was not told") {
		t.Errorf("told:\n%s", text)
	}
	put(third)
	check := func(when string) {
		t.Helper()
		if _, text := changes(t, s, api.ChangesQuery{}); text != want {
			t.Errorf("%s: %s", when, cmp.Diff(want, text))
		}
	}
	check("hot")
	s.seal(ctx)
	if periods, err := s.store.Periods(ctx); err != nil || len(periods) != 3 {
		t.Fatalf("%d periods, %v", len(periods), err)
	}
	check("sealed")
	s.stop()
	s = start(t, disk, now)
	check("restarted")
	all, _ := changes(t, s, api.ChangesQuery{})
	if l, _ := changes(t, s, api.ChangesQuery{Limit: 1}); l.Matched != len(all.Changes) || len(l.Changes) != 1 || l.Changes[0] != all.Changes[0] {
		t.Errorf("limit 1: %+v", l)
	}
	cut := time.Unix(0, scenario.Epoch).Add(90 * time.Second)
	if l, _ := changes(t, s, api.ChangesQuery{From: cut}); l.Matched != 1 {
		t.Errorf("from: %+v", l)
	}
	if l, _ := changes(t, s, api.ChangesQuery{To: cut}); l.Matched != len(all.Changes)-1 {
		t.Errorf("to: %+v", l)
	}
	s.stop()
}
