package otlp

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// OTLP's JSON is read by writing it as the protobuf that it stands for: ids in hex, 64-bit integers as text or numbers, enumerations as numbers
// (or, from writers that know no better, by name). So there is one reader of spans, points and records, and one place in which it is decided
// what of them is kept.

// transcoder writes one request. What a span, a point or a record holds of a wrong type costs that one; broken JSON costs the request.
type transcoder struct {
	in      []byte
	at      int
	out     []byte
	limits  Limits
	depth   int
	objects int
	odd     bool // a value has another type than its field
	scratch []byte
}

// mark stands where something could not be written: a reader finds it damaged.
const mark = 0x03 // the start of a group with the number 0

var errOdd = errors.New("a value of another type")

// transcode writes request, of the type root, as protobuf behind out.
func transcode(request, out []byte, root *message, limits Limits) (_ []byte, err error) {
	t := transcoder{in: request, out: out, limits: limits}
	err = t.object(root)
	if err == nil {
		if t.space(); t.at < len(t.in) {
			err = refuse(Malformed, "something follows the request at byte %d: one request a line, or one a body", t.at)
		}
	}
	if err == nil && t.odd {
		err = refuse(Malformed, "JSON that is no %s", root.name)
	}
	return t.out, err
}

func (t *transcoder) space() {
	for t.at < len(t.in) {
		switch t.in[t.at] {
		case ' ', '\t', '\r', '\n':
			t.at++
		default:
			return
		}
	}
}

// next is the next byte that is no space, 0 at the end.
func (t *transcoder) next() byte {
	t.space()
	if t.at >= len(t.in) {
		return 0
	}
	return t.in[t.at]
}

// syntax is the error of a place where JSON ends or is none.
func (t *transcoder) syntax() error {
	if t.at >= len(t.in) {
		return refuse(Truncated, "JSON that ends in the middle, after %d bytes", len(t.in))
	}
	return refuse(Malformed, "no JSON from byte %d on", t.at)
}

// enter begins an object or array.
func (t *transcoder) enter() error {
	t.at++
	t.objects++
	if t.depth++; t.depth > t.limits.Depth {
		return refuse(TooDeep, "JSON nested more than %d deep at byte %d", t.limits.Depth, t.at-1)
	}
	if t.objects > t.limits.Objects {
		return refuse(TooMany, "more than %d objects in one request: send smaller batches", t.limits.Objects)
	}
	return nil
}

// items calls f for each item of an object or array, at the place where it begins.
func (t *transcoder) items(end byte, f func() error) error {
	if err := t.enter(); err != nil {
		return err
	}
	if t.next() == end {
		t.at++
		t.depth--
		return nil
	}
	for {
		t.space()
		if err := f(); err != nil {
			return err
		}
		switch t.next() {
		case ',':
			t.at++
		case end:
			t.at++
			t.depth--
			return nil
		default:
			return t.syntax()
		}
	}
}

// object writes the fields of an object of type m.
func (t *transcoder) object(m *message) error {
	if t.next() != '{' {
		if t.at >= len(t.in) {
			return t.syntax()
		}
		return t.stray()
	}
	return t.items('}', func() error {
		key, err := t.key()
		if err != nil {
			return err
		}
		f := m.fields[string(key)]
		switch {
		case f == nil:
			return t.skip()
		case f.repeated:
			return t.list(f)
		default:
			return t.value(f)
		}
	})
}

func (t *transcoder) key() ([]byte, error) {
	if t.next() != '"' {
		return nil, t.syntax()
	}
	key, err := t.text(t.scratch[:0])
	if err != nil {
		return nil, err
	}
	t.scratch = key
	if t.next() != ':' {
		return nil, t.syntax()
	}
	t.at++
	t.space()
	return key, nil
}

// stray passes over a value that has another type than its field.
func (t *transcoder) stray() error {
	t.odd = true
	return t.skip()
}

