package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/whylate/whylate/wire"
)

// messages reads a capture back: the names of its sources and all messages, of one source each.
func messages(t *testing.T, capture []byte) (sources []string, all []wire.Message) {
	t.Helper()
	reader, err := wire.NewCaptureReader(bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for {
		record, err := reader.Next()
		if err == io.EOF {
			return sources, all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case record.Gap != nil:
			t.Errorf("gap %+v", record.Gap)
		case record.Opened != nil:
			hello, err := wire.ParseHello(record.Opened.Hello)
			if err != nil || hello.Role != "client" || record.Opened.Opened != hello.Clock[1] {
				t.Errorf("source %+v, hello %+v, %v", record.Opened, hello, err)
			}
			sources = append(sources, record.Opened.Name)
		default:
			m := wire.NewMessage(record.Frame.Type)
			if err := wire.Decode(record.Frame, m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
	}
}

func TestRecorder(t *testing.T) {
	const second = int64(1e9)
	var now int64
	pair := func() wire.Clock {
		now += 12 * second
		return wire.Clock{Time: now, MonoBefore: now - 2, Realtime: 1e18 + now, MonoAfter: now}
	}
	var out bytes.Buffer
	capture, err := wire.NewCaptureWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	hello := wire.Hello{Time: 5, Protocol: [2]uint16{1, 0}, Producer: wire.Producer{Name: "whylate-replay", Version: "1"}, Role: "client", Thread: "r1",
		PID: 7, Start: 8, Boot: "0123456789", Clock: [3]int64{3, 1e18, 5}, Settings: map[string]any{}, Capabilities: map[string]bool{}}
	recorder, err := newRecorder(capture, hello, pair)
	if err != nil {
		t.Fatal(err)
	}
	first := Result{
		Attempt: 1, Planned: 1000, Sent: 2000, First: 1_002_400, End: 21 * second, Status: 200, Sequences: 1,
		Chunks:       []Chunk{{At: 1_002_400}, {At: 2_002_800}, {At: 3_003_200}}, // 1000.4, 2000.8 and 3001.2 µs after sending
		PromptTokens: 5, OutputTokens: 3, RequestID: "cli-1", Traceparent: "00-x", Class: "short", ResponseID: "cmpl-cli-1",
	}
	retry := Result{Attempt: 2, Planned: 1000, Sent: 22 * second, End: 23 * second, Outcome: ConnectionError, PromptTokens: 5, RequestID: "cli-1", Class: "short", Error: "reset"}
	recorder.Record(first)
	recorder.Record(retry)
	if err := recorder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := capture.Close(); err != nil {
		t.Fatal(err)
	}

	sources, got := messages(t, out.Bytes())
	if !reflect.DeepEqual(sources, []string{"01234567-7-8-client-r1"}) {
		t.Errorf("sources %q", sources)
	}
	clock := func(s int64) *wire.Clock {
		return &wire.Clock{Time: s * second, MonoBefore: s*second - 2, Realtime: 1e18 + s*second, MonoAfter: s * second}
	}
	want := []wire.Message{
		&hello, clock(12),
		&wire.Client{Time: 2000, Planned: 1000, First: 1_002_400, End: 21 * second, Status: 200, Attempt: 1, Prompt: 5, Output: 3,
			Gaps: []uint32{1000, 1001, 1000}, RequestID: "cli-1", Traceparent: "00-x", Class: "short", ResponseID: "cmpl-cli-1"},
		clock(24), // more than 10 s after the last one
		&wire.Client{Time: 22 * second, Planned: 1000, End: 23 * second, Outcome: wire.OutcomeConnectionError, Attempt: 2, Prompt: 5,
			Gaps: []uint32{}, RequestID: "cli-1", Class: "short", Error: "reset"},
		clock(36),
	}
	same := func(a, b any) bool { // nil and empty lists are the same on the wire
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		return reflect.TypeOf(a) == reflect.TypeOf(b) && strings.ReplaceAll(string(x), "null", "[]") == strings.ReplaceAll(string(y), "null", "[]")
	}
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if !same(got[i], want[i]) {
			t.Errorf("message %d\ngot  %+v\nwant %+v", i, got[i], want[i])
		}
	}
}

func TestOutcomesHaveTheNumbersOfTheWire(t *testing.T) {
	for o, w := range map[Outcome]wire.Outcome{
		Complete: wire.OutcomeComplete, HTTPError: wire.OutcomeHTTPError, ConnectionError: wire.OutcomeConnectionError,
		Cancelled: wire.OutcomeCancelled, TimedOut: wire.OutcomeTimeout,
	} {
		if got := ClientMessage(&Result{Outcome: o}).Outcome; got != w {
			t.Errorf("%v is %d, want %d", o, got, w)
		}
	}
}

func TestClientMessageBounds(t *testing.T) {
	long := Result{Attempt: 1000, Sent: 10_000, OutputTokens: 1 << 40, PromptTokens: -1, Chunks: make([]Chunk, maxGaps+10)}
	for i := range long.Chunks {
		long.Chunks[i].At = int64(i) * 400 // the first are earlier than the sending: a clock that is not monotonic
	}
	long.Chunks[9].At = 1 << 62
	m := ClientMessage(&long)
	if len(m.Gaps) != maxGaps || m.Attempt != 255 || m.Output != 1<<32-1 || m.Prompt != 0 || m.Gaps[0] != 0 || m.Gaps[9] != 1<<32-1 || m.Gaps[10] != 0 {
		t.Errorf("%d gaps beginning %v, %+v", len(m.Gaps), m.Gaps[:12], m.Output)
	}
	if _, err := wire.Append(nil, 1, m); err != nil {
		t.Error(err)
	}
}

// fullSink refuses everything from the nth frame on.
type fullSink struct {
	frames int
	err    error
}

func (s *fullSink) Source(wire.Source) (uint16, error) { return 1, nil }
func (s *fullSink) Gap(uint16, wire.Gap) error         { return nil }
func (s *fullSink) Frame(uint16, wire.Frame) error {
	if s.frames--; s.frames < 0 {
		return s.err
	}
	return nil
}

func TestRecorderKeepsTheFirstError(t *testing.T) {
	full := errors.New("disk full")
	if _, err := NewRecorder(&fullSink{frames: 1, err: full}, wire.Hello{}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
	sink := &fullSink{frames: 3, err: full}
	recorder, err := NewRecorder(sink, wire.Hello{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		recorder.Record(Result{})
	}
	if err := recorder.Close(); !errors.Is(err, full) || sink.frames != -1 {
		t.Errorf("got %v after %d more frames", err, -sink.frames)
	}
}

func TestHello(t *testing.T) {
	hello, err := Hello("1.2.3", "r1")
	if err != nil {
		t.Fatal(err)
	}
	before, unix, after := hello.Clock[0], hello.Clock[1], hello.Clock[2]
	if hello.PID != uint32(os.Getpid()) || hello.Start == 0 || len(hello.Boot) != 36 || hello.Producer.Version != "1.2.3" || before > after || unix < 1e18 {
		t.Errorf("%+v", hello)
	}
	stat := filepath.Join(t.TempDir(), "stat")
	f := func(text string, want uint64, wantError string) {
		t.Helper()
		if err := os.WriteFile(stat, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := startOf(stat)
		if got != want || (err == nil) != (wantError == "") || err != nil && !strings.Contains(err.Error(), wantError) {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	f("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 20", 12345, "")
	f("7 (a) S 1 2 3", 0, "4 fields")
	f("7 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 soon", 0, "start time")
	f("", 0, "0 fields")
}
