package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/whylate/whylate/ledger"
)

// mustAppend encodes m, which is known to fit.
func mustAppend(t testing.TB, sequence uint64, m Message) []byte {
	t.Helper()
	b, err := Append(nil, sequence, m)
	if err != nil {
		t.Fatalf("append %s: %v", m.Type(), err)
	}
	return b
}

// mustParse reads the one frame in b, which is known to be whole.
func mustParse(t testing.TB, b []byte) Frame {
	t.Helper()
	f, n, err := ParseFrame(b)
	if err != nil || n != len(b) {
		t.Fatalf("parse %d bytes: %d, %v", len(b), n, err)
	}
	return f
}

// TestScheduledByHand puts the body of a scheduled message together from the table in docs/formats/stream.md, every field with a
// value of its own.
func TestScheduledByHand(t *testing.T) {
	le := binary.LittleEndian
	var b []byte
	for _, v := range []uint64{101, 102, 103, 104} { // iteration, alias, returned, digest
		b = le.AppendUint64(b, v)
	}
	for _, v := range []uint32{105, 106, 107, 108, 109, 110, 111, 112, 113, 114} { // tokens … spent
		b = le.AppendUint32(b, v)
	}
	b = append(b, 15, 115)
	for _, v := range []uint16{1, 2, 1, 1, 1, 1, 1} { // counts
		b = le.AppendUint16(b, v)
	}
	u32 := func(vs ...uint32) {
		for _, v := range vs {
			b = le.AppendUint32(b, v)
		}
	}
	u32(1, 2, 3, 4, 5)
	b = append(b, 3, 0, 0, 0) // join
	u32(6, 7)                 // leaves
	u32(8, 9)                 // change
	u32(10, 11, 12, 13, 14, 15)
	b = append(b, 2, 0, 0, 0)
	u32(16) // preemption
	u32(17)
	b = append(b, 7, 18, 0, 0) // skip
	u32(19, 20, math.Float32bits(2.5))
	u32(21, 22) // draft

	want := Scheduled{Time: -5, Full: true, SkipsListed: true, Iteration: 101, Alias: 102, Returned: 103, Digest: 104,
		Tokens: 105, Members: 106, Running: 107, Waiting: 108, Free: 109, TokenBudget: 110, SeqBudget: 111, Head: 112, Need: 113, Spent: 114,
		Stop: ledger.SkipOther, StopCode: 115,
		Joins: []Join{{1, 2, 3, 4, 5, JoinContinued}}, Leaves: []uint32{6, 7}, Changes: []Change{{8, 9}},
		Preemptions: []Preemption{{10, 11, 12, 13, 14, 15, CauseReset, 16}},
		Skips:       []SkipEntry{{17, ledger.SkipGrammar, 18}}, Holders: []Holder{{19, 20, 2.5}}, Drafts: []Draft{{21, 22}}}
	var got Scheduled
	if err := Decode(Frame{Type: TypeScheduled, Flags: 3, Time: -5, Body: b}, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f := mustParse(t, mustAppend(t, 1, &want))
	if f.Flags != 3 || f.Time != -5 || !bytes.HasPrefix(f.Body, b) || len(f.Body)-len(b) >= 8 {
		t.Errorf("flags %d, time %d, body\n%x, want\n%x", f.Flags, f.Time, f.Body, b)
	}
}

func TestFieldNamesAreThoseOfTheSpecification(t *testing.T) {
	spec, err := os.ReadFile("../docs/formats/stream.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, w := range regexp.MustCompile(`\w+`).FindAllString(string(spec), -1) {
		words[w] = true
	}
	name := regexp.MustCompile(`"(\w+)":`)
	for _, e := range examples {
		fields, err := fieldsOf(e.message)
		if err != nil {
			t.Fatal(err)
		}
		if e.message.Type() == TypeHello {
			continue // settings and capabilities have names of the producer's own
		}
		for _, m := range name.FindAllStringSubmatch(string(fields), -1) {
			if !words[m[1]] {
				t.Errorf("%s: %q is not in stream.md", e.name, m[1])
			}
		}
		if !words[e.message.Type().String()] {
			t.Errorf("message %q is not in stream.md", e.message.Type())
		}
	}
}

func TestNewMessage(t *testing.T) {
	for typ := range Type(255) {
		m := NewMessage(typ)
		if known := typ >= TypeHello && typ <= TypeLabels; (m != nil) != known {
			t.Errorf("%s: message %T", typ, m)
		}
		if m != nil && m.Type() != typ {
			t.Errorf("%s: got a %s", typ, m.Type())
		}
	}
}

func TestDecodeRefusesAnotherType(t *testing.T) {
	err := Decode(mustParse(t, clockByHand()), new(Done))
	if !errors.Is(err, ErrType) || !strings.HasPrefix(err.Error(), "done 9: type: clock: ") {
		t.Errorf("got %v", err)
	}
}

// TestCountsThatLie gives every count in every message a value that the body cannot hold.
func TestCountsThatLie(t *testing.T) {
	tests := []struct {
		message Message
		at      int // of the count in the body
		size    int
		field   string
	}{
		{&Delivered{}, 20, 4, "handle"},
		{&Hashes{}, 8, 4, "hash"},
		{&Cache{}, 12, 4, "hash"},
		{&Client{}, 36, 4, "gap"},
		{&Scheduled{}, 74, 2, "joins"},
		{&Scheduled{}, 76, 2, "leaves"},
		{&Scheduled{}, 78, 2, "changes"},
		{&Scheduled{}, 80, 2, "preemptions"},
		{&Scheduled{}, 82, 2, "skips"},
		{&Scheduled{}, 84, 2, "holders"},
		{&Scheduled{}, 86, 2, "drafts"},
		{&Done{}, 28, 2, "emits"},
		{&Done{}, 30, 2, "finishes"},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%s/%s", tt.message.Type(), tt.field), func(t *testing.T) {
			f := mustParse(t, mustAppend(t, 5, tt.message))
			for i := range tt.size {
				f.Body[tt.at+i] = 0xFF
			}
			m := NewMessage(f.Type)
			var err error
			if allocated := allocatedBytes(func() { err = Decode(f, m) }); allocated > 1<<14 {
				t.Errorf("allocated %d bytes", allocated)
			}
			var e *Error
			if !errors.As(err, &e) || e.Err != ErrLength || e.Field != tt.field || e.Sequence != 5 || e.Message != f.Type.String() {
				t.Errorf("got %v", err)
			}
		})
	}
}

