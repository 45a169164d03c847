package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
)

// clockByHand is a clock message put together from docs/formats/stream.md §1 and §2 without this package's encoder.
func clockByHand() []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0)                 // crc, below
	b = le.AppendUint32(b, 56)                   // length: 28 + 24, padded to 8
	b = le.AppendUint64(b, 9)                    // sequence
	b = le.AppendUint64(b, 1_000_007)            // time
	b = append(b, 'W', 'L', 2, 0)                // magic, type, flags
	b = le.AppendUint64(b, 1_000_001)            // mono_before
	b = le.AppendUint64(b, 1<<60)                // realtime
	b = le.AppendUint64(b, 1_000_007)            // mono_after
	b = append(b, 0, 0, 0, 0)                    // padding
	le.PutUint32(b, crc32.ChecksumIEEE(b[4:56])) // of everything after itself
	return b
}

func TestFrameByHand(t *testing.T) {
	raw := clockByHand()
	want := Clock{Time: 1_000_007, MonoBefore: 1_000_001, Realtime: 1 << 60, MonoAfter: 1_000_007}

	f, n, err := ParseFrame(append(raw, 1, 2, 3)) // what follows is no concern of this frame
	if err != nil || n != len(raw) {
		t.Fatalf("ParseFrame: %d bytes, %v", n, err)
	}
	var got Clock
	if err := Decode(f, &got); err != nil || got != want || f.Sequence != 9 {
		t.Errorf("decoded %+v, sequence %d: %v", got, f.Sequence, err)
	}
	if b, err := Append(nil, 9, &want); err != nil || !bytes.Equal(b, raw) {
		t.Errorf("encoded\n%x, want\n%x: %v", b, raw, err)
	}
	if b, err := AppendFrame(nil, f); err != nil || !bytes.Equal(b, raw) {
		t.Errorf("framed again\n%x, want\n%x: %v", b, raw, err)
	}
}

func TestParseFrameRefuses(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(b []byte) []byte
		want  error
		says  string
	}{
		{"nothing", func(b []byte) []byte { return nil }, ErrTruncated, "0 of 28 bytes"},
		{"half a header", func(b []byte) []byte { return b[:27] }, ErrTruncated, "27 of 28 bytes"},
		{"a byte short", func(b []byte) []byte { return b[:len(b)-1] }, ErrTruncated, "clock 9: length: 55 of 56 bytes"},
		{"magic", func(b []byte) []byte { b[24]++; return b }, ErrMagic, "0x4c58"},
		{"length not of 8", func(b []byte) []byte { b[4]++; return b }, ErrLength, "57"},
		{"length too small", func(b []byte) []byte { b[4] = 24; return b }, ErrLength, "24"},
		{"length too large", func(b []byte) []byte { b[4], b[6] = 8, 0x10; return b }, ErrLength, "1048584"},
		{"body", func(b []byte) []byte { b[30] ^= 1; return b }, ErrChecksum, "crc"},
		{"sequence", func(b []byte) []byte { b[8] ^= 1; return b }, ErrChecksum, "clock 8"},
		{"padding", func(b []byte) []byte { b[55] ^= 1; return b }, ErrChecksum, "crc"},
		{"checksum", func(b []byte) []byte { b[0] ^= 1; return b }, ErrChecksum, "crc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := ParseFrame(tt.spoil(clockByHand()))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v that says %q", err, tt.want, tt.says)
			}
		})
	}
}

func TestFrameLengthLimit(t *testing.T) {
	before := []byte("before")
	largest := Frame{Sequence: 1, Type: 200, Body: make([]byte, MaxFrame-FrameHeader)}
	b, err := AppendFrame(before, largest)
	if err != nil || len(b) != len(before)+MaxFrame {
		t.Fatalf("the largest frame: %d bytes, %v", len(b), err)
	}
	if _, n, err := ParseFrame(b[len(before):]); err != nil || n != MaxFrame {
		t.Errorf("the largest frame parses to %d bytes, %v", n, err)
	}
	largest.Body = append(largest.Body, 0)
	if b, err := AppendFrame(before, largest); !errors.Is(err, ErrLength) || string(b) != "before" {
		t.Errorf("a larger frame: %d bytes, %v", len(b), err)
	}
	if b, err := AppendFrame(nil, Frame{Sequence: 1, Type: 200}); err != nil || len(b) != MinFrame {
		t.Errorf("a frame without a body: %d bytes, %v", len(b), err)
	}
}

func TestErrorNamesSourceOnce(t *testing.T) {
	err := from("first.ring", &Error{Err: ErrLength, Message: "done", Sequence: 7, Field: "emits", Value: "9 entries", Remedy: "look"})
	want := "first.ring: done 7: emits: 9 entries: the length or count is impossible; look"
	if got := from("second", err).Error(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
