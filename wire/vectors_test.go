package wire

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/whylate/whylate/ledger"
)

var update = flag.Bool("update", false, "rewrite testdata/vectors.json")

const vectorFile = "testdata/vectors.json"

// vector is one entry of testdata/vectors.json: a whole frame and what it says.
type vector struct {
	Name     string          `json:"name"`
	Type     Type            `json:"type"`
	Flags    uint8           `json:"flags"`
	Sequence json.RawMessage `json:"sequence"`
	Time     json.RawMessage `json:"time"`
	Fields   json.RawMessage `json:"fields"`
	Hex      string          `json:"hex"`
}

// examples are the messages of the vectors, under their names.
var examples = []struct {
	name     string
	sequence uint64
	message  Message
}{
	{"hello", 1, exampleHello()},
	{"hello-bare", 1, &Hello{Protocol: [2]uint16{1, 0}, Producer: Producer{Name: "whylate-replay", Version: "0.1.0"}, Role: "client",
		Thread: "main", PID: 7, Start: 8, Clock: [3]int64{1, 2, 3}, Settings: map[string]any{}, Capabilities: map[string]bool{}}},
	{"clock", 2, &Clock{Time: 81_234_567_891_234, MonoBefore: 81_234_567_890_123, Realtime: 1_764_438_000_123_456_789, MonoAfter: 81_234_567_891_234}},
	{"received", 3, &Received{Time: 81_234_600_000_001, HTTP: 1, RequestID: "r-42", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Path: "/v1/chat/completions"}},
	{"received-non-ascii", 4, &Received{Time: 81_234_600_000_002, HTTP: 2, RequestID: "zürich-東京-🚆", Path: "/v1/größe"}},
	{"labels", 5, &Labels{Time: 81_234_600_000_003, HTTP: 2, Tenant: 0xFFFF_FFFF_FFFF_FFFF, Route: 0x0123_4567_89AB_CDEF}},
	{"submitted", 5, &Submitted{Time: 81_234_600_100_000, HTTP: 1, Handle: 7, Prompt: 512, ID: "chatcmpl-1f-0", External: "chatcmpl-1f"}},
	{"submitted-child", 6, &Submitted{Time: 81_234_600_100_001, HTTP: 2, Handle: 8, Index: 3, Prompt: 17, ID: "3_cmpl-é", External: "cmpl-é", Parent: "cmpl-é-0"}},
	{"first_byte", 7, &FirstByte{Time: 81_234_700_000_000, HTTP: 1, Status: 200}},
	{"last_byte", 8, &LastByte{Time: 81_235_700_000_000, HTTP: 1, Status: 200, Chunks: 128, Bytes: 48_211, Wait: 1_250_000}},
	{"last_byte-disconnect", 9, &LastByte{Time: 81_235_700_000_001, HTTP: 2, Status: 499, End: EndDisconnected, Chunks: 3, Bytes: 1 << 60, Wait: 9, Disconnect: 81_235_600_000_000}},
	{"answered", 10, &Answered{Time: 81_235_690_000_000, Handle: 7, Reason: ledger.FinishStop, By: ByStopString, Output: 128}},
	{"delivered", 11, &Delivered{Time: 81_234_710_000_000, Key: 81_234.709_123_456, Returned: 81_234_710_090_000, Engine: 1, Handles: []uint32{7, 8, 4_294_967_295}}},
	{"delivered-same", 12, &Delivered{Time: 81_234_720_000_000, Same: true, Key: 81_234.719_5, Returned: 81_234_720_080_000, Engine: 1}},
	{"arrived", 13, &Arrived{Time: 81_234_600_300_000, Wall: 1_764_438_000.25, ID: "chatcmpl-1f-0", External: "chatcmpl-1f"}},
	{"queued", 14, &Queued{Time: 81_234_600_400_000, Handle: 7, Prompt: 512, Max: 256, Arrived: 81_234_600_300_000, Wall: 1_764_438_000.25, N: 1,
		Logprobs: LogprobsNone, PromptLogprobs: LogprobsNone, ID: "chatcmpl-1f-0", External: "chatcmpl-1f"}},
	{"queued-repeat-features", 15, &Queued{Time: 81_234_600_400_001, Repeat: true, Update: true, Handle: 8, Prompt: 17, Max: 1, Priority: -5, Arrived: 81_234_600_300_001,
		Wall: 1_764_438_000.5, Client: 2, N: 4, Logprobs: LogprobsAll, PromptLogprobs: 5, Features: ledger.FeatureGrammar | ledger.FeatureStreaming, ID: "3_cmpl-é", External: "cmpl-é"}},
	{"hashes", 16, &Hashes{Time: 81_234_600_400_000, Handle: 7, First: 4, Hashes: []uint64{1, 0xFFFF_FFFF_FFFF_FFFF, 0x0123_4567_89AB_CDEF}}},
	{"scheduled-steady", 17, &Scheduled{Time: 81_234_650_000_000, Iteration: 411, Alias: 410, Returned: 81_234_650_180_000, Digest: Digest(7) ^ Digest(8),
		Tokens: 2, Members: 2, Running: 2, Free: 1_000, TokenBudget: 8_192, SeqBudget: 16}},
	{"scheduled-joins-leaves-changes", 18, &Scheduled{Time: 81_234_660_000_000, Iteration: 412, Returned: 81_234_660_200_000, Digest: Digest(7) ^ Digest(9) ^ Digest(10),
		Tokens: 641, Members: 3, Running: 3, Waiting: 1, Free: 960, TokenBudget: 641, SeqBudget: 16, Head: 11, Stop: ledger.SkipTokenBudget,
		Joins: []Join{
			{Handle: 9, Tokens: 512, Before: 64, Total: 576, Cached: 64, Kind: JoinNew},
			{Handle: 10, Tokens: 128, Total: 700, Kind: JoinResumed}},
		Leaves: []uint32{8}, Changes: []Change{{Handle: 7, Tokens: 1}}}},
	{"scheduled-full", 19, &Scheduled{Time: 81_234_670_000_000, Full: true, SkipsListed: true, Iteration: 448, Returned: 81_234_670_150_000, Digest: Digest(7) ^ Digest(9),
		Tokens: 2, Members: 2, Running: 2, Free: 950, TokenBudget: 8_192, SeqBudget: 16,
		Joins: []Join{
			{Handle: 7, Tokens: 1, Before: 520, Total: 521, Kind: JoinContinued},
			{Handle: 9, Tokens: 1, Before: 576, Total: 577, Cached: 64, Kind: JoinContinued}}}},
	{"scheduled-session", 23, &Scheduled{Time: 81_234_675_000_000, Iteration: 448, Returned: 81_234_675_150_000, Digest: Digest(7),
		Tokens: 31, Members: 1, Running: 1, Free: 948, TokenBudget: 8_192, SeqBudget: 16,
		Joins: []Join{{Handle: 7, Tokens: 31, Before: 530, Total: 561, Kind: JoinSession}}}},
	{"scheduled-preemption-skips-holders-drafts", 20, &Scheduled{Time: 81_234_680_000_000, SkipsListed: true, Iteration: 449, Alias: 18_446_744_073_709_551_615,
		Returned: 81_234_680_300_000, Digest: Digest(9), Tokens: 4, Members: 1, Running: 1, Waiting: 3, Free: 2, TokenBudget: 8_192, SeqBudget: 16, Head: 12, Need: 40, Spent: 11_300,
		Stop: ledger.SkipKVBlocks, StopCode: 0, Leaves: []uint32{7}, Changes: []Change{{Handle: 9, Tokens: 4}},
		Preemptions: []Preemption{{Victim: 7, Preemptor: 9, Lost: 521, Output: 9, Free: 0, Blocks: 33, Cause: CauseKVBlocks, TimeDelta: 42}},
		Skips:       []SkipEntry{{Handle: 13, Reason: ledger.SkipGrammar}, {Handle: 14, Reason: ledger.SkipOther, Code: 201}},
		Holders:     []Holder{{Handle: 9, Blocks: 37, Weight: 35.5}, {Handle: 14, Blocks: 2, Weight: 0.25}},
		Drafts:      []Draft{{Handle: 9, Tokens: 3}}}},
	{"scheduled-empty", 21, &Scheduled{Time: 81_234_690_000_000, Iteration: 450, Returned: 81_234_690_010_000, Free: 1_024, TokenBudget: 8_192, SeqBudget: 16,
		Waiting: 1, Head: 15, Stop: ledger.SkipOther, StopCode: 3}},
	{"done", 22, &Done{Time: 81_234_661_000_000, Iteration: 411, Returned: 81_234_661_100_000, Key: 81_234.660_9, Tokens: 2}},
	{"done-emits-finishes", 23, &Done{Time: 81_234_681_000_000, Iteration: 449, Returned: 81_234_681_120_000, Key: 81_234.680_9, Tokens: 3,
		Emits:    []Emit{{Handle: 9, Tokens: 3, Discarded: 1}, {Handle: 7, Discarded: 1}},
		Finishes: []Finish{{Handle: 9, Reason: ledger.FinishLength, Output: 256}}}},
	{"finished", 24, &Finished{Time: 81_234_682_000_000, Finish: Finish{Handle: 7, Reason: ledger.FinishAbort, Output: 9}}},
	{"cache-filled", 25, &Cache{Time: 81_234_683_000_000, Kind: CacheFilled, Handle: 9, First: 35, Blocks: 2, Hashes: []uint64{0x8000_0000_0000_0001}}},
	{"cache-reset", 26, &Cache{Time: 81_234_684_000_000, Kind: CacheReset}},
	{"client", 27, &Client{Time: 81_234_599_000_000, Planned: 81_234_598_000_000, First: 81_234_701_000_000, End: 81_235_701_000_000, Status: 200, Attempt: 1, Prompt: 512, Output: 128,
		Gaps: []uint32{102_000, 9_800, 10_150}, RequestID: "r-42", Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Class: "chat", ResponseID: "chatcmpl-1f"}},
	{"client-error", 28, &Client{Time: 81_234_599_000_001, Status: 503, Outcome: OutcomeHTTPError, Attempt: 2, RequestID: "r-43", Class: "naïve", Error: "überlastet: später erneut versuchen"}},
	{"sample", 29, &Sample{Time: 81_234_700_000_000, Every: 1_000_000_000, Took: 2_150_000, State: DeviceAnswers,
		Values:    []SampleValue{{Signal: 0, Window: 166_667, Value: 0.97}, {Signal: 3, Window: 1_000_000, Value: 512.4}, {Signal: 17, Value: 4}},
		Absent:    []SampleAbsent{{Signal: 6, Why: AbsentNotSupported, Code: 3}, {Signal: 9, Why: AbsentBlank}},
		Processes: []SampleProcess{{PID: 4_242, Busy: 0.61, Used: 74_471_964_672}, {PID: 4_243, Busy: -1, Used: math.MaxUint64, Instance: 2}},
		XIDs:      []SampleXID{{At: 81_234_699_100_000, Number: 94}}}},
	{"sample-silent", 30, &Sample{Time: 81_234_710_000_000, Every: 1_000_000_000, State: DeviceSilent, Since: 81_234_704_000_000, Why: "nvmlDeviceGetUtilizationRates has not returned for 6 s"}},
	{"change", 30, &ChangeEvent{Time: 81_234_700_000_001, Kind: "configuration", Subject: "max_num_seqs", From: "16", To: "32"}},
	{"lost", 31, &Lost{Time: 81_234_700_000_002, Count: 12, Since: 81_234_690_000_000, Why: "overrun"}},
	{"heartbeat", 32, &Heartbeat{Time: 81_234_700_000_003, State: Stuck, Iteration: 449, Since: 81_234_680_000_000, Written: 20, Dropped: 1, Errors: 2}},
	{"step", 33, &Step{Time: 81_234_680_400_000, Iteration: 449, Rank: 1, Padded: 8, Mode: 2, Eager: 1, Returned: 81_234_680_900_000, Device: 480_000, Wait: 30_000, Peak: 17_179_869_184}},
	{"notice", 34, &Notice{Time: 81_234_700_000_004, Code: NoticeHookMissing, Text: "vllm.v1.core.sched.scheduler.Scheduler.reset_prefix_cache"}},
}