// allocatedBytes is how much f allocates.
func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestBodiesThatEndEarly cuts every example everywhere: an error that names a field, or, where only padding was cut, none.
func TestBodiesThatEndEarly(t *testing.T) {
	for _, e := range examples {
		whole := mustParse(t, mustAppend(t, 1, e.message))
		for n := range len(whole.Body) {
			cut := whole
			cut.Body = whole.Body[:n]
			m := NewMessage(cut.Type)
			err := Decode(cut, m)
			var typed *Error
			switch {
			case err == nil:
				if diff := cmp.Diff(e.message, m, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s cut to %d bytes of body passes as something else:\n%s", e.name, n, diff)
				}
			case !errors.As(err, &typed), typed.Field == "", typed.Err != ErrTruncated && typed.Err != ErrLength && typed.Err != ErrValue:
				t.Errorf("%s cut to %d bytes of body: %v", e.name, n, err)
			}
		}
	}
}

func TestLaterMinorVersionsAppend(t *testing.T) {
	for _, e := range examples {
		if e.message.Type() == TypeHello {
			continue // grows inside its JSON
		}
		f := mustParse(t, mustAppend(t, 1, e.message))
		f.Body = append(bytes.Clone(f.Body), bytes.Repeat([]byte{0xEE}, 16)...)
		m := NewMessage(f.Type)
		if err := Decode(f, m); err != nil || !cmp.Equal(e.message, m, cmpopts.EquateEmpty()) {
			t.Errorf("%s: %v", e.name, err)
		}
	}
}

func TestStrings(t *testing.T) {
	long := strings.Repeat("a", 1_022)
	tests := []struct{ name, in, out string }{
		{"empty", "", ""},
		{"non-ASCII", "größe 東京", "größe 東京"},
		{"longest", long + "bc", long + "bc"},
		{"cut", long + "bcd", long + "bc"},
		{"cut at a character", long + "b東", long + "b"},
		{"cut at a character that just does not fit", long + "東", long},
		{"cut in an emoji", long[:1_021] + "🚆", long[:1_021]},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"half a character", "a\xe6\x9d", "a\uFFFD"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got Notice
			if err := Decode(mustParse(t, mustAppend(t, 1, &Notice{Text: tt.in})), &got); err != nil || got.Text != tt.out {
				t.Errorf("got %q, want %q: %v", got.Text, tt.out, err)
			}
		})
	}
}

func TestInvalidUTF8FromAnotherWriter(t *testing.T) {
	body := append([]byte{2, 0, 0, 0, 4, 0}, "a\xff\xfeb"...)
	var got Notice
	if err := Decode(Frame{Type: TypeNotice, Body: body}, &got); err != nil {
		t.Fatal(err)
	}
	if !utf8.ValidString(got.Text) || !strings.HasPrefix(got.Text, "a\uFFFD") || !strings.HasSuffix(got.Text, "b") {
		t.Errorf("got %q", got.Text)
	}
}

