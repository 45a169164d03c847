package logline

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the memory that a zstd stream may ask for.
const maxWindow = 128 << 20

// Unpack takes off the compression, by gzip or zstd, if there is one, and the byte order mark: at most limit bytes come out, 0 means 16 GiB.
// Its buffer holds 256 KiB to be peeked at. The function it gives must be called once, at the end: the reader is another's then. UTF-16 is an error.
func Unpack(r io.Reader, limit int64) (*bufio.Reader, func(), error) {
	limit = cmp.Or(limit, defaultLimit)
	src := buffers.Get().(*bufio.Reader)
	src.Reset(r)
	magic, _ := src.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(src)
		if err != nil {
			return nil, nil, fmt.Errorf("read gzip: %w", whole(err))
		}
		return bufio.NewReaderSize(&unpacked{z, "gzip", limit}, lookAhead), func() { _ = z.Close() }, nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, fmt.Errorf("read zstd: %w", err)
		}
		return bufio.NewReaderSize(&unpacked{z, "zstd", limit}, lookAhead), z.Close, nil
	case bytes.HasPrefix(magic, []byte{0xff, 0xfe}), bytes.HasPrefix(magic, []byte{0xfe, 0xff}):
		return nil, nil, errors.New("the text is UTF-16, as PowerShell redirects: save it as UTF-8 (Out-File -Encoding utf8)")
	}
	if bytes.HasPrefix(magic, bom) {
		_, _ = src.Discard(len(bom))
	}
	return src, func() {
		src.Reset(nil)
		buffers.Put(src)
	}, nil
}

// buffers are used again: thousands of pages are read one after the other.
var buffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, lookAhead) }}

var bom = []byte{0xef, 0xbb, 0xbf}

// unpacked names the compression in its errors, and ends what unpacks without end.
type unpacked struct {
	r    io.Reader
	name string
	left int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.left <= 0 {
		return 0, fmt.Errorf("%s: more than the limit of unpacked bytes; the rest is not read", u.name)
	}
	n, err := u.r.Read(p[:min(int64(len(p)), u.left)])
	u.left -= int64(n)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: %w", u.name, whole(err))
	}
	return n, err
}

// whole is the error of a file that ends too early in words.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("the file is truncated: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// physical are the lines of a file.
type physical struct {
	src  *bufio.Reader
	long []byte // a line that did not fit the source's buffer
	n    int
	err  error // comes after the line that it cut
}

// next is a line without its end, valid until the next call, and how many of its bytes were too many. Its number is p.n.
// At the end the error is io.EOF.
func (p *physical) next() (line []byte, skipped int64, err error) {
	if p.err != nil {
		return nil, 0, p.err
	}
	line, err = p.src.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		line, skipped, err = p.longer(line)
	}
	if len(line) == 0 {
		return nil, 0, err
	}
	p.err = err
	p.n++
	return bytes.TrimRight(line, "\r\n"), skipped, nil
}

// longer reads on, and keeps of the line as much as it may.
func (p *physical) longer(first []byte) (line []byte, skipped int64, err error) {
	p.long = append(p.long[:0], first...)
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var part []byte
		part, err = p.src.ReadSlice('\n')
		part = bytes.TrimRight(part, "\r\n")
		room := min(len(part), MaxLine-len(p.long))
		p.long = append(p.long, part[:room]...)
		skipped += int64(len(part) - room)
	}
	return p.long, skipped, err
}

// Lines are those of a text as they stand, without their ends, each valid until the next; of a longer one than MaxLine so much. An error is the
// last that it gives.
func Lines(src *bufio.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		p := physical{src: src}
		for {
			line, _, err := p.next()
			if err == io.EOF || !yield(line, err) || err != nil {
				return
			}
		}
	}
}
