package workload

import (
	"bufio"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/whylate/whylate/experiment"
)

// How much is sorted in memory at once. A request takes about 200 bytes, a run of its prefix 16.
const (
	sortRequests = 1 << 16
	sortRuns     = 1 << 22
)

// A sorter sorts a stream by time, equal times in the order of the stream: pieces of it in memory, which are written to files
// of our own format and merged. The files have no name, so none is left behind.
type sorter struct {
	dir      string
	requests int // most of them in memory; 0 stands for sortRequests
	files    []io.Closer
}

func (s *sorter) sort(in experiment.Stream) (experiment.Stream, error) {
	var merged merge
	for {
		piece, last, err := s.piece(in)
		if err != nil {
			return nil, err
		}
		slices.SortStableFunc(piece, func(a, b experiment.Request) int { return cmp.Compare(a.At, b.At) })
		if last && len(merged) == 0 {
			return experiment.Requests(piece), nil
		}
		if len(piece) > 0 {
			from, err := s.spill(piece)
			if err != nil {
				return nil, fmt.Errorf("sort the workload: %w", err)
			}
			if err := merged.add(from); err != nil {
				return nil, fmt.Errorf("sort the workload: %w", err)
			}
		}
		if last {
			return &merged, nil
		}
	}
}

// piece takes as much of the stream as may be in memory.
func (s *sorter) piece(in experiment.Stream) (piece []experiment.Request, last bool, err error) {
	most := cmp.Or(s.requests, sortRequests)
	for runs := 0; len(piece) < most && runs < sortRuns; {
		r, err := in.Next()
		if err == io.EOF {
			return piece, true, nil
		}
		if err != nil {
			return nil, false, err
		}
		piece = append(piece, r)
		runs += len(r.Prefix)
	}
	return piece, false, nil
}

func (s *sorter) spill(piece []experiment.Request) (experiment.Stream, error) {
	f, err := os.CreateTemp(s.dir, "whylate-sort-")
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, f)
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	if err := experiment.Write(f, piece); err != nil {
		return nil, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return experiment.NewReader(bufio.NewReader(f), experiment.ReadOptions{}), nil
}

// A merge makes one stream of several, by time; of equal times that of the stream that was added first comes first.
type merge []*head

// A head is the next request of a stream.
type head struct {
	experiment.Request
	rest  experiment.Stream
	place int
}

// add adds a stream, unless it is empty.
func (m *merge) add(s experiment.Stream) error {
	r, err := s.Next()
	if err == io.EOF {
		return nil
	}
	if err == nil {
		heap.Push(m, &head{r, s, m.Len()})
	}
	return err
}

func (m *merge) Next() (experiment.Request, error) {
	if m.Len() == 0 {
		return experiment.Request{}, io.EOF
	}
	first := (*m)[0]
	r := first.Request
	var err error
	switch first.Request, err = first.rest.Next(); err {
	case nil:
		heap.Fix(m, 0)
	case io.EOF:
		heap.Pop(m)
	default:
		return experiment.Request{}, err
	}
	return r, nil
}

func (m merge) Len() int { return len(m) }
func (m merge) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(m[i].At, m[j].At), cmp.Compare(m[i].place, m[j].place)) < 0
}
func (m merge) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)   { *m = append(*m, x.(*head)) }
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
