package wire

import (
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/whylate/whylate/ledger"
)

func steadyScheduled() *Scheduled {
	return &Scheduled{Time: 1, Iteration: 411, Alias: 410, Returned: 2, Tokens: 64, Members: 64, Running: 64, Free: 1_000, TokenBudget: 8_192, SeqBudget: 64}
}

func join64Scheduled() *Scheduled {
	s := steadyScheduled()
	s.Full = true
	for handle := range uint32(64) {
		s.Joins = append(s.Joins, Join{Handle: handle + 1, Tokens: 1, Before: 500 + handle, Total: 501 + handle, Kind: JoinContinued})
	}
	return s
}

func benchDone() *Done {
	return &Done{Time: 3, Iteration: 411, Returned: 4, Key: 5.5, Tokens: 63,
		Emits: []Emit{{Handle: 9, Tokens: 3, Discarded: 1}}, Finishes: []Finish{{Handle: 8, Reason: ledger.FinishStop, Output: 128}}}
}

func benchDelivered() *Delivered {
	d := &Delivered{Time: 6, Key: 5.5, Returned: 7}
	for handle := range uint32(64) {
		d.Handles = append(d.Handles, handle+1)
	}
	return d
}

func benchmarkEncode(b *testing.B, m Message) {
	buffer := mustAppend(b, 1, m)
	b.SetBytes(int64(len(buffer)))
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buffer, err = Append(buffer[:0], 1, m); err != nil {
			b.Fatal(err)
		}
	}
}

