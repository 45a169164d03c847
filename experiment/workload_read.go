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
	"time"
)

// MaxLine is the longest line of a workload that is read, in bytes: 1 MiB.
const MaxLine = 1 << 20

// ReadOptions says how strict a [Reader] is, and of what format. The zero value is the strictest, of our own format: the first
// bad line ends the reading.
type ReadOptions struct {
	SkipBad bool   // leave out bad lines and count them (--skip-bad)
	Sort    bool   // accept times in any order; [Read] then sorts the requests by time, equal times in the order of the file
	Format  Format // nil reads our own format
	Time    string // what the format calls the time, for errors; empty stands for at_ns
}

// A Format makes a request of one line, which has no line end, is not empty and is valid until the next call. It returns false
// for a line that holds no request, such as a header, and a [*FieldError] for one that is wrong.
type Format func(line []byte) (r Request, ok bool, err error)

// own is the format of this package.
func own(line []byte) (r Request, ok bool, err error) {
	if r.scan(line) {
		return r, true, r.Validate()
	}
	err = r.UnmarshalJSON(line)
	return r, true, err
}

// Skipped counts the lines that a [Reader] left out because of [ReadOptions.SkipBad].
type Skipped struct {
	Lines   int
	Reasons map[string]int // how many for each reason; nil if there were none
	First   error          // the error of the first of them; nil if there were none
}

// A Reader reads a workload line by line. It checks every request by itself, the order of times, and that no id comes twice.
type Reader struct {
	src     *bufio.Reader
	options ReadOptions
	number  int    // of the current line, from 1
	buf     []byte // the current line
	order   order
	skipped Skipped
}

// NewReader returns a reader of the workload in r.
func NewReader(r io.Reader, options ReadOptions) *Reader {
	if options.Format == nil {
		options.Format = own
	}
	return &Reader{src: bufio.NewReaderSize(r, 64<<10), options: options}
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
		r.skipped.add(bad)
	}
}

// Skipped returns what has been left out so far.
func (r *Reader) Skipped() Skipped { return r.skipped }

func (s *Skipped) add(bad *FieldError) {
	if s.Lines++; s.First == nil {
		s.First, s.Reasons = bad, make(map[string]int)
	}
	s.Reasons[bad.Reason()]++
}

// next reads the next line that holds a request, or something that is none.
func (r *Reader) next() (Request, error) {
	for {
		text, err := r.readLine()
		if err != nil {
			return Request{}, err
		}
		if len(text) == 0 {
			continue
		}
		switch request, ok, err := r.options.Format(text); {
		case err != nil:
			return Request{}, err
		case ok:
			return request, r.place(&request, text)
		}
	}
}

// place checks the request against those before it. A time out of order is shown as it stands in the file.
func (r *Reader) place(request *Request, text []byte) error {
	err := r.order.take(request, r.number, r.options.Sort)
	if bad, ok := err.(*FieldError); ok && bad.Kind == outOfOrder && r.options.Time != "" {
		bad.Field, bad.Value = r.options.Time, excerpt(text)
		bad.Advice = "the time of this line is before that of the request above; " + sortAdvice
	}
	return err
}

// What is said of a time before the last one.
const (
	outOfOrder = "out of order"
	sortAdvice = "sort the file by time, or ask for sorting (--sort)"
)

// recentIDs is of how many ids, at least, it is known that they were there: memory does not grow with the workload.
const recentIDs = 1 << 16

// order checks each request against those before it.
type order struct {
	last         time.Duration
	ids, earlier map[string]int // id → line: the recent ones, and as many before those
}

// take takes a request up, unless its place among the others is wrong.
func (o *order) take(r *Request, line int, anyTime bool) error {
	if r.At < o.last && !anyTime {
		return &FieldError{Field: "at_ns", Value: strconv.FormatInt(int64(r.At), 10), Kind: outOfOrder,
			Advice: fmt.Sprintf("it is before that of the request above, %d; %s", int64(o.last), sortAdvice)}
	}
	if r.ID != "" {
		first, ok := o.ids[r.ID]
		if !ok {
			first, ok = o.earlier[r.ID]
		}
		if ok {
			return &FieldError{Field: "id", Value: strconv.Quote(r.ID), Kind: "id given twice",
				Advice: fmt.Sprintf("line %d has it too; an id names one request, so give each its own or leave them out", first)}
		}
		if len(o.ids) >= recentIDs {
			o.earlier, o.ids = o.ids, nil
		}
		if o.ids == nil {
			o.ids = make(map[string]int)
		}
		o.ids[r.ID] = line
	}
	o.last = r.At
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
			return nil, &FieldError{Value: excerpt(r.buf), Kind: "line too long", Advice: fmt.Sprintf("the line has %d bytes, more than the limit of %d; a request has one line of its own and no content", length, MaxLine)}
		}
		if r.number == 1 {
			r.buf = bytes.TrimPrefix(r.buf, []byte("\ufeff")) // some editors put a byte order mark first
		}
		return bytes.TrimSpace(r.buf), nil
	}
}