func exampleHello() *Hello {
	return &Hello{
		Time:     81_234_567_890_100,
		Protocol: [2]uint16{1, 0},
		Producer: Producer{Name: "whylate-vllm", Version: "0.1.0"},
		Engine:   Engine{Name: "vllm", Version: "0.32.0", Deployment: "prüfstand", Replica: "r0", Incarnation: "5c1e"},
		Role:     "engine", Thread: "scheduler", PID: 4_242, Start: 987_654, Boot: "8d1f0c2a-77aa-4a0e-9d3c-6f1f4b2e9a10", Host: "node-東",
		Clock: [3]int64{81_234_567_890_000, 1_764_438_000_000_000_000, 81_234_567_890_100},
		Depth: 2,
		Settings: map[string]any{"block_size": json.Number("16"), "max_num_batched_tokens": json.Number("8192"), "max_num_seqs": json.Number("16"),
			"policy": "fcfs", "watermark": json.Number("0.01")},
		Capabilities: map[string]bool{"holders": false, "preemptions": true, "skips": true},
		Hashes:       HashSettings{On: true, Algorithm: "sha256", Stable: true},
	}
}

func number(v json.RawMessage) (n int64, err error) {
	var text json.Number
	if err = json.Unmarshal(v, &text); err != nil {
		return 0, err
	}
	return text.Int64()
}