func benchmarkDecode(b *testing.B, m Message) {
	raw := mustAppend(b, 1, m)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		f, _, err := ParseFrame(raw)
		if err == nil {
			err = Decode(f, m)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeScheduled(b *testing.B) {
	b.Run("steady", func(b *testing.B) { benchmarkEncode(b, steadyScheduled()) })
	b.Run("join64", func(b *testing.B) { benchmarkEncode(b, join64Scheduled()) })
}

func BenchmarkDecodeScheduled(b *testing.B) {
	b.Run("steady", func(b *testing.B) { benchmarkDecode(b, steadyScheduled()) })
	b.Run("join64", func(b *testing.B) { benchmarkDecode(b, join64Scheduled()) })
}

func BenchmarkEncodeDone(b *testing.B)      { benchmarkEncode(b, benchDone()) }
func BenchmarkDecodeDone(b *testing.B)      { benchmarkDecode(b, benchDone()) }
func BenchmarkEncodeDelivered(b *testing.B) { benchmarkEncode(b, benchDelivered()) }
func BenchmarkDecodeDelivered(b *testing.B) { benchmarkDecode(b, benchDelivered()) }

func BenchmarkRingReadAndWrite(b *testing.B) {
	w := createRing(b, DefaultRingSize)
	r := openRing(b, w.Path())
	m := steadyScheduled()
	b.SetBytes(int64(len(mustAppend(b, 1, m))))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(m); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// engine makes the messages of an engine that decodes with a full batch: one scheduled, one done and one delivered an
// iteration, the last from a source of its own. Iteration times, gaps between them, sequence lengths and who leaves are
// random, so that no stretch repeats another.
type engine struct {
	random     *rand.Rand
	churn      float64 // members that leave, a member and iteration
	members    []Join
	lastHandle uint32
	now        int64
	iteration  uint64

	scheduled Scheduled
	done      Done
	delivered Delivered
}

func newEngine(members int, churn float64) *engine {
	e := &engine{random: rand.New(rand.NewPCG(uint64(members), 4)), churn: churn, now: 81_234_567_890_123}
	for range members {
		e.members = append(e.members, e.join())
	}
	return e
}

// join is a new sequence whose prompt is prefilled at once.
func (e *engine) join() Join {
	e.lastHandle++
	prompt := uint32(16 + e.random.IntN(2_000))
	return Join{Handle: e.lastHandle, Tokens: prompt, Total: prompt, Kind: JoinNew}
}

// after moves the clock by about mean ns: a long tail over a fixed part.
func (e *engine) after(mean float64) int64 {
	e.now += int64(mean * (0.8 + 0.2*e.random.ExpFloat64()))
	return e.now
}

// step makes one iteration's messages.
func (e *engine) step() {
	e.iteration++
	s := &e.scheduled
	*s = Scheduled{Full: e.iteration%64 == 1, Iteration: e.iteration, Alias: e.iteration - 1, Members: uint32(len(e.members)), Running: uint32(len(e.members)),
		Free: 20_000, TokenBudget: 8_192, SeqBudget: uint32(len(e.members)),
		Joins: s.Joins[:0], Leaves: s.Leaves[:0], Changes: s.Changes[:0]}
	e.done = Done{Iteration: e.iteration, Finishes: e.done.Finishes[:0]}
	e.delivered.Same = true
	for i := range e.members {
		m := &e.members[i]
		if e.random.Float64() < e.churn {
			s.Leaves = append(s.Leaves, m.Handle)
			*m = e.join()
			s.Joins = append(s.Joins, *m)
			e.delivered.Same = false
		} else if m.Before > 0 && m.Tokens > 1 {
			m.Tokens = 1
			s.Changes = append(s.Changes, Change{m.Handle, 1})
		}
		s.Tokens += m.Tokens
		s.Digest ^= Digest(m.Handle)
		s.Free -= m.Total / 16
		if e.random.Float64() < e.churn {
			e.done.Finishes = append(e.done.Finishes, Finish{m.Handle, ledger.FinishStop, m.Total})
		}
	}
	if s.Full {
		s.Joins, s.Leaves, s.Changes = append(s.Joins[:0], e.members...), s.Leaves[:0], s.Changes[:0]
	}
	e.delivered.Handles = e.delivered.Handles[:0]
	for i := range e.members {
		m := &e.members[i]
		m.Before += m.Tokens
		m.Total++
		if !e.delivered.Same || e.iteration == 1 {
			e.delivered.Handles = append(e.delivered.Handles, m.Handle)
		}
	}
	s.Time = e.after(300_000)
	s.Returned = e.after(150_000)
	e.done.Time = e.after(9_000_000)
	e.done.Key = float64(e.after(20_000)) / 1e9
	e.done.Returned = e.after(100_000)
	e.done.Tokens = s.Members
	e.delivered.Key = e.done.Key
	e.delivered.Time = e.after(200_000)
	e.delivered.Returned = e.after(400_000)
}

// BenchmarkCaptureBytes reports the size of a capture: bytes on disk for each iteration, its scheduled, done and delivered
// together, by the number of members and the share of them that leaves in an iteration.
func BenchmarkCaptureBytes(b *testing.B) {
	for _, members := range []int{16, 64, 256} {
		for _, churn := range []float64{0, 0.01, 0.10} {
			b.Run(fmt.Sprintf("members=%d/churn=%g%%", members, 100*churn), func(b *testing.B) {
				e := newEngine(members, churn)
				w, err := NewCaptureWriter(io.Discard)
				if err != nil {
					b.Fatal(err)
				}
				scheduler, err := w.Source(Source{Name: "scheduler.ring"})
				if err != nil {
					b.Fatal(err)
				}
				frontend, err := w.Source(Source{Name: "frontend.ring"})
				if err != nil {
					b.Fatal(err)
				}
				var buffer []byte
				put := func(source uint16, sequence uint64, m Message) {
					buffer, err = Append(buffer[:0], sequence, m)
					if err == nil {
						err = w.Frame(source, mustParse(b, buffer))
					}
					if err != nil {
						b.Fatal(err)
					}
				}
				const iterations = 5_000 // enough for the first block to count for little
				for b.Loop() {
					before := w.Size()
					for range iterations {
						e.step()
						put(scheduler, 2*e.iteration-1, &e.scheduled)
						put(scheduler, 2*e.iteration, &e.done)
						put(frontend, e.iteration, &e.delivered)
					}
					if err := w.Flush(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64(w.Size()-before)/iterations, "B/iter")
				}
			})
		}
	}
}
