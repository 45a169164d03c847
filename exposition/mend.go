package exposition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Mended is a page that Prometheus's parser takes.
type Mended struct {
	Page      []byte    // the page itself, where nothing was wrong with it
	MediaType string    // as which it was understood, and is to be read
	Samples   int       // that it has, NaN included
	Problems  []Problem // what was left out or put right
}

// Mend gives a page of that media type a form that Prometheus takes: lines that it would refuse are left out, as one of them costs it
// the whole page; a value that is no number stands as NaN; an OpenMetrics page has its end. Protobuf is left as it is, uncounted, unless
// one of its families is so large that it must not be read. A page of which no sample remains, though it says something, has Samples 0 and
// Problems.
func Mend(page []byte, mediaType string) Mended {
	kind, _, _ := mime.ParseMediaType(mediaType)
	if kind == "application/vnd.google.protobuf" {
		m := Mended{Page: page, MediaType: "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"}
		if n := largestMessage(page); n > longestMessage {
			m.Page, m.Problems = nil, []Problem{{1, fmt.Sprintf("a metric family of %d bytes", n), fmt.Sprintf("over %d; the page was left out", longestMessage)}}
		}
		return m
	}
	open := kind == "application/openmetrics-text"
	c := checker{open: open, symbols: labels.NewSymbolTable()}
	whole := page
	if n := len(page); !open && n > 0 && page[n-1] != '\n' {
		whole = append(bytes.Clone(page), '\n')
	}
	media := "text/plain; version=0.0.4"
	if open {
		media = "application/openmetrics-text; version=1.0.0"
	}
	if !hasLongLine(whole) && c.check(whole) == nil {
		return Mended{Page: whole, MediaType: media, Samples: c.samples}
	}
	m := Mended{Page: make([]byte, 0, len(page)+8), MediaType: media}
	c.samples = 0
	lines(page, open, func(_ int, line []byte) error {
		before := c.samples
		if err := c.check(terminated(line, open)); err != nil {
			c.samples = before
			return err
		}
		m.Page = append(append(m.Page, line...), '\n')
		return nil
	}, func(p Problem) { m.Problems = append(m.Problems, p) })
	if open {
		m.Page = append(m.Page, "# EOF\n"...)
		if !IsOpenMetrics(page) {
			m.Problems = append(m.Problems, Problem{bytes.Count(page, []byte("\n")) + 1, "# EOF", "it does not stand at the end: the page may be cut off"})
		}
	}
	m.Samples = c.samples
	return m
}

// longestMessage is how large a family of metrics may be in protobuf, so that no name or value in it can be of 16 MiB.
const longestMessage = 16<<20 - 1<<10

// largestMessage is the size of the largest of the messages, each behind its length, that a page in protobuf is made of.
func largestMessage(page []byte) (largest uint64) {
	for len(page) > 0 {
		size, n := binary.Uvarint(page)
		if n <= 0 {
			return largest
		}
		if largest = max(largest, size); size >= uint64(len(page)-n) {
			return largest
		}
		page = page[uint64(n)+size:]
	}
	return largest
}

// checker reads a text as Prometheus's scraper does, and keeps nothing of it.
type checker struct {
	open    bool
	symbols *labels.SymbolTable
	samples int
}

func (c *checker) check(b []byte) error {
	var p textparse.Parser
	if c.open {
		p = textparse.NewOpenMetricsParser(b, c.symbols)
	} else {
		p = textparse.NewPromParser(b, c.symbols, false)
	}
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		c.samples++
		series, _, _ := p.Series()
		if len(series) > longestLine {
			return errLong
		}
		if len(series) > 0 && series[0] == '{' { // only there the name may be missing
			var ls labels.Labels
			if p.Labels(&ls); !ls.Has(model.MetricNameLabel) {
				return errNoName
			}
		}
	}
}
