package apptest

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/wire"
)

// engine is a feed that a probe writes into a ring.
type engine struct {
	t    testing.TB
	feed *feed
	ring *wire.RingWriter
	done int // frames of the feed in the ring
}

// newEngine makes the ring of a feed in a directory, with so many bytes of data.
func newEngine(t testing.TB, dir string, f *feed, bytes int64) *engine {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	hello := f.hello
	hello.Host, hello.PID, hello.Start = "h", uint32(1000+f.number), 1
	ring, err := wire.CreateRing(dir, &hello, bytes)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, feed: f, ring: ring}
	f.source.Name = filepath.Base(ring.Path())
	t.Cleanup(func() { ring.Close() })
	return e
}

// write writes the next n frames, and reports whether any are left.
func (e *engine) write(n int) bool {
	e.t.Helper()
	for ; n > 0 && e.done < len(e.feed.frames); n-- {
		f, _, err := wire.ParseFrame(e.feed.frames[e.done])
		if err != nil {
			e.t.Fatal(err)
		}
		m := wire.NewMessage(f.Type)
		if err = wire.Decode(f, m); err == nil {
			err = e.ring.Write(m)
		}
		if err != nil {
			e.t.Fatal(err)
		}
		e.done++
	}
	return e.done < len(e.feed.frames)
}

// fromRings answers about the rings of a directory, read as they are.
func fromRings(t testing.TB, dir string) *server.Local {
	t.Helper()
	a := ingest.New()
	if err := a.Load([]string{dir}, 0, nil); err != nil {
		t.Fatal(err)
	}
	return server.NewLocal(a.Book())
}

// TestServerKilledFollowingRings kills a server that follows rings itself, again and again, while the engine writes on: nothing that the
// rings still hold is missing or doubled in the end.
func TestServerKilledFollowingRings(t *testing.T) {
	kills, length := 12, 1200
	if testing.Short() {
		kills, length = 3, 300
	}
	dir := t.TempDir()
	rings := filepath.Join(dir, "rings")
	rng := rand.New(rand.NewPCG(6, 12))
	f := randomFeed(t, "ring", 21, length, time.Now().Add(-time.Hour))
	e := newEngine(t, rings, f, 8<<20)
	args := append([]string{"--rings-follow=true", "--rings-dir", rings}, often...)
	each := len(f.frames) / kills
	phases := map[string]int{}
	var behind []int
	for range kills {
		p := serve(t, dir, args...)
		settled := rng.IntN(2) == 0
		c := p.client()
		if settled { // one that has taken in what the last one left, and maybe seals
			want := e.done
			await(t, "the ring's frames", func() bool { return framesOf(t, c, f) >= want })
		}
		e.write(1 + rng.IntN(2*each))
		before := framesOf(t, c, f)
		if rng.IntN(3) == 0 { // into a seal, if there is anything to seal yet
			for polls := 0; polls < 1500; polls++ {
				if tmp, old := unfinished(t, dir); tmp+old > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		p.kill()
		behind = append(behind, e.done+1-before) // the ring's hello is a frame too
		phases[phase(t, p, dir)]++
	}
	p := serve(t, dir, args...)
	for e.write(len(f.frames)) {
	}
	c := p.client()
	file := fromRings(t, rings)
	settle(t, c, file, f)
	await(t, "the ring's last frame", func() bool { return framesOf(t, c, f) > e.done-1 })
	n := sameAnswers(t, file, c, f, true)
	healthy(t, c)
	noGaps(t, c)
	t.Logf("%d kills: %s; frames that were only in the ring: %v; in the end %+v", kills, counted(phases), behind, n)
	p.stop()
}

// TestServerAwayLongerThanARing lets an engine write over what a killed server has not read: that is told as a gap, and what came before and
// after is there.
func TestServerAwayLongerThanARing(t *testing.T) {
	dir := t.TempDir()
	rings := filepath.Join(dir, "rings")
	f := randomFeed(t, "small", 22, 600, time.Now().Add(-time.Hour))
	e := newEngine(t, rings, f, 32<<10)
	args := []string{"--rings-follow=true", "--rings-dir", rings}
	p := serve(t, dir, args...)
	c := p.client()
	e.write(50)
	await(t, "the first frames", func() bool { return framesOf(t, c, f) >= 51 })
	p.kill()
	for e.write(100) {
	}
	p = serve(t, dir, args...)
	c = p.client()
	all := len(f.frames) + 1 // the ring's hello is its first frame
	lost := func() (n int) {
		for _, g := range gapsOf(t, c) {
			if g.Why == wire.WhyOverwritten {
				n += int(g.Count)
			}
		}
		return n
	}
	await(t, "each frame to be there or told as overwritten", func() bool { return framesOf(t, c, f)+lost() == all })
	if n := lost(); n == 0 || n > all-51 {
		t.Errorf("%d frames of %d are told as overwritten", n, all)
	}
	p.stop()
}
