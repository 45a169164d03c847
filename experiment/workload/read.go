package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/whylate/whylate/experiment"
)

// ErrEmpty says that there is nothing to read.
var ErrEmpty error = &experiment.FieldError{Advice: "it is empty; give one request on each line, or make a workload with 'whylate workload make'"}

// Options says how a workload is read.
type Options struct {
	SkipBad bool   // leave out bad lines and count them
	Sort    bool   // accept times in any order and sort; what does not fit into memory goes to files
	Temp    string // directory for those files; empty is the system's
}

// A Reader reads a workload of any known format. It is an [experiment.Stream].
type Reader struct {
	Format string // "Azure", "BurstGPT", "Mooncake" or "whylate"

	lines *experiment.Reader
	next  experiment.Stream
	files []io.Closer
}

// Read recognises the format by content and returns a reader, or an error that says what was found instead. Sorting reads
// everything before it returns. Close lets the files go that sorting needs.
func Read(in io.Reader, o Options) (*Reader, error) {
	src := bufio.NewReaderSize(in, 64<<10)
	f, err := recognise(src)
	if err != nil {
		return nil, err
	}
	r := &Reader{Format: f.name}
	r.lines = experiment.NewReader(src, experiment.ReadOptions{SkipBad: o.SkipBad, Sort: o.Sort, Format: f.parser(), Time: f.time})
	r.next = r.lines
	if o.Sort {
		s := sorter{dir: o.Temp}
		r.next, err = s.sort(r.next)
		r.files = s.files
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if f.absolute {
		r.next = FromZero(r.next)
	}
	return r, nil
}

// Next returns the next request, or io.EOF. A bad line is an [*experiment.FieldError], unless it is skipped.
func (r *Reader) Next() (experiment.Request, error) { return r.next.Next() }

// Skipped returns what has been left out so far.
func (r *Reader) Skipped() experiment.Skipped { return r.lines.Skipped() }

// Close lets go of what sorting needed.
func (r *Reader) Close() error {
	var err error
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// A format is a layout of workload files.
type format struct {
	name     string
	time     string                   // what it calls the time
	absolute bool                     // its times are of the day: the first request is made the zero
	parser   func() experiment.Format // one for each file, as it may remember the header
}

var (
	ownFormat      = format{"whylate", "", false, func() experiment.Format { return nil }}
	mooncakeFormat = format{"Mooncake", "timestamp", false, func() experiment.Format { return mooncake }}
	azureFormat    = format{azure.name, azure.time, true, azure.parser}
	burstFormat    = format{burst.name, burst.time, false, burst.parser}
)

// recognise looks at what comes first, without reading on.
func recognise(src *bufio.Reader) (format, error) {
	head, err := src.Peek(src.Size())
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return format{}, fmt.Errorf("read workload line 1: %w", err)
	}
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
	line, _, _ := bytes.Cut(head, []byte("\n"))
	switch {
	case len(head) == 0:
		return format{}, ErrEmpty
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}), bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return format{}, unknown("", "it is compressed; unpack it first, as in 'gzip -dc FILE | whylate workload show -'")
	case head[0] == '{':
		if isMooncake(head) {
			return mooncakeFormat, nil
		}
		return ownFormat, nil
	case azure.is(line):
		return azureFormat, nil
	case burst.is(line):
		return burstFormat, nil
	case azure.lacks(line) != "":
		return format{}, unknown(shown(line), "the header lacks the column "+azure.lacks(line)+"; Azure's header is "+azure.header)
	case burst.lacks(line) != "":
		return format{}, unknown(shown(line), "the header lacks the column "+burst.lacks(line)+"; BurstGPT's header is "+burst.header)
	case bytes.IndexByte(line, ',') > 0 && head[0] >= '0' && head[0] <= '9':
		return format{}, unknown(shown(line), "the header is missing; put "+azure.header+" (Azure) or "+burst.header+" (BurstGPT) first, whichever it is")
	}
	return format{}, unknown(shown(line), "it is no workload that is known: neither JSON Lines of our own or of Mooncake, nor a CSV of Azure ("+azure.header+") or BurstGPT ("+burst.header+")")
}

func unknown(value, advice string) error {
	return &experiment.FieldError{Line: 1, Field: "format", Value: value, Advice: advice}
}

// isMooncake tells a Mooncake line from one of ours, by which of their keys comes first.
func isMooncake(head []byte) bool {
	theirs, ours := len(head), len(head)
	for _, key := range []string{`"timestamp"`, `"input_length"`, `"output_length"`, `"hash_ids"`} {
		if i := bytes.Index(head, []byte(key)); i >= 0 {
			theirs = min(theirs, i)
		}
	}
	for _, key := range []string{`"at_ns"`, `"prompt_tokens"`, `"output_tokens"`} {
		if i := bytes.Index(head, []byte(key)); i >= 0 {
			ours = min(ours, i)
		}
	}
	return theirs < ours
}

// shown shortens what was found for an error.
func shown(b []byte) string {
	const most = 80
	text := string(bytes.ToValidUTF8(bytes.TrimSpace(b[:min(len(b), most)]), []byte("\ufffd")))
	if len(b) > most {
		text += "…"
	}
	return text
}
