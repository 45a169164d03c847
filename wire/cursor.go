package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxString is the longest string that a writer puts on the wire, in bytes.
const maxString = 1024

// cursor goes through a message's fields in the order of docs/formats/stream.md, either reading or writing them, so that each layout
// is written down once. Every method names its field, for the error if the bytes do not reach that far; the first error
// stays, and all later reads give zero.
//
// Messages take and return a cursor by value: through an interface a pointer would escape, and cost an allocation a frame.
type cursor struct {
	buf     []byte // reading: what is left of the body; writing: the frame so far
	writing bool
	time    int64
	flags   uint8
	err     *Error // without message and sequence, which Decode and Append know
}

// fail keeps the first error and sees to it that nothing more is read, and nothing more written behind the caller's bytes.
func (c *cursor) fail(sentinel error, field, value string) {
	if c.err == nil {
		c.err = &Error{Err: sentinel, Field: field, Value: value}
	}
	c.buf = nil
}

// short fails because the body ends before the n bytes of a field.
func (c *cursor) short(field string, n int) {
	c.fail(ErrTruncated, field, fmt.Sprintf("%d bytes needed, %d left", n, len(c.buf)))
}

// take returns the next n bytes of the body, or nil if there are fewer.
func (c *cursor) take(field string, n int) []byte {
	if len(c.buf) < n {
		c.short(field, n)
		return nil
	}
	b := c.buf[:n]
	c.buf = c.buf[n:]
	return b
}

// at is the time of the frame.
func (c *cursor) at(v *int64) {
	if c.writing {
		c.time = *v
	} else {
		*v = c.time
	}
}

// flag is one bit of the frame's flags.
func (c *cursor) flag(bit uint8, v *bool) {
	if !c.writing {
		*v = c.flags&bit != 0
	} else if *v {
		c.flags |= bit
	}
}

func (c *cursor) u8(field string, v *uint8) {
	switch {
	case c.writing:
		c.buf = append(c.buf, *v)
	case len(c.buf) < 1:
		*v = 0
		c.short(field, 1)
	default:
		*v = c.buf[0]
		c.buf = c.buf[1:]
	}
}

func (c *cursor) u16(field string, v *uint16) {
	switch {
	case c.writing:
		c.buf = binary.LittleEndian.AppendUint16(c.buf, *v)
	case len(c.buf) < 2:
		*v = 0
		c.short(field, 2)
	default:
		*v = binary.LittleEndian.Uint16(c.buf)
		c.buf = c.buf[2:]
	}
}

func (c *cursor) u32(field string, v *uint32) {
	switch {
	case c.writing:
		c.buf = binary.LittleEndian.AppendUint32(c.buf, *v)
	case len(c.buf) < 4:
		*v = 0
		c.short(field, 4)
	default:
		*v = binary.LittleEndian.Uint32(c.buf)
		c.buf = c.buf[4:]
	}
}

func (c *cursor) u64(field string, v *uint64) {
	switch {
	case c.writing:
		c.buf = binary.LittleEndian.AppendUint64(c.buf, *v)
	case len(c.buf) < 8:
		*v = 0
		c.short(field, 8)
	default:
		*v = binary.LittleEndian.Uint64(c.buf)
		c.buf = c.buf[8:]
	}
}

func (c *cursor) i16(field string, v *int16) {
	u := uint16(*v)
	c.u16(field, &u)
	*v = int16(u)
}

func (c *cursor) i32(field string, v *int32) {
	u := uint32(*v)
	c.u32(field, &u)
	*v = int32(u)
}

func (c *cursor) i64(field string, v *int64) {
	u := uint64(*v)
	c.u64(field, &u)
	*v = int64(u)
}

func (c *cursor) f32(field string, v *float32) {
	u := math.Float32bits(*v)
	c.u32(field, &u)
	*v = math.Float32frombits(u)
}

func (c *cursor) f64(field string, v *float64) {
	u := math.Float64bits(*v)
	c.u64(field, &u)
	*v = math.Float64frombits(u)
}

// zero is n reserved bytes: written as zeros, not looked at when read.
func (c *cursor) zero(n int) {
	if c.writing {
		for range n {
			c.buf = append(c.buf, 0)
		}
	} else {
		c.take("zero", n)
	}
}

// str is a string with a length before it. Reading keeps the old string where it is the same, and puts U+FFFD in place of
// what is not UTF-8: a bad name is no reason to lose the record.
func (c *cursor) str(field string, v *string) {
	if c.writing {
		s := clip(*v)
		c.buf = binary.LittleEndian.AppendUint16(c.buf, uint16(len(s)))
		c.buf = append(c.buf, s...)
		return
	}
	var n uint16
	c.u16(field, &n)
	if b := c.take(field, int(n)); string(b) != *v {
		*v = strings.ToValidUTF8(string(b), string(utf8.RuneError))
	}
}

// clip makes s fit for the wire: valid UTF-8, and cut to [maxString] bytes at a character boundary.
func clip(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= maxString {
		return s
	}
	end := maxString
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// count16 is the number of entries of a list that follows: n when writing, what the body claims when reading.
func (c *cursor) count16(field string, n int) int {
	if c.writing && n > math.MaxUint16 {
		c.fail(ErrLength, field, fmt.Sprintf("%d entries, at most %d", n, math.MaxUint16))
	}
	v := uint16(n)
	c.u16(field, &v)
	return int(v)
}

// count32 is count16 in four bytes.
func (c *cursor) count32(field string, n int) int {
	v := uint32(n)
	c.u32(field, &v)
	return int(v)
}

// sized returns s with n entries of size bytes each, ready to be gone through; the entries are those of the caller when
// writing. A count that the body cannot hold is refused before anything is allocated for it.
func sized[T any](c *cursor, field string, s []T, n, size int) []T {
	if c.writing {
		return s
	}
	if n > len(c.buf)/size {
		c.fail(ErrLength, field, fmt.Sprintf("%d entries of %d bytes, %d bytes left", n, size, len(c.buf)))
		n = 0
	}
	return slices.Grow(s[:0], n)[:n]
}

// u32s is a list of n plain numbers.
func (c *cursor) u32s(field string, v *[]uint32, n int) {
	*v = sized(c, field, *v, n, 4)
	for i := range *v {
		c.u32(field, &(*v)[i])
	}
}

// u64s is a list of n plain numbers.
func (c *cursor) u64s(field string, v *[]uint64, n int) {
	*v = sized(c, field, *v, n, 8)
	for i := range *v {
		c.u64(field, &(*v)[i])
	}
}
