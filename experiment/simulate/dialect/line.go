package dialect

import (
	"container/heap"
	"time"

	"github.com/whylate/whylate/wire"
)

// line puts the messages of all sources into one order of Unix time: a page must hold what all of them said before its moment, and
// nothing of what came after. A message waits until another one is later by the window; one that comes later still is taken at once, out
// of order. What waits is frames, so that a message may be reused by whoever recorded it.
type line struct {
	window  int64 // ns
	out     func(at int64, source int, m wire.Message) error
	clocks  []int64 // by source: what is added to its times to give Unix time, ns
	queue   waiting
	latest  int64 // Unix ns
	given   int64 // up to when messages have been given, Unix ns
	late    int   // messages that came after that
	count   uint64
	decoded map[wire.Type]wire.Message
	spare   [][]byte
}

func newLine(window time.Duration, out func(at int64, source int, m wire.Message) error) *line {
	return &line{window: int64(window), out: out, decoded: map[wire.Type]wire.Message{}}
}

// source opens the next source.
func (l *line) source(h *wire.Hello) {
	l.clocks = append(l.clocks, offset(h.Clock[0], h.Clock[1], h.Clock[2]))
}

// offset is what a pair of readings says about the distance from the monotonic to the Unix time.
func offset(before, realtime, after int64) int64 { return realtime - before - (after-before)/2 }

// record takes a message.
func (l *line) record(source int, m wire.Message) error {
	if c, ok := m.(*wire.Clock); ok {
		l.clocks[source] = offset(c.MonoBefore, c.Realtime, c.MonoAfter)
	}
	raw, err := wire.Append(l.buffer(), 1, m)
	if err != nil {
		return err
	}
	frame, _, err := wire.ParseFrame(raw)
	if err != nil {
		return err
	}
	at := told(m, frame.Time)
	if at == 0 {
		at = l.latest
	} else {
		at += l.clocks[source]
	}
	l.latest = max(l.latest, at)
	if at < l.given {
		l.late++
	}
	if l.window == 0 {
		l.reuse(raw)
		return l.out(at, source, m)
	}
	l.count++
	heap.Push(&l.queue, held{at: at, n: l.count, source: source, raw: raw})
	return l.until(l.latest - l.window)
}

// told is when a message can be recorded, ns of its source's clock; 0 = it does not say.
func told(m wire.Message, time int64) int64 {
	switch m := m.(type) {
	case *wire.Client:
		return m.End // its time is that of the sending
	case *wire.Queued:
		if m.Repeat {
			return 0
		}
	}
	return time
}

// until gives what is not later than a moment.
func (l *line) until(at int64) error {
	for len(l.queue) > 0 && l.queue[0].at <= at {
		h := heap.Pop(&l.queue).(held)
		f, _, err := wire.ParseFrame(h.raw)
		if err != nil {
			return err
		}
		m := l.decoded[f.Type]
		if m == nil {
			m = wire.NewMessage(f.Type)
			l.decoded[f.Type] = m
		}
		if err := wire.Decode(f, m); err != nil { // nothing in m points into the frame
			return err
		}
		l.reuse(h.raw)
		l.given = max(l.given, h.at)
		if err := l.out(h.at, h.source, m); err != nil {
			return err
		}
	}
	return nil
}

// end gives the rest.
func (l *line) end() error { return l.until(1<<63 - 1) }

// usual is room for most frames, bytes. Larger buffers are not kept: each would become as large as the largest frame, with time.
const usual = 192

func (l *line) buffer() []byte {
	n := len(l.spare)
	if n == 0 {
		return make([]byte, 0, usual)
	}
	b := l.spare[n-1]
	l.spare = l.spare[:n-1]
	return b[:0]
}

// reuse takes a buffer back.
func (l *line) reuse(b []byte) {
	if cap(b) == usual {
		l.spare = append(l.spare, b)
	}
}

// held is a message that waits.
type held struct {
	at     int64 // Unix ns
	n      uint64
	source int
	raw    []byte
}

// waiting is a heap: the earliest first, and of one moment the one that came first.
type waiting []held

func (w waiting) Len() int { return len(w) }
func (w waiting) Less(i, j int) bool {
	if w[i].at != w[j].at {
		return w[i].at < w[j].at
	}
	return w[i].n < w[j].n
}
func (w waiting) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiting) Push(x any)   { *w = append(*w, x.(held)) }
func (w *waiting) Pop() any {
	old := *w
	x := old[len(old)-1]
	*w = old[:len(old)-1]
	return x
}
