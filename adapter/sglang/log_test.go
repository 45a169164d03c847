package sglang

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/logtest"
	"github.com/whylate/whylate/logline"
)

func cased(t testing.TB, name string) []Entry {
	t.Helper()
	return read(t, logtest.Case(t, name))
}

func read(t testing.TB, log []byte) []Entry {
	t.Helper()
	return logtest.Read(t, ReadLog, log)
}

func one(t testing.TB, line string) Entry {
	t.Helper()
	all := read(t, []byte(line))
	if len(all) != 1 {
		t.Fatalf("%d entries: %+v", len(all), all)
	}
	return all[0]
}

// C55: six generations of the same two lines in one file.
func TestZoo(t *testing.T) {
	all := cased(t, "C55-sglang-log-zoo.server.log")
	want := map[string]int{"sglang.Prefill": 4, "sglang.Decode": 12, "sglang.Access": 2}
	if got := logtest.Kinds(all); !reflect.DeepEqual(got, want) || len(all) != 18 {
		t.Fatalf("%v, want %v", got, want)
	}
	prefill := func(i int) Prefill { t.Helper(); return all[i-1].Record.(Prefill) }
	decode := func(i int) Decode { t.Helper(); return all[i-1].Record.(Decode) }
	usage := func(b Batch, pool string, want float64) {
		t.Helper()
		p, _ := b.Limiting()
		logtest.Is(t, "limiting pool", p.Name, pool)
		logtest.Near(t, "its usage", p.Usage, want)
	}

	first := prefill(1)
	logtest.Is(t, "new", first.New, logline.Some(512))
	logtest.Is(t, "cached", first.Cached, logline.Some(128))
	logtest.Near(t, "share", first.CachedShare(), 0.2)
	logtest.Near(t, "hit rate", first.HitRate, 0.2)
	logtest.Is(t, "running", first.Running, logline.Some(2))
	logtest.Is(t, "queue", first.Queue, logline.Some(0))
	logtest.Is(t, "rank", fmt.Sprint(all[0].Tags), "[{TP 0}]")

	logtest.Is(t, "running", decode(2).Running, logline.Some(8))
	logtest.Is(t, "tokens", decode(2).Pools[0].Used, logline.Some(41211))
	usage(decode(2).Batch, "token", 0.09)
	logtest.Near(t, "rate", decode(2).Rate, 412.33)
	logtest.Is(t, "acceptance", decode(2).AcceptLength.Known, false)

	logtest.Near(t, "accept length", decode(3).AcceptLength, 2.71)
	logtest.Is(t, "accept rate", decode(3).AcceptRate.Known, false) // 2.71 is not one
	logtest.Is(t, "largest", decode(3).Largest, logline.Some(0))

	logtest.Is(t, "access", all[3].Record.(Access), Access{"POST", "/generate", 200})
	logtest.Is(t, "its level", all[3].Level, "INFO")
	logtest.Is(t, "its date", all[3].Time.Date, logline.NoTime)

	logtest.Is(t, "ranks", fmt.Sprint(all[4].Tags), "[{DP 1} {TP 2} {EP 2}]")
	logtest.Near(t, "share", prefill(5).CachedShare(), 602.0/2012)
	logtest.Is(t, "queue", prefill(5).Queue, logline.Some(1)) // before the trailing comma
	logtest.Is(t, "rest", len(prefill(5).Extra)+prefill(5).Withheld, 0)

	logtest.Is(t, "rank", all[5].Tags.Get("DP"), "1")
	logtest.Is(t, "running", decode(6).Running, logline.Some(11))

	logtest.Is(t, "pending", prefill(7).Pending, logline.Some(14336))
	logtest.Near(t, "rate", prefill(7).Rate, 4123)

	logtest.Is(t, "queue", decode(8).Queue, logline.Some(4))
	logtest.Is(t, "iteration", decode(9).Iteration, logline.Some(18211))
	logtest.Is(t, "graph", decode(9).Graph, logline.Some(false))

	usage(decode(10).Batch, "swa", 0.97)
	usage(decode(11).Batch, "mamba", 0.97)
	logtest.Is(t, "states", decode(11).Pools[1].Used, logline.Some(31))

	logtest.Near(t, "accept length", decode(12).AcceptLength, 3.1)
	logtest.Near(t, "accept rate", decode(12).AcceptRate, 0.7)
	logtest.Near(t, "drafts", decode(12).Drafts(), 3)

	logtest.Is(t, "queue", decode(13).Queue, logline.Some(0))
	logtest.Is(t, "waiting", decode(13).Waiting(), logline.Some(3))
	logtest.Is(t, "prealloc", decode(13).Prealloc, logline.Some(2))
	logtest.Is(t, "transfer", decode(13).Transfer, logline.Some(1))
	logtest.Near(t, "held", decode(13).Preallocated, 0.03)

	logtest.Is(t, "graph", decode(14).GraphKind, "npu")
	logtest.Is(t, "graph", decode(14).Graph, logline.Some(true))

	logtest.Is(t, "rate", decode(15).Rate, logline.Some(0.0))
	logtest.Is(t, "running", decode(15).Running, logline.Some(5))
	logtest.Is(t, "stalled", decode(15).Stalled(), true)

	logtest.Is(t, "access", all[15].Record.(Access), Access{"POST", "/v1/chat/completions", 499})
	logtest.Is(t, "its time", all[15].Time.At, time.Date(2026, 3, 1, 9, 0, 15, 0, time.UTC))

	logtest.Is(t, "torn line", all[16].First*100+all[17].First, 1717)
	logtest.Is(t, "decode's rank", all[16].Tags.Get("TP"), "0")
	logtest.Is(t, "queue", decode(17).Queue, logline.Some(0))
	logtest.Is(t, "prefill's rank", all[17].Tags.Get("TP"), "1")
	logtest.Near(t, "share", prefill(18).CachedShare(), 0.875)

	for i, e := range all {
		if i != 3 && (e.Time.Date != logline.DateTold || e.Time.Zone != logline.ZoneUnknown) {
			t.Errorf("entry %d: %+v", i, e.Time)
		}
		if i > 4 && e.Time.At.Before(all[i-1].Time.At) {
			t.Errorf("entry %d is out of order", i)
		}
	}

	var hints Hints
	got := map[int]string{}
	for i, e := range all {
		for _, h := range hints.Next(e) {
			got[i+1] += string(h.Kind) + ": " + h.Text + "\n"
		}
	}
	for line, want := range map[int]string{
		9:  "graph off: without the cuda graph a request gets a token 8.4 times slower than in the line before\n",
		10: "pool full: the pool swa is 97 % full and lets nobody in, while full is 42 % full\n",
		11: "pool full: the pool mamba is 97 % full and lets nobody in, while full is 31 % full\n",
		13: "not in queue: 3 requests wait, 0 of them in the queue: 2 for room, 1 for their KV, 0 thrown out\n",
		15: "stalled: 5 requests run, and no token came since the line before\n",
	} {
		logtest.Is(t, fmt.Sprintf("hint of line %d", line), got[line], want)
		delete(got, line)
	}
	if len(got) > 0 {
		t.Errorf("hints about nothing: %v", got)
	}
}

