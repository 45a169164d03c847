package wire

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
)

// TestWindow looks ahead and passes by random steps, through inputs that give what they like.
func TestWindow(t *testing.T) {
	data := make([]byte, 500_000)
	for i := range data {
		data[i] = byte(i * i >> 7)
	}
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		in := io.Reader(bytes.NewReader(data))
		if seed%2 == 1 {
			in = iotest.HalfReader(in)
		}
		w := window{in: in}
		for at := 0; at < len(data); {
			n := random.IntN(200_000) >> random.IntN(18)
			b, err := w.peek(n)
			if want := data[at:min(at+n, len(data))]; !bytes.Equal(b, want) || (len(b) < n) != (err == io.EOF) {
				t.Fatalf("seed %d: %d bytes of %d at %d, %v", seed, len(b), n, at, err)
			}
			step := random.IntN(len(b) + 1)
			w.pass(step)
			if at += step; n > len(b) && step == 0 {
				break
			}
		}
	}
}

// TestWindowDoesNotBelieve asks for far more than there is.
func TestWindowDoesNotBelieve(t *testing.T) {
	w := window{in: bytes.NewReader(make([]byte, 100_000))}
	if b, err := w.peek(1 << 30); len(b) != 100_000 || err != io.EOF {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if len(w.free) > 1<<20 {
		t.Errorf("made room for %d bytes", len(w.free))
	}
}
