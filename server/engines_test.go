package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/scenario"
)

// What an engine is doing now, from its records: who waits longest, and why.
func TestEngineStates(t *testing.T) {
	const busy = `
engine vllm depth=1 max_num_seqs=16 num_gpu_blocks=20
0ms       arrive big
0ms       queue big prompt=64 max=200
1..10ms   iter big:64
10ms      x50 10ms iter big
501ms     arrive head
502ms     queue head prompt=320 max=4
505ms     arrive short
506ms     queue short prompt=16 max=3
510ms     x20 10ms iter big stop=kv head=head need=10 free=4 waiting=2 running=1 hold=big:16
`
	for name, c := range map[string]struct {
		text   string
		state  api.EngineStatus
		waiter string
		where  account.Part
		why    string
	}{
		"working": {busy, api.EngineWorking, "cmpl-head-0", account.Queue, "KV blocks: needs 10, 4 are free; most are held by cmpl-big-0 (16)"},
		"idle": {`
engine vllm depth=1
0ms     arrive r1
0ms     queue r1 prompt=16 max=2
1..10ms iter r1:16
10..20ms iter r1 end=r1:length
`, api.EngineIdle, "", "", ""},
		"in the inbox": {`
engine vllm depth=1
0ms     arrive r1
0ms     queue r1 prompt=16 max=9
1..10ms iter r1:16
10..20ms iter r1
21ms    arrive r2
900ms   arrive r3
`, api.EngineWorking, "cmpl-r2-0", account.Inbox, "not taken it up"},
	} {
		t.Run(name, func(t *testing.T) {
			run, err := scenario.Parse(c.text)
			if err != nil {
				t.Fatal(err)
			}
			b, err := run.Book()
			if err != nil {
				t.Fatal(err)
			}
			l, err := NewLocal(b).Engines(context.Background())
			if err != nil || len(l.Engines) != 1 {
				t.Fatal(l, err)
			}
			e := l.Engines[0]
			if e.Status != c.state {
				t.Errorf("is %s, want %s: %+v", e.Status, c.state, e)
			}
			switch {
			case c.waiter == "" && e.Oldest != nil:
				t.Errorf("somebody waits: %+v", e.Oldest)
			case c.waiter != "" && (e.Oldest == nil || e.Oldest.Request != c.waiter || e.Oldest.Where != c.where || !strings.Contains(e.Oldest.Why, c.why) || e.Oldest.Waited <= 0):
				t.Errorf("the oldest waiter is %+v, want %s for %q", e.Oldest, c.waiter, c.why)
			}
		})
	}

	// One that launched an iteration and does not come back.
	run, err := scenario.Parse(busy)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	last := &b.Engines[0].Iterations[len(b.Engines[0].Iterations)-1]
	last.End = 0
	s := engineState(b.Engines[0], last.Decided+int64(stuckAfter+time.Second))
	if s.Status != api.EngineStuck || s.Since != last.Decided || !s.InFlight || s.Launched != last.Decided {
		t.Errorf("%+v", s)
	}
	// One in a mode that nobody ever tried says so.
	b.Engines[0].Settings = map[string]any{"pipeline_parallel_size": json.Number("2")}
	if s = engineState(b.Engines[0], b.Now); len(s.Untried) != 1 {
		t.Errorf("%+v", s)
	}
	// Rates are of the time before now.
	s = engineState(b.Engines[0], b.Engines[0].Iterations[60].End)
	if s.Rate < 90 || s.Rate > 130 || s.Tokens < 90 || s.Prefill < 50 {
		t.Errorf("%+v", s)
	}
}

// Pages of a list are the list.
func TestPages(t *testing.T) {
	var text strings.Builder
	text.WriteString("engine vllm depth=1\n")
	for i := range 10 {
		fmt.Fprintf(&text, "%dms http r%d\n%dms submit r%d prompt=1\n%dms last r%d\n", i, i, i, i, 100+7*i%5, i)
	}
	run, err := scenario.Parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	s := NewLocal(b)
	ctx := context.Background()
	all, err := s.Requests(ctx, api.RequestsQuery{Sort: "e2e"})
	if err != nil || len(all.Requests) != 10 || all.Next != "" {
		t.Fatal(all, err)
	}
	var got []string
	page := ""
	for range 10 {
		l, err := s.Requests(ctx, api.RequestsQuery{Sort: "e2e", Limit: 3, Page: page})
		if err != nil || l.Matched != 10 {
			t.Fatal(l, err)
		}
		for _, r := range l.Requests {
			got = append(got, r.Name)
		}
		if page = l.Next; page == "" {
			break
		}
	}
	for i, r := range all.Requests {
		if i >= len(got) || got[i] != r.Name {
			t.Fatalf("pages give %v", got)
		}
	}
	from := time.Unix(0, scenario.Epoch+int64(3*time.Millisecond))
	l, err := s.Requests(ctx, api.RequestsQuery{From: from, To: from.Add(2 * time.Millisecond)})
	if err != nil || len(l.Requests) != 2 || l.Requests[0].Name != "r4" || l.Requests[1].Name != "r3" {
		t.Errorf("between: %+v %v", l, err)
	}
}
