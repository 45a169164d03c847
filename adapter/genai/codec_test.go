package genai

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"
)

// anySpans are spans with everything that a span can have, now and then.
func anySpans(t testing.TB, r *rand.Rand, n int) []Span {
	resources := []*Resource{gateway, server, agent, {Service: "s", Instance: "i", Host: "h", Pod: "p", Process: "7", Module: "m"}}
	spans := make([]Span, n)
	for i := range spans {
		s := made(t, byte(r.IntN(250)+1), byte(r.IntN(250)), []string{"llm_request", "chat", "POST"}[r.IntN(3)], Kind(r.IntN(6)), resources[r.IntN(4)], r.Float64()*1e4, r.Float64()*1e4)
		s.Trace, s.Status = TraceID{byte(r.IntN(5)), 15: 1}, Status(r.IntN(4))
		for range r.IntN(4) {
			name := &names[r.IntN(len(names))]
			switch name.Unit {
			case Ident:
				s.set(name, 0, []string{"a", "b", "chatcmpl-1"}[r.IntN(3)])
			default:
				s.set(name, r.Int64N(1<<40), "")
			}
		}
		if r.IntN(3) == 0 {
			s.Threshold = Threshold{r.Uint64N(1 << 56), true}
		}
		if r.IntN(3) == 0 {
			s.Content = &Content{1, 1 << 40, Roles{1, 2, 3, 4, 5}, 6, 7}
		}
		for range r.IntN(2) {
			s.Events = append(s.Events, Event{"schedule", s.Start + r.Int64N(1e9), "12", "decode", 31})
		}
		s.Dropped = uint32(r.IntN(2)) * 9
		if r.IntN(9) == 0 {
			s.Start, s.End = 0, r.Int64()
		}
		spans[i] = s
	}
	return spans
}

func TestSpansComeBackAsTheyWere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 60 {
		want := anySpans(t, r, n)
		b := AppendSpans(nil, want)
		got, err := DecodeSpans(append(b, make([]byte, r.IntN(9))...)) // a frame is padded
		if err != nil || len(got) != len(want) {
			t.Fatalf("%d of %d spans: %v", len(got), len(want), err)
		}
		for i := range want {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("span %d came back as\n%+v, was\n%+v", i, got[i], want[i])
			}
		}
		for cut := range len(b) { // every beginning is refused, none panics
			if _, err := DecodeSpans(b[:cut]); !errors.Is(err, ErrEncoding) {
				t.Fatalf("cut at %d of %d: %v", cut, len(b), err)
			}
		}
	}
}

func TestNewerEncodingIsRefusedByName(t *testing.T) {
	if _, err := DecodeSpans([]byte{codecVersion + 1, 0, 0, 0, 0}); !errors.Is(err, ErrEncoding) || !bytes.Contains([]byte(err.Error()), []byte("version 2")) {
		t.Error(err)
	}
}

func FuzzDecodeSpans(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for n := range 5 {
		f.Add(AppendSpans(nil, anySpans(f, r, n*3)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, err := DecodeSpans(b)
		if err != nil {
			return
		}
		again, err := DecodeSpans(AppendSpans(nil, spans))
		if err != nil || len(again) != len(spans) {
			t.Fatalf("%d spans were read and written, %d read again: %v", len(spans), len(again), err)
		}
		for i := range spans {
			if !reflect.DeepEqual(spans[i], again[i]) {
				t.Fatalf("%+v came back as %+v", spans[i], again[i])
			}
		}
	})
}