// TestAppendRefusesWhatIsTooLong also checks that what stood in the slice before is not touched.
func TestAppendRefusesWhatIsTooLong(t *testing.T) {
	for _, m := range []Message{
		&Scheduled{Leaves: make([]uint32, 65_536)},
		&Scheduled{Joins: make([]Join, 65_535)}, // the count fits, the frame does not
		&Done{Finishes: make([]Finish, 65_536)},
		&Hashes{Hashes: make([]uint64, MaxFrame/8)},
		&Hello{Settings: map[string]any{"bad": make(chan int)}},
	} {
		before := append(make([]byte, 0, 1<<21), "before"...)
		b, err := Append(before, 3, m)
		var e *Error
		if !errors.As(err, &e) || e.Sequence != 3 || e.Message != m.Type().String() || e.Field == "" {
			t.Errorf("%s: %v", m.Type(), err)
		}
		if string(b) != "before" || string(before) != "before" {
			t.Errorf("%s: left %q", m.Type(), b)
		}
	}
}

// TestDecodeReuses decodes all kinds of messages again and again into the same structs.
func TestDecodeReuses(t *testing.T) {
	for _, e := range examples {
		if e.message.Type() == TypeHello {
			continue // text; once a source
		}
		raw := mustAppend(t, 1, e.message)
		m := NewMessage(e.message.Type())
		buffer := make([]byte, 0, 2*len(raw))
		allocs := testing.AllocsPerRun(20, func() {
			f, _, err := ParseFrame(raw)
			if err == nil {
				err = Decode(f, m)
			}
			if err == nil {
				buffer, err = Append(buffer[:0], 1, m)
			}
			if err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 || !bytes.Equal(buffer, raw) {
			t.Errorf("%s: %v allocations a round", e.name, allocs)
		}
	}
}

// TestDecodeForgetsTheLastMessage decodes into structs that are full of something else.
func TestDecodeForgetsTheLastMessage(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for _, e := range examples {
		m := NewMessage(e.message.Type())
		if m.Type() != TypeHello {
			fill(reflect.ValueOf(m).Elem(), random)
		}
		if err := Decode(mustParse(t, mustAppend(t, 1, e.message)), m); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e.message, m, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e.name, diff)
		}
	}
}

// TestRandomMessages takes messages of every type with random contents there and back.
func TestRandomMessages(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		var stream []byte
		var want []Message
		for typ := TypeHello; typ <= TypeLabels; typ++ {
			m := NewMessage(typ)
			if hello, ok := m.(*Hello); ok {
				*hello = *randomHello(random)
			} else {
				fill(reflect.ValueOf(m).Elem(), random)
			}
			want = append(want, m)
			var err error
			if stream, err = Append(stream, uint64(len(want)), m); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		for i, m := range want {
			f, n, err := ParseFrame(stream)
			if err != nil || f.Sequence != uint64(i+1) || n%8 != 0 {
				t.Fatalf("seed %d: frame %d is %d of %d bytes: %v", seed, i+1, n, f.Sequence, err)
			}
			got := NewMessage(f.Type)
			if err := Decode(f, got); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if diff := cmp.Diff(m, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
				t.Fatalf("seed %d: %s (-want +got):\n%s", seed, f.Type, diff)
			}
			stream = stream[n:]
		}
		if len(stream) != 0 {
			t.Errorf("seed %d: %d bytes left over", seed, len(stream))
		}
	}
}

// fill gives v a random value that the wire can carry.
func fill(v reflect.Value, random *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), random)
		}
	case reflect.Slice:
		n := random.IntN(20)
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			fill(v.Index(i), random)
		}
	case reflect.String:
		v.SetString(randomString(random))
	case reflect.Bool:
		v.SetBool(random.IntN(2) == 1)
	case reflect.Float32:
		v.SetFloat(float64(math.Float32frombits(random.Uint32())))
	case reflect.Float64:
		v.SetFloat(math.Float64frombits(random.Uint64()))
	case reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(random.Uint64()) >> (64 - v.Type().Bits()))
	default:
		v.SetUint(random.Uint64() >> (64 - v.Type().Bits()))
	}
}

func randomString(random *rand.Rand) string {
	var b strings.Builder
	for range random.IntN(40) {
		b.WriteRune([]rune("aZ0-/_ ß東🚆\x00\"")[random.IntN(12)])
	}
	return b.String()
}

func randomHello(random *rand.Rand) *Hello {
	h := &Hello{Time: random.Int64(), Protocol: [2]uint16{Major, uint16(random.IntN(9))},
		Settings: map[string]any{randomString(random): randomString(random)}, Capabilities: map[string]bool{randomString(random): true}}
	fill(reflect.ValueOf(&h.Producer).Elem(), random)
	h.Role, h.Host, h.PID, h.Start, h.Depth = randomString(random), randomString(random), random.Uint32(), random.Uint64(), random.IntN(3)
	return h
}
