package workload

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/whylate/whylate/experiment"
)

// rows is a file of any length that lies nowhere: its header, then rows.
type rows struct {
	header string
	n      int
	row    func(dst []byte, i int) []byte
	next   int
	buf    []byte
}

func (r *rows) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if r.next == r.n {
			return 0, io.EOF
		}
		r.buf = r.buf[:0]
		if r.next == 0 {
			r.buf = append(r.buf, r.header...)
		}
		for ; r.next < r.n && len(r.buf) < 60<<10; r.next++ {
			r.buf = r.row(r.buf, r.next)
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func azureRows(n int) *rows {
	day := time.Date(2023, 11, 16, 0, 0, 0, 0, time.UTC)
	return &rows{header: azure.header + "\r\n", n: n, row: func(dst []byte, i int) []byte {
		x := mixed(1, uint64(i))
		dst = day.Add(time.Duration(i)*50*time.Millisecond).AppendFormat(dst, "2006-01-02 15:04:05.0000000")
		dst = strconv.AppendUint(append(dst, ','), 1+x%8000, 10)
		dst = strconv.AppendUint(append(dst, ','), 1+x>>32%900, 10)
		return append(dst, "\r\n"...)
	}}
}

func ownRows(n int, sorted bool) *rows {
	return &rows{n: n, row: func(dst []byte, i int) []byte {
		x := mixed(1, uint64(i))
		at := uint64(i) * 50_000_000
		if !sorted {
			at = x % (uint64(n) * 50_000_000)
		}
		return fmt.Appendf(dst, `{"at_ns":%d,"prompt_tokens":%d,"output_tokens":%d,"prefix":[[%d,512]],"class":"chat"}`+"\n", at, 512+x%8000, 1+x>>32%900, x>>40%100_000)
	}}
}

// mooncakeRows are conversations of 13 blocks: eight of one of 5,000 that others have as well, then five of their own.
func mooncakeRows(n int) *rows {
	return &rows{n: n, row: func(dst []byte, i int) []byte {
		x := mixed(1, uint64(i))
		dst = fmt.Appendf(dst, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [0`, i*50, 512*12+1+x%512, 1+x>>32%900)
		for b := range uint64(12) {
			id := (x>>40%5000)<<8 + b + 1
			if b >= 8 {
				id = uint64(i)<<24 + b
			}
			dst = strconv.AppendUint(append(dst, ", "...), id, 10)
		}
		return append(dst, "]}\n"...)
	}}
}

// BenchmarkShow reads workloads to their end and sums them up. The heap is that of the whole process at its highest, looked at
// every 65,536 rows: that it is as high after 10⁷ rows as after 10⁵ is what 'streams' means.
func BenchmarkShow(b *testing.B) {
	for _, c := range []struct {
		name string
		in   func() io.Reader
		rows int
		o    Options
	}{
		{"azure-100k", func() io.Reader { return azureRows(100_000) }, 100_000, Options{}},
		{"azure-10M", func() io.Reader { return azureRows(10_000_000) }, 10_000_000, Options{}},
		{"own-100k", func() io.Reader { return ownRows(100_000, true) }, 100_000, Options{}},
		{"own-10M", func() io.Reader { return ownRows(10_000_000, true) }, 10_000_000, Options{}},
		{"sort-own-1M", func() io.Reader { return ownRows(1_000_000, false) }, 1_000_000, Options{Sort: true}},
		{"mooncake-1M", func() io.Reader { return mooncakeRows(1_000_000) }, 1_000_000, Options{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			peak := peakHeap{}
			for b.Loop() {
				runtime.GC()
				r, err := Read(c.in(), c.o)
				if err != nil {
					b.Fatal(err)
				}
				s, err := Show(&watched{Stream: r, peak: &peak})
				if err != nil || s.Requests != int64(c.rows) {
					b.Fatal(err, s.Requests)
				}
				r.Close()
			}
			b.ReportMetric(float64(c.rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(peak.most)/1e6, "peak-MB")
		})
	}
}

// watched looks at the heap as a stream goes by.
type watched struct {
	experiment.Stream
	peak *peakHeap
	n    int
}

func (w *watched) Next() (experiment.Request, error) {
	if w.n++; w.n%(1<<16) == 0 {
		w.peak.look()
	}
	return w.Stream.Next()
}

type peakHeap struct{ most uint64 }

func (p *peakHeap) look() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	p.most = max(p.most, m.HeapAlloc)
}

// BenchmarkMake writes what a generator makes.
func BenchmarkMake(b *testing.B) {
	at, err := Gamma(100, 3, 1)
	if err != nil {
		b.Fatal(err)
	}
	s := Independently(at, Independent(Distribution{{0, 10}, {0.5, 512}, {1, 8000}}, Fixed(128)), 1)
	w := experiment.NewWriter(io.Discard)
	for b.Loop() {
		r, _ := s.Next()
		if err := w.Write(&r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