func (t *transcoder) list(f *field) error {
	switch t.next() {
	case 'n':
		return t.skip()
	case '[':
	default:
		return t.stray()
	}
	if f.kind == inMessage || f.kind == asText {
		return t.items(']', func() error { return t.value(f) })
	}
	t.out = protowire.AppendTag(t.out, f.number, protowire.BytesType) // numbers are packed
	from := t.open()
	err := t.items(']', func() error { return t.scalar(f) })
	t.shut(from)
	return err
}

// open leaves room for a length; shut writes it.
func (t *transcoder) open() int {
	t.out = append(t.out, 0, 0, 0, 0, 0)
	return len(t.out)
}

func (t *transcoder) shut(from int) {
	n := len(t.out) - from
	if n < 1<<7 { // most are short: the room is closed
		t.out[from-5] = byte(n)
		copy(t.out[from-4:], t.out[from:])
		t.out = t.out[:len(t.out)-4]
		return
	}
	for i := range 4 {
		t.out[from-5+i] = byte(n)&0x7f | 0x80
		n >>= 7
	}
	t.out[from-1] = byte(n)
}

// value writes one field with its tag.
func (t *transcoder) value(f *field) error {
	if t.next() == 'n' {
		return t.skip()
	}
	if f.kind != inMessage {
		before := len(t.out)
		t.out = protowire.AppendTag(t.out, f.number, f.kind.wire())
		start := len(t.out)
		err := t.scalar(f)
		if len(t.out) == start {
			t.out = t.out[:before]
		}
		return err
	}
	outer, begin := t.odd, len(t.out)
	t.odd = false
	t.out = protowire.AppendTag(t.out, f.number, protowire.BytesType)
	from := t.open()
	if err := t.object(f.message); err != nil {
		return err
	}
	switch {
	case t.odd && f.message.alone: // it costs itself
		t.out = append(t.out[:from], mark)
		t.odd = false
	case t.odd && f.message.optional:
		t.out = t.out[:begin]
		t.odd = outer
		return nil
	}
	t.shut(from)
	t.odd = t.odd || outer
	return nil
}

// scalar writes a value without its tag. One of another type is passed over.
func (t *transcoder) scalar(f *field) error {
	quoted := t.next() == '"'
	if !quoted && (f.kind == asText || f.kind == asHex || f.kind == asBase64) {
		return t.stray()
	}
	if quoted && f.kind == asText {
		from := t.open()
		var err error
		t.out, err = t.text(t.out)
		t.shut(from)
		return err
	}
	var word []byte
	var err error
	if quoted {
		word, err = t.text(t.scratch[:0])
		t.scratch = word
	} else {
		word, err = t.word()
	}
	if err != nil {
		return err
	}
	if word == nil || t.write(f, word, quoted) != nil {
		if word == nil {
			return t.stray()
		}
		t.odd = true
	}
	return nil
}

// word is a number, true or false; nil where something else begins.
func (t *transcoder) word() ([]byte, error) {
	from := t.at
	switch c := t.next(); {
	case c == 't' || c == 'f':
		if err := t.skip(); err != nil {
			return nil, err
		}
	case c == '-' || c >= '0' && c <= '9':
		t.number()
	case c == '{' || c == '[' || c == 'n':
		return nil, nil
	default:
		return nil, t.syntax()
	}
	return t.in[from:t.at], nil
}

func (t *transcoder) number() {
	for t.at < len(t.in) {
		switch c := t.in[t.at]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
			t.at++
		default:
			return
		}
	}
}

