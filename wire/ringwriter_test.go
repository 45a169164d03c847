package wire

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCreateRing(t *testing.T) {
	w := createRing(t, testRingSize)
	if got, want := filepath.Base(w.Path()), "01234567-12-34-simulator-scheduler.ring"; got != want {
		t.Errorf("named %s, want %s", got, want)
	}
	var stat unix.Stat_t
	if err := unix.Stat(w.Path(), &stat); err != nil {
		t.Fatal(err)
	}
	if stat.Mode&0o777 != 0o600 || stat.Size != ringHeaderSize+testRingSize || stat.Blocks*512 < stat.Size {
		t.Errorf("mode %o, %d bytes, %d of them reserved", stat.Mode, stat.Size, stat.Blocks*512)
	}
	if _, err := CreateRing(filepath.Dir(w.Path()), &testHello, testRingSize); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second writer of the same ring: %v", err)
	}
}

// TestRingByHand looks at a ring file with nothing but the table in docs/formats/stream.md §3.
func TestRingByHand(t *testing.T) {
	w := createRing(t, testRingSize)
	for range 2 * testRingSize / 72 { // twice around, in frames of 72 bytes, which do not fill the ring
		if err := w.Write(&Notice{Time: 9, Text: strings.Repeat("x", 38)}); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(w.Path())
	if err != nil {
		t.Fatal(err)
	}
	le := binary.LittleEndian
	if string(file[:8]) != "WLRING\r\n" || le.Uint16(file[8:]) != 1 || le.Uint16(file[10:]) != Minor || le.Uint32(file[12:]) != 16_384 ||
		le.Uint64(file[16:]) != testRingSize || le.Uint32(file[24:]) != 12 || le.Uint64(file[32:]) != 34 {
		t.Errorf("header: %x", file[:40])
	}
	if f, n, err := ParseFrame(file[1_024:]); err != nil || uint32(n) != le.Uint32(file[28:]) || f.Type != TypeHello {
		t.Errorf("hello: %+v, %d of %d bytes, %v", f, n, le.Uint32(file[28:]), err)
	}
	if before, realtime, after := le.Uint64(file[128:]), le.Uint64(file[136:]), le.Uint64(file[144:]); before != 1 || realtime != 2 || after != 3 {
		t.Errorf("clock pair %d, %d, %d", before, realtime, after)
	}

	// From the start of the data area, frame follows frame to a mark of eight zero bytes at the end of the lap, or to head.
	data := file[16_384:]
	head, newest := le.Uint64(file[64:]), uint64(0)
	at := uint64(0)
	for at < head%testRingSize {
		f, n, err := ParseFrame(data[at:])
		if err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
		newest = f.Sequence
		at += uint64(n)
	}
	if at != head%testRingSize || newest != le.Uint64(file[72:]) {
		t.Errorf("the newest frame is %d of %d and ends at %d of %d", newest, le.Uint64(file[72:]), at, head%testRingSize)
	}
	for at, data := len(data), data; ; { // the last frame of the lap before, and behind it the mark
		at -= 8
		if f, n, err := ParseFrame(data[at:]); err == nil && f.Sequence < newest {
			if end := at + n; end == len(data) || string(data[end:end+8]) != strings.Repeat("\x00", 8) {
				t.Errorf("the lap ends with frame %d at %d, and then %x", f.Sequence, end, data[end:])
			}
			break
		}
	}
}

func TestCreateRingRefuses(t *testing.T) {
	manySettings := testHello
	manySettings.Settings = map[string]any{"long": strings.Repeat("x", ringHelloMax)}
	tests := []struct {
		name  string
		hello *Hello
		size  int64
		want  error
		says  string
	}{
		{"no room", &testHello, 1 << 60, nil, "the file system has no room for it"},
		{"not of 8", &testHello, testRingSize + 4, ErrLength, "data size: 2052"},
		{"too small for the hello", &testHello, 64, ErrLength, "data size: 64"},
		{"nothing", &testHello, 0, ErrLength, "data size: 0"},
		{"negative", &testHello, -8, ErrLength, "data size: -8"},
		{"hello too long", &manySettings, testRingSize, ErrLength, "name fewer settings"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := CreateRing(dir, tt.hello, tt.size)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v that says %q", err, tt.want, tt.says)
			}
			if left, err := os.ReadDir(dir); len(left) != 0 || err != nil {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestRingNameStaysInItsDirectory(t *testing.T) {
	h := testHello
	h.Thread = "../../etc/passwd"
	if name := RingName(&h); strings.Contains(name, "/") {
		t.Errorf("got %s", name)
	}
}
