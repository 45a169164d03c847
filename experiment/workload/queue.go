package workload

import (
	"container/heap"
	"io"
	"time"

	"github.com/whylate/whylate/experiment"
)

// A queue holds requests that are known before their time, and gives them in order of time, equal times in the order in which
// they came to be known.
type queue struct {
	waiting
	pushed  int
	reached time.Duration // nothing earlier will be pushed any more
}

func (q *queue) push(r experiment.Request) {
	heap.Push(&q.waiting, waiter{r, q.pushed})
	q.pushed++
}

// pop returns the earliest, or io.EOF if there is none.
func (q *queue) pop() (experiment.Request, error) {
	if len(q.waiting) == 0 {
		return experiment.Request{}, io.EOF
	}
	return heap.Pop(&q.waiting).(waiter).Request, nil
}

// certain says whether the earliest is sure to stay so. There must be one.
func (q *queue) certain() bool { return q.waiting[0].At <= q.reached }

type waiter struct {
	experiment.Request
	number int
}

type waiting []waiter

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(i, j int) bool {
	return w[i].At < w[j].At || w[i].At == w[j].At && w[i].number < w[j].number
}
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(waiter)) }
func (w *waiting) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}
