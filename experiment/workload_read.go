package experiment

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// MaxLine is the longest line of a workload that is read, in bytes: 1 MiB.
const MaxLine = 1 << 20

// ReadOptions says how strict a [Reader] is. The zero value is the strictest: the first bad line ends the reading.
type ReadOptions struct {
	SkipBad bool // leave out bad lines and count them (--skip-bad)
	Sort    bool // accept times in any order; [Read] then sorts the requests by time, equal times in the order of the file
}

// Skipped counts the lines that a [Reader] left out because of [ReadOptions.SkipBad].
type Skipped struct {
	Lines int
	First error // the error of the first of them; nil if there were none
}

// A Reader reads a workload line by line. It checks every request by itself, the order of times, and that no id comes twice.
type Reader struct {
	src     *bufio.Reader
	options ReadOptions
	number  int    // of the current line, from 1
	buf     []byte // the current line
	last    *Request
	ids     map[string]int // id → line
	skipped Skipped
}

// NewReader returns a reader of the workload in r.
func NewReader(r io.Reader, options ReadOptions) *Reader {
	return &Reader{src: bufio.NewReaderSize(r, 64<<10), options: options, ids: make(map[string]int)}
}

// Read reads a whole workload. The error is that of [Reader.Next].
func Read(r io.Reader, options ReadOptions) ([]Request, Skipped, error) {
	reader := NewReader(r, options)
	var all []Request
	for {
		request, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, reader.skipped, err
		}
		all = append(all, request)
	}
	if options.Sort {
		slices.SortStableFunc(all, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	}
	return all, reader.skipped, nil
}

// Next returns the next request, or [io.EOF] after the last. A bad line gives a [*FieldError], unless it is skipped; a failing
// source gives its own error, with the line. Empty lines do not count as bad.
func (r *Reader) Next() (Request, error) {
	for {
		request, err := r.next()
		var bad *FieldError
		if !errors.As(err, &bad) {
			return request, err
		}
		bad.Line = r.number
		if !r.options.SkipBad {
			return Request{}, bad
		}
		if r.skipped.Lines++; r.skipped.First == nil {
			r.skipped.First = bad
		}
	}
}

// Skipped returns what has been left out so far.
func (r *Reader) Skipped() Skipped { return r.skipped }

// next reads the next line that is not empty, whatever it holds.
func (r *Reader) next() (Request, error) {
	text, err := r.readLine()
	for err == nil && len(text) == 0 {
		text, err = r.readLine()
	}
	if err != nil {
		return Request{}, err
	}
	var request Request
	if err := request.UnmarshalJSON(text); err != nil {
		return Request{}, err
	}
	if err := r.fits(&request); err != nil {
		return Request{}, err
	}
	r.last = &request
	if request.ID != "" {
		r.ids[request.ID] = r.number
	}
	return request, nil
}

// fits checks the request against those before it.
func (r *Reader) fits(request *Request) error {
	if before := r.last; before != nil && request.At < before.At && !r.options.Sort {
		return wrong("at_ns", int64(request.At), fmt.Sprintf("it is before that of the request above, %d; sort the file by at_ns, or ask for sorting", int64(before.At)))
	}
	if first, ok := r.ids[request.ID]; ok {
		return wrong("id", strconv.Quote(request.ID), fmt.Sprintf("line %d has it too; an id names one request, so give each its own or leave them out", first))
	}
	return nil
}

// readLine returns the next line without its end, valid until the next call. A line that is too long is passed over to its
// end and gives a FieldError.
func (r *Reader) readLine() ([]byte, error) {
	r.number++
	r.buf = r.buf[:0]
	length := 0
	for {
		part, err := r.src.ReadSlice('\n')
		if length += len(part); length <= MaxLine+len("\r\n") {
			r.buf = append(r.buf, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && length == 0:
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, fmt.Errorf("read workload line %d: %w", r.number, err)
		case length > MaxLine+len("\r\n"):
			return nil, &FieldError{Value: excerpt(r.buf), Advice: fmt.Sprintf("the line has %d bytes, more than the limit of %d; a request has one line of its own and no content", length, MaxLine)}
		}
		if r.number == 1 {
			r.buf = bytes.TrimPrefix(r.buf, []byte("\ufeff")) // some editors put a byte order mark first
		}
		return bytes.TrimSpace(r.buf), nil
	}
}
