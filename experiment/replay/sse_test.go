package replay

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// ticks is a clock that goes on by one at each reading.
type ticks struct {
	Clock
	n int64
}

func (c *ticks) Now() int64 { c.n++; return c.n }

// got is an event that can be kept.
type got struct{ name, data string }

func readEvents(src io.Reader, limit int) (events []got, err error) {
	r := newEventReader(src, &ticks{}, limit)
	for {
		e, err := r.next()
		if err != nil {
			return events, err
		}
		events = append(events, got{e.name, string(e.data)})
	}
}

func TestEvents(t *testing.T) {
	f := func(stream string, want ...got) {
		t.Helper()
		for how, src := range map[string]io.Reader{
			"at once":         strings.NewReader(stream),
			"byte by byte":    iotest.OneByteReader(strings.NewReader(stream)),
			"data with error": iotest.DataErrReader(strings.NewReader(stream)),
		} {
			events, err := readEvents(src, 1<<20)
			if err != io.EOF || !reflect.DeepEqual(events, want) {
				t.Errorf("%q %s:\ngot  %q, %v\nwant %q", stream, how, events, err, want)
			}
		}
	}
	f("")
	f("data: a\n\ndata: b\n\n", got{"", "a"}, got{"", "b"})
	f("data: a\r\n\r\ndata: b\r\n\r\n", got{"", "a"}, got{"", "b"})
	f("data: a\r\rdata: b\r\r", got{"", "a"}, got{"", "b"})
	f("data: a\r\n\rdata: b\n\r\n", got{"", "a"}, got{"", "b"})
	f("\ufeffdata: a\n\n", got{"", "a"})
	f("data: a\ndata:b\ndata\ndata:  c\n\n", got{"", "a\nb\n\n c"})
	f(": ping\n\n:\n\ndata: a\n: within\n\n", got{"", "a"})
	f("event: error\nid: 7\nretry: 10\nnonsense\ndata: {}\n\ndata: x\n\n", got{"error", "{}"}, got{"", "x"})
	f("event: lost\n\ndata: x\n\n", got{"", "x"}) // an event without data is none, and its name goes with it
	f("data\n\n", got{"", ""})
	f("\n\n\r\n\n")
	f("data: [DONE]", got{"", "[DONE]"}) // no empty line, no end of line: what servers do
	f("data: a\n", got{"", "a"})
	f("data: a: b:c\n\n", got{"", "a: b:c"})
	long := strings.Repeat("é\t", 50_000)
	f("data: "+long+"\n\ndata: x\n\n", got{"", long}, got{"", "x"})
}

func TestEventsWithinTheLimit(t *testing.T) {
	f := func(stream, want string) {
		t.Helper()
		events, err := readEvents(strings.NewReader(stream), 10_000)
		if !errors.Is(err, errTooLong) || !strings.Contains(err.Error(), want) || len(events) != 1 {
			t.Errorf("got %d events, then %v; want %q", len(events), err, want)
		}
	}
	f("data: a\n\ndata: "+strings.Repeat("x", 50_000), "a line of the stream is longer than the limit of 10000 bytes")
	f("data: a\n\n"+strings.Repeat("data: "+strings.Repeat("x", 900)+"\n", 50), "an event of the stream is longer than the limit of 10000 bytes")
}

func TestBrokenStreamKeepsWholeEventsOnly(t *testing.T) {
	broken := errors.New("reset by peer")
	events, err := readEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: b\ndata: c"), iotest.ErrReader(broken)), 1<<20)
	if !errors.Is(err, broken) || !reflect.DeepEqual(events, []got{{"", "a"}}) {
		t.Errorf("got %q, %v", events, err)
	}
}

// An event's time is that of the read that completed it, not that of its reading out of the buffer.
func TestEventTimes(t *testing.T) {
	parts := []string{"data: a\n\ndata: b\n\nda", "ta: c\n", "\n", "data: d\n\n"}
	var readers []io.Reader
	for _, p := range parts {
		readers = append(readers, strings.NewReader(p))
	}
	r := newEventReader(io.MultiReader(readers...), &ticks{}, 1<<20)
	var times []int64
	for {
		e, err := r.next()
		if err != nil {
			break
		}
		times = append(times, e.at)
	}
	if want := []int64{1, 1, 3, 4}; !reflect.DeepEqual(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
}

// slowEvents reads events in the plainest way: all bytes first, then by the letter of the standard.
func slowEvents(stream []byte) (events []got) {
	text := strings.TrimPrefix(string(stream), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	var name string
	var data []string
	for _, line := range strings.Split(text, "\n") {
		if line == "" {
			if data != nil {
				events = append(events, got{name, strings.Join(data, "\n")})
			}
			name, data = "", nil
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			name = value
		}
	}
	if data != nil {
		events = append(events, got{name, strings.Join(data, "\n")})
	}
	return events
}

// FuzzEvents compares the reader with the plain one, whole and in pieces, and feeds the events to an answer.
func FuzzEvents(f *testing.F) {
	for _, stream := range realStreams(f) {
		f.Add(stream, 7)
		f.Add(bytes.ReplaceAll(stream, []byte("\n"), []byte("\r\n")), 1)
	}
	f.Add([]byte("\ufeff: hi\r\revent: error\ndata\ndata: {\"error\":{\"message\":\"x\"}}\n\r\n"), 3)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		want := slowEvents(stream)
		events, err := readEvents(&pieces{stream, max(piece, 1)}, len(stream)+1)
		if err != io.EOF || !reflect.DeepEqual(events, want) {
			t.Fatalf("got  %q, %v\nwant %q", events, err, want)
		}
		var a answer
		chunks := 0
		for _, e := range events {
			a.take(event{name: e.name, data: []byte(e.data)}, func(sequence int) {
				if chunks++; sequence < 0 || sequence > maxIndex {
					t.Fatalf("output for sequence %d", sequence)
				}
			})
		}
		if a.counted < chunks || a.usage != nil && (a.usage.PromptTokens < 0 || a.usage.CompletionTokens < 0) {
			t.Fatalf("%d tokens in %d chunks, usage %+v", a.counted, chunks, a.usage)
		}
	})
}

// pieces hands out its bytes n at a time.
type pieces struct {
	rest []byte
	n    int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.n)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// realStreams returns the recorded answers of real engines.
func realStreams(t testing.TB) map[string][]byte {
	t.Helper()
	names, err := filepath.Glob("testdata/*.sse")
	if err != nil || len(names) == 0 {
		t.Fatal("no testdata/*.sse", err)
	}
	streams := make(map[string][]byte)
	for _, name := range names {
		stream, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		streams[strings.TrimSuffix(filepath.Base(name), ".sse")] = stream
	}
	return streams
}

func BenchmarkEvents(b *testing.B) {
	for name, stream := range realStreams(b) {
		b.Run("split/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			for b.Loop() {
				r := newEventReader(bytes.NewReader(stream), Monotonic{}, 1<<20)
				for {
					if _, err := r.next(); err != nil {
						break
					}
				}
			}
		})
		b.Run("answer/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(stream)))
			b.ReportAllocs()
			chunks := 0
			start := time.Now()
			for b.Loop() {
				var a answer
				var r Result
				if err := a.read(newEventReader(bytes.NewReader(stream), Monotonic{}, 1<<20), &r, 0); err != nil {
					b.Fatal(err)
				}
				chunks += len(r.Chunks)
			}
			if chunks > 0 {
				b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(chunks), "ns/chunk")
			}
		})
	}
}
