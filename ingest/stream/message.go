package stream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/whylate/whylate/wire"
)

// Major and Minor number the protocol that this package speaks. A server refuses a newer major one by name.
const (
	Major = 1
	Minor = 0
)

// Sizes, in bytes.
const (
	preambleSize = 16
	headerSize   = 32

	// MaxRaw is the most that the frames of one message may hold, unpacked: one frame of the longest kind.
	MaxRaw = wire.MaxFrame

	maxGreeting = 16 << 10 // of a message before its sender is known
	maxReply    = 64 << 10 // of a message from a server
	readStep    = 64 << 10 // a claimed length costs no more than this beyond what has really come
)

const (
	preambleMagic = "WLSTRM\r\n"
	messageMagic  = 0x4D57 // the bytes "WM"
)

// Offsets of the fields in a message's header.
const (
	atCRC    = 0
	atLength = 4
	atMagic  = 8
	atKind   = 10
	atSource = 12
	atNumber = 16
	atRaw    = 24
)

// kind says what a message is.
type kind uint8

const (
	kindHello  kind = 1
	kindOpen   kind = 2
	kindFrames kind = 3
	kindGap    kind = 4
	kindClose  kind = 5
	kindPing   kind = 6

	kindWelcome kind = 65
	kindOpened  kind = 66
	kindAck     kind = 67
	kindBusy    kind = 68
	kindRefused kind = 69
	kindPong    kind = 70
)

// message is one unit of the protocol in either direction.
type message struct {
	kind    kind
	source  uint16 // the sender's number of a source; 0 = none
	number  uint64 // of a message with data, from 1 on each connection; 0 = none
	raw     uint32 // size of the payload when it is unpacked; 0 = it is not packed
	payload []byte
}

// appendMessage appends m to dst.
func appendMessage(dst []byte, m message) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	dst = append(dst, m.payload...)
	b := dst[start:]
	le := binary.LittleEndian
	le.PutUint32(b[atLength:], uint32(len(m.payload)))
	le.PutUint16(b[atMagic:], messageMagic)
	b[atKind] = byte(m.kind)
	le.PutUint16(b[atSource:], m.source)
	le.PutUint64(b[atNumber:], m.number)
	le.PutUint32(b[atRaw:], m.raw)
	le.PutUint32(b[atCRC:], crc32.ChecksumIEEE(b[atLength:]))
	return dst
}

// appendPreamble appends what a sender says first.
func appendPreamble(dst []byte) []byte {
	dst = append(dst, preambleMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, Major)
	dst = binary.LittleEndian.AppendUint16(dst, Minor)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

// deadliner is the part of a connection that bounds how long a read may take.
type deadliner interface{ SetReadDeadline(time.Time) error }

// reader reads messages. Silence between messages and within one are bounded apart: a peer with nothing to say may be quiet for idle,
// but a message that has begun must be whole within whole.
type reader struct {
	in          *bufio.Reader
	conn        deadliner
	idle, whole time.Duration
}

// Errors of a reader, beside those of the connection. They become a [Refusal].
var (
	errMagic  = errors.New("no message begins here")
	errLength = errors.New("the message is longer than allowed")
	errSum    = errors.New("the checksum does not agree")
	errSlow   = errors.New("the message did not end in time")
	errIdle   = errors.New("nothing came")
	errCut    = errors.New("the connection ended inside a message")
)

// next reads one message with a payload of at most limit bytes. The payload is the caller's to keep. [io.EOF] is the end between two messages.
func (r *reader) next(limit int) (message, error) {
	if err := r.begin(); err != nil {
		return message{}, err
	}
	var header [headerSize]byte
	if err := r.fill(header[:]); err != nil {
		return message{}, err
	}
	le := binary.LittleEndian
	if le.Uint16(header[atMagic:]) != messageMagic {
		return message{}, fmt.Errorf("%w: % x", errMagic, header[:12])
	}
	length := le.Uint32(header[atLength:])
	if uint64(length) > uint64(limit) {
		return message{}, fmt.Errorf("%w: %d bytes where %d are allowed", errLength, length, limit)
	}
	payload, err := r.payload(int(length))
	if err != nil {
		return message{}, err
	}
	sum := crc32.Update(crc32.ChecksumIEEE(header[atLength:]), crc32.IEEETable, payload)
	if sum != le.Uint32(header[atCRC:]) {
		return message{}, errSum
	}
	return message{kind: kind(header[atKind]), source: le.Uint16(header[atSource:]), number: le.Uint64(header[atNumber:]),
		raw: le.Uint32(header[atRaw:]), payload: payload}, nil
}

// preamble reads what a sender says first, and returns the version that it speaks.
func (r *reader) preamble() (major, minor uint16, err error) {
	if err := r.begin(); err != nil {
		return 0, 0, err
	}
	var b [preambleSize]byte
	if err := r.fill(b[:]); err != nil {
		return 0, 0, err
	}
	if string(b[:8]) != preambleMagic {
		return 0, 0, fmt.Errorf("%w: %q", errMagic, b[:8])
	}
	return binary.LittleEndian.Uint16(b[8:]), binary.LittleEndian.Uint16(b[10:]), nil
}

// begin waits for the first byte of a message, and starts the time that the rest may take.
func (r *reader) begin() error {
	if r.in.Buffered() == 0 {
		if err := r.conn.SetReadDeadline(time.Now().Add(r.idle)); err != nil {
			return err
		}
		if _, err := r.in.Peek(1); err != nil {
			if isTimeout(err) {
				return fmt.Errorf("%w for %v", errIdle, r.idle)
			}
			return err
		}
	}
	return r.conn.SetReadDeadline(time.Now().Add(r.whole))
}

// fill reads exactly len(b) bytes of a message that has begun.
func (r *reader) fill(b []byte) error {
	_, err := io.ReadFull(r.in, b)
	switch {
	case err == nil:
		return nil
	case isTimeout(err):
		return fmt.Errorf("%w, which is %v", errSlow, r.whole)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCut
	}
	return err
}

// payload reads n bytes, and takes memory only as they come.
func (r *reader) payload(n int) ([]byte, error) {
	var b []byte
	for len(b) < n {
		step := min(n-len(b), max(readStep, len(b)))
		b = slices.Grow(b, step)[:len(b)+step]
		if err := r.fill(b[len(b)-step:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}
