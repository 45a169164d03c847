package otlp

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"

	"github.com/whylate/whylate/adapter/genai"
)

// File reads a file of traces: one request in JSON or protobuf, or JSON lines with a request each, plain or gzipped, told apart by what is in
// them. Spans go to give as they come, so that memory does not grow with the file; a nil give collects them. A line that cannot be taken costs
// itself. The error, a *Refused or one of r, says why a file gave nothing or was not read to its end; what came before it stands.
func (d *Decoder) File(r io.Reader, give func([]genai.Span)) (*Decoded, error) {
	limits := d.Limits.settled()
	out := &Decoded{}
	in, err := plain(r, limits)
	if err != nil {
		return out, err
	}
	hand := func() {
		if give != nil && len(out.Spans) > 0 {
			give(out.Spans)
			out.Spans = nil
		}
	}
	encoding, err := sniff(in)
	if err != nil || encoding == Protobuf {
		if err == nil {
			err = d.whole(out, nil, in, Protobuf, limits)
		}
		hand()
		return out, err
	}
	for n := 0; ; n++ {
		line, err := readLine(in, limits.Body)
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out, nil
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLong) {
			return out, damaged(err)
		}
		if n == 0 && err == nil && !json.Valid(line) { // one request over many lines
			err := d.whole(out, line, in, JSON, limits)
			hand()
			return out, err
		}
		d.line(out, line, errors.Is(err, errLong), limits)
		hand()
	}
}

// line decodes one line; what is wrong with it is counted.
func (d *Decoder) line(out *Decoded, line []byte, long bool, limits Limits) {
	line = bytes.TrimSpace(line)
	var err error
	switch {
	case long:
		err = refuse(TooLarge, "a line of more than %d bytes", limits.Body)
	case len(line) == 0:
		return
	case otherSignal(line):
		out.Elsewhere++
		return
	default:
		err = d.decode(out, line, JSON, limits)
	}
	var refused *Refused
	if errors.As(err, &refused) {
		out.Refused++
		out.why(string(refused.Cause))
	}
}

// otherSignal reports requests of metrics and logs, which collectors write into the same files.
func otherSignal(line []byte) bool {
	head := line[:min(len(line), 64)]
	return bytes.Contains(head, []byte(`"resourceMetrics"`)) || bytes.Contains(head, []byte(`"resourceLogs"`)) || bytes.Contains(head, []byte(`"resourceProfiles"`))
}

// whole decodes a file that is one request, of which begun has been read already.
func (d *Decoder) whole(out *Decoded, begun []byte, in io.Reader, e Encoding, limits Limits) error {
	rest, err := io.ReadAll(io.LimitReader(in, int64(limits.Body-len(begun)+1)))
	if err != nil {
		return damaged(err)
	}
	body := append(begun, rest...)
	if len(body) > limits.Body {
		return refuse(TooLarge, "one request of more than %d bytes; a file may have more if it has one request a line", limits.Body)
	}
	if e == Protobuf {
		return d.decode(out, body, e, limits)
	}
	all := documents(body)
	if len(all) < 2 {
		return d.decode(out, body, e, limits)
	}
	for _, one := range all {
		d.line(out, one, false, limits)
	}
	return nil
}

func damaged(err error) error {
	switch {
	case errors.Is(err, errFile):
		return refuse(TooLarge, "the file is larger than the limit after decompression")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(Truncated, "the gzip stream ends in the middle; what came before was read")
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, new(flate.CorruptInputError)):
		return refuse(Malformed, "the gzip stream is damaged; what came before was read")
	}
	return err
}

func plain(r io.Reader, limits Limits) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	if magic, _ := in.Peek(2); len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, refuse(Malformed, "a gzip header that is damaged")
		}
		in = bufio.NewReaderSize(z, 64<<10)
	}
	return bufio.NewReaderSize(&capped{in, limits.File}, 64<<10), nil
}

var (
	errFile = errors.New("file limit")
	errLong = errors.New("line limit")
)

// capped fails where io.LimitReader would make a file look short.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errFile
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	return n, err
}

// sniff tells JSON from protobuf: a request in protobuf begins with the tag of its first field, which no text does.
func sniff(in *bufio.Reader) (Encoding, error) {
	if b, _ := in.Peek(3); bytes.Equal(b, []byte{0xef, 0xbb, 0xbf}) {
		in.Discard(3)
	}
	b, err := in.Peek(1)
	if err != nil {
		if errors.Is(err, io.EOF) {
			return JSON, nil
		}
		return JSON, damaged(err)
	}
	head, _ := in.Peek(64)
	if head = bytes.TrimLeft(head, " \t\r\n"); len(head) > 0 && head[0] == '{' || len(head) == 0 {
		return JSON, nil
	}
	if b[0] == fieldResources<<3|2 {
		return Protobuf, nil
	}
	return JSON, refuse(NotTraces, "neither OTLP JSON nor OTLP protobuf")
}

// readLine reads a line of at most limit bytes, its end not counted; of a longer one the rest is skipped.
func readLine(in *bufio.Reader, limit int) (line []byte, err error) {
	long := false
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > limit+1 {
			long = true
			line = line[:0]
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		case long:
			return line, errLong
		default:
			return line, err
		}
	}
}