// write writes the number, truth, id or bytes that a word stands for.
func (t *transcoder) write(f *field, word []byte, quoted bool) error {
	switch f.kind {
	case asHex:
		if len(word)%2 != 0 || len(word) > 64 {
			return errOdd
		}
		from := t.open()
		n := len(t.out)
		t.out = append(t.out, make([]byte, len(word)/2)...)
		_, err := hex.Decode(t.out[n:], word)
		t.shut(from)
		return err
	case asBase64: // of which only the size is of interest
		from := t.open()
		t.out = append(t.out, make([]byte, base64.StdEncoding.DecodedLen(len(word)))...)
		t.shut(from)
	case asFixed:
		n, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil {
			return errOdd
		}
		t.out = binary.LittleEndian.AppendUint64(t.out, n)
	case asSigned, asVarint:
		n, err := strconv.ParseInt(string(word), 10, 64)
		if err != nil {
			return errOdd
		}
		if f.kind == asSigned {
			t.out = binary.LittleEndian.AppendUint64(t.out, uint64(n))
		} else {
			t.out = protowire.AppendVarint(t.out, uint64(n))
		}
	case asZigzag:
		n, err := strconv.ParseInt(string(word), 10, 32)
		if err != nil {
			return errOdd
		}
		t.out = protowire.AppendVarint(t.out, protowire.EncodeZigZag(n))
	case asDouble:
		n, err := strconv.ParseFloat(string(word), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return errOdd
		}
		t.out = binary.LittleEndian.AppendUint64(t.out, math.Float64bits(n))
	case asBool:
		if quoted || word[0] != 't' && word[0] != 'f' {
			return errOdd
		}
		t.out = protowire.AppendVarint(t.out, protowire.EncodeBool(word[0] == 't'))
	case asEnum:
		n, err := strconv.ParseUint(string(word), 10, 8)
		if err != nil {
			n = enums[string(word)]
		}
		t.out = protowire.AppendVarint(t.out, n)
	}
	return nil
}

// text appends what a quoted text says to out.
func (t *transcoder) text(out []byte) ([]byte, error) {
	t.at++
	for from := t.at; ; t.at++ {
		if t.at >= len(t.in) {
			return out, t.syntax()
		}
		switch c := t.in[t.at]; {
		case c == '"':
			out = append(out, t.in[from:t.at]...)
			t.at++
			return out, nil
		case c < ' ':
			return out, t.syntax()
		case c == '\\':
			out = append(out, t.in[from:t.at]...)
			var err error
			if out, err = t.escape(out); err != nil {
				return out, err
			}
			from = t.at + 1
		}
	}
}

// escape appends what stands behind a backslash, and stops at its last byte.
func (t *transcoder) escape(out []byte) ([]byte, error) {
	if t.at++; t.at >= len(t.in) {
		return out, t.syntax()
	}
	switch c := t.in[t.at]; c {
	case '"', '\\', '/':
		return append(out, c), nil
	case 'b':
		return append(out, '\b'), nil
	case 'f':
		return append(out, '\f'), nil
	case 'n':
		return append(out, '\n'), nil
	case 'r':
		return append(out, '\r'), nil
	case 't':
		return append(out, '\t'), nil
	case 'u':
		r, ok := t.unit(t.at + 1)
		if !ok {
			return out, t.syntax()
		}
		t.at += 4
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if t.at+2 < len(t.in) && t.in[t.at+1] == '\\' && t.in[t.at+2] == 'u' {
				low, ok = t.unit(t.at + 3)
			}
			if both := utf16.DecodeRune(r, low); ok && both != utf8.RuneError {
				r = both
				t.at += 6
			} else {
				r = utf8.RuneError
			}
		}
		return utf8.AppendRune(out, r), nil
	}
	return out, t.syntax()
}

// unit is the UTF-16 unit of four hex digits.
func (t *transcoder) unit(at int) (r rune, ok bool) {
	if at+4 > len(t.in) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(t.in[at:at+4]), 16, 32)
	return rune(n), err == nil
}

// skip passes over a value.
func (t *transcoder) skip() error {
	switch c := t.next(); {
	case c == '{':
		return t.items('}', func() error {
			if _, err := t.key(); err != nil {
				return err
			}
			return t.skip()
		})
	case c == '[':
		return t.items(']', t.skip)
	case c == '"':
		kept := len(t.out)
		out, err := t.text(t.out) // its bytes are looked at, not kept
		t.out = out[:kept]
		return err
	case c == '-' || c >= '0' && c <= '9':
		t.number()
		return nil
	}
	for _, literal := range []string{"null", "true", "false"} {
		if t.at+len(literal) <= len(t.in) && string(t.in[t.at:t.at+len(literal)]) == literal {
			t.at += len(literal)
			return nil
		}
	}
	return t.syntax()
}