// C07: the queue of a decode node is empty, and its requests wait. C56: what was thrown out waits, and did not fail.
func TestOtherCases(t *testing.T) {
	for name, want := range map[string]map[string]int{
		"C07-sglang-pd-decode-backpressure.decode.log":  {"sglang.Decode": 7},
		"C07-sglang-pd-decode-backpressure.prefill.log": {"sglang.Prefill": 7},
		"C56-sglang-retraction-collapse.server.log":     {"sglang.Decode": 6, "sglang.Prefill": 3, "sglang.Retraction": 4},
	} {
		if got := logtest.Kinds(cased(t, name)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	d := cased(t, "C07-sglang-pd-decode-backpressure.decode.log")[6].Record.(Decode)
	logtest.Is(t, "decode node", d.Disaggregated(), true)
	logtest.Is(t, "waiting", d.Waiting(), logline.Some(61+9+7))
	p := cased(t, "C07-sglang-pd-decode-backpressure.prefill.log")[6].Record.(Prefill)
	logtest.Is(t, "waiting", p.Waiting(), logline.Some(22+55))
	logtest.Is(t, "inflight", p.Inflight, logline.Some(24))
	logtest.Is(t, "optimistic", p.Optimistic, logline.Some(0))

	thrown, ratio := 0, 0.0
	for _, e := range cased(t, "C56-sglang-retraction-collapse.server.log") {
		if r, ok := e.Record.(Retraction); ok {
			thrown += r.Requests.Value
			if r.RatioTo.Value <= r.RatioFrom.Value || r.Gained.Value == 0 || len(r.Extra)+r.Withheld > 0 {
				t.Errorf("%+v", r)
			}
			ratio = r.RatioTo.Value
		}
	}
	logtest.Is(t, "thrown out", thrown, 50)
	logtest.Is(t, "ratio", ratio, 0.97)
}

// Every shape that the reference names.
func TestShapes(t *testing.T) {
	p := one(t, `[2026-08-20 10:00:01.250 PP1 TP0] Prefill batch [412], #new-seq: 1, #new-token: 64, #cached-token: 0, full token usage: 0.40, mamba usage: 0.05, #running-req: 9, #queue-req: 0, #pending-token: 0, waiting-image-req: 2, cuda graph: False, input throughput (token/s): 80.12, est. prefill TFLOPS/s (per GPU): 12.30, fwd occupancy: 85.00%`)
	r := p.Record.(Prefill)
	logtest.Is(t, "time", p.Time.At, time.Date(2026, 8, 20, 10, 0, 1, 250e6, time.UTC))
	logtest.Is(t, "ranks", fmt.Sprint(p.Tags), "[{PP 1} {TP 0}]")
	logtest.Is(t, "iteration", r.Iteration, logline.Some(412))
	logtest.Is(t, "images", r.Images, logline.Some(2))
	logtest.Near(t, "compute", r.TFLOPS, 12.3)
	logtest.Near(t, "occupancy", r.Occupancy, 0.85)
	logtest.Is(t, "rest", len(r.Extra)+r.Withheld, 0)

	d := one(t, `[2026-08-20 10:00:01 TP0] Decode batch, #running-req: 5, #gpu token: 100, gpu token usage: 0.10, #cpu token: 50, cpu token usage: 0.05, accept len: 2.00, accept rate: 0.50, cap len: 3.00, block accept len: 1.50, cuda graph: True, gen throughput (token/s): 310.52, #queue-req: 0, est. decode TFLOPS/s (per GPU): 1.00, est. read BW (GB/s per GPU): 900.00, est. write BW (GB/s per GPU): 10.00, fwd occupancy: nan%, #paused-req: 4, mode: eager`).Record.(Decode)
	logtest.Is(t, "pools", len(d.Pools), 2)
	logtest.Near(t, "cap", d.CapLength, 3)
	logtest.Near(t, "block", d.BlockLength, 1.5)
	logtest.Near(t, "read", d.ReadGBs, 900)
	logtest.Is(t, "occupancy of nothing", d.Occupancy.Known, false)
	logtest.Is(t, "extra", fmt.Sprint(d.Extra), "[{#paused-req 4} {mode eager}]")
	logtest.Is(t, "withheld", d.Withheld, 0)

	for _, old := range []string{"[gpu=0] Decode batch. #running-req: 3, #token: 10", "[14:12:01 TP0] Decode batch. #running-req: 3, #token: 10"} {
		logtest.Is(t, old, one(t, old).Record.(Decode).Running, logline.Some(3))
	}
	logtest.Is(t, "time of day", one(t, "[14:12:01 TP0] Decode batch. #running-req: 3").Time.Date, logline.DateUnknown)

	pd := one(t, "[2025-05-27 21:19:46] Prefill batch. #new-seq: 1, #new-token: 1, #cached-token: 25, page usage: 0.10, #unbootstrapped-req: 2, #queue-req: 3, #transferring-req: 4, #dequeue-time: 1.25 ").Record.(Prefill)
	logtest.Is(t, "waiting", pd.Waiting(), logline.Some(5))
	logtest.Is(t, "inflight", pd.Inflight, logline.Some(4))
	logtest.Is(t, "extra", fmt.Sprint(pd.Extra), "[{#dequeue-time 1.25}]")
	logtest.Near(t, "pages", pd.Pools[0].Usage, 0.1)

	back := one(t, `[2026-08-20 10:00:03 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #aborted_reqs: 1, #mamba_num_gained: 3, #new_token_ratio: 0.3500 -> 0.6100`).Record.(Retraction)
	logtest.Is(t, "aborted", back.Aborted.Value*10+back.States.Value, 13)
	older := one(t, `[10:00:03 TP0] decode out of memory happened, #retracted_reqs: 1, #new_token_ratio: 0.9998 -> 1.0000`).Record.(Retraction)
	logtest.Near(t, "ratio", older.RatioFrom, 0.9998)

	q := one(t, `[2026-08-20 10:00:04 TP0] ReqTimeStats(rid=ab12, bootstrap_room=7, input_len=1000, cached_input_len=256, output_len=64, attempts=0, type=decode): bootstrap_duration=1.00ms, alloc_wait_duration=2.00ms, transfer_duration=3.00ms, queue_duration=12.40ms, forward_duration=903.11ms, entry_time=1787220004.123, transfer_speed=1.50 GB/s, transfer_total=20.00 MB`).Record.(Request)
	logtest.Is(t, "request", q.ID+" "+q.Type, "ab12 decode")
	logtest.Is(t, "lengths", q.Input.Value-q.Cached.Value-q.Output.Value, 680)
	logtest.Near(t, "queue", q.Queue, 12.4)
	logtest.Near(t, "alloc", q.Alloc, 2)
	logtest.Near(t, "entry", q.Entry, 1787220004.123)
	logtest.Near(t, "speed", q.GBs, 1.5)
	logtest.Is(t, "extra", fmt.Sprint(q.Extra), "[{bootstrap_room 7}]")

	s := one(t, `[2026-02-16 14:02:09] INFO engine.py:156: server_args=ServerArgs(model_path='qwen/tiny', tokenizer_mode='auto', api_key='sk-geheim', chunked_prefill_size=8192, json_model_override_args='{}', log_requests=False)`)
	logtest.Is(t, "source", s.Level+" "+s.Source, "INFO engine.py:156")
	logtest.Is(t, "model", s.Record.(Start).Model, "qwen/tiny")
	logtest.Is(t, "settings", fmt.Sprint(s.Record.(Start).Settings), "[{model_path qwen/tiny false} {tokenizer_mode auto false} {api_key  true} {chunked_prefill_size 8192 false} {json_model_override_args {} false} {log_requests False false}]")
	room := one(t, `[2026-02-16 14:02:09 TP0] max_total_num_tokens=171008, chunked_prefill_size=-1, max_prefill_tokens=16384, max_running_requests=2048, context_len=169000, available_gpu_mem=8.27 GB`).Record.(Start)
	logtest.Is(t, "room", room.KVTokens.Value+room.ChunkTokens.Value+room.MaxRunning.Value+room.ContextTokens.Value+room.BatchTokens.Value, 171008-1+2048+169000+16384)
	logtest.Near(t, "free", room.FreeGB, 8.27)
	logtest.Is(t, "ready", one(t, "[2026-02-16 14:02:09] The server is fired up and ready to roll!").Record.(Start).Ready, true)
}

// secretLines are lines with what a user wrote, in every form that the engine writes it.
func secretLines(secret string) []string {
	return []string{
		`[2026-02-16 14:02:09] Receive: obj=GenerateReqInput(rid='1', text='` + secret + ` Decode batch, #running-req: 9[2026-02-16 14:02:09 TP0] Decode batch, #running-req: 5', pin=1234)`,
		`{"timestamp": "2026-02-16T14:02:09", "event": "request.finished", "rid": "1", "out": {"text": "` + secret + `"}}`,
		`[2026-02-16 14:02:09 TP0] Decode batch, #running-req: 5` + secret + `, ` + secret + `: 5, pin: 1234`,
		`[2026-02-16 14:02:09] INFO:     192.0.2.4:1 - "POST /generate?q=` + secret + ` HTTP/1.1" 200 OK`,
		secret + "[2026-02-16 14:02:09 TP0] " + secret,
	}
}

// Nothing of what users wrote is in any record, and no record is made of it.
func TestContentIsNotKept(t *testing.T) {
	const secret = "Zebra my card is 4711"
	for i, line := range secretLines(secret) {
		for _, e := range read(t, []byte(line)) {
			if kept := fmt.Sprintf("%+v", e); strings.Contains(kept, "Zebra") || strings.Contains(kept, "4711") || strings.Contains(kept, "1234") {
				t.Errorf("%s\nkeeps %s", line, kept)
			}
			if d, ok := e.Record.(Decode); ok && i != 2 {
				t.Errorf("%s\nis read as %+v", line, d)
			}
		}
	}
}

func TestSniffLog(t *testing.T) {
	for name, log := range logtest.Cases(t) {
		if got, want := SniffLog(strings.Split(string(log), "\n")), strings.Contains(name, "sglang"); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// However broken a log is, every line is in an entry, and nothing panics.
func FuzzReadLog(f *testing.F) {
	for _, log := range logtest.Cases(f) {
		f.Add(log)
	}
	for _, line := range secretLines("x") {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var hints Hints
		for _, e := range read(t, append([]byte("\n"), b...)) { // what begins so is not compressed
			for _, h := range hints.Next(e) {
				if strings.Contains(h.Text, "NaN") || strings.Contains(h.Text, "Inf") {
					t.Errorf("%s of %+v", h.Text, e)
				}
			}
		}
	})
}

func BenchmarkReadLog(b *testing.B) {
	logtest.Lines(b, ReadLog, logtest.Case(b, "C56-sglang-retraction-collapse.server.log"))
}