func writeVectors(t *testing.T) {
	var vectors []vector
	for _, e := range examples {
		raw, err := Append(nil, e.sequence, e.message)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		f, _, err := ParseFrame(raw)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		fields, err := fieldsOf(e.message)
		if err != nil {
			t.Fatalf("%s: %v", e.name, err)
		}
		vectors = append(vectors, vector{Name: e.name, Type: f.Type, Flags: f.Flags,
			Sequence: appendFields(nil, reflect.ValueOf(f.Sequence)), Time: appendFields(nil, reflect.ValueOf(f.Time)),
			Fields: fields, Hex: hex.EncodeToString(raw)})
	}
	b, err := json.MarshalIndent(vectors, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(vectorFile, append(b, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestVectors holds the codec to the file that the Python writer is held to as well, in both directions.
func TestVectors(t *testing.T) {
	if *update {
		writeVectors(t)
	}
	b, err := os.ReadFile(vectorFile)
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(b, &vectors); err != nil {
		t.Fatal(err)
	}
	seen := map[Type]int{}
	for _, v := range vectors {
		seen[v.Type]++
		t.Run(v.Name, func(t *testing.T) { checkVector(t, v) })
	}
	for typ := TypeHello; typ <= TypeLabels; typ++ {
		if seen[typ] == 0 {
			t.Errorf("no vector for %s", typ)
		}
	}
	if len(vectors) != len(examples) {
		t.Errorf("%d vectors in the file, %d examples here; run with -update", len(vectors), len(examples))
	}
}

func checkVector(t *testing.T, v vector) {
	sequence, err := number(v.Sequence)
	if err != nil {
		t.Fatal(err)
	}
	time, err := number(v.Time)
	if err != nil {
		t.Fatal(err)
	}
	said, err := messageOf(v.Type, time, v.Flags, v.Fields)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatal(err)
	}

	written, err := Append(nil, uint64(sequence), said)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(written); got != v.Hex {
		t.Errorf("fields encode to\n%s\nwant\n%s", got, v.Hex)
	}

	f, n, err := ParseFrame(raw)
	if err != nil || n != len(raw) {
		t.Fatalf("parsed %d of %d bytes: %v", n, len(raw), err)
	}
	if f.Type != v.Type || f.Flags != v.Flags || f.Sequence != uint64(sequence) || f.Time != time {
		t.Errorf("header says %s, flags %d, sequence %d, time %d", f.Type, f.Flags, f.Sequence, f.Time)
	}
	read := NewMessage(v.Type)
	if err := Decode(f, read); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(said, read, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("hex decodes to something else (-fields +hex):\n%s", diff)
	}
}
