package apptest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// lives of a server that is killed again and again: what they were doing when they were.
const (
	inRecovery  = "reading its log"
	inSeal      = "sealing"
	inRetention = "merging or letting go"
	inIntake    = "taking in"
)

// phase says what a server that has just been killed was doing, as far as it left a trace.
func phase(t testing.TB, p *process, dir string) string {
	t.Helper()
	switch tmp, old := unfinished(t, dir); {
	case tmp > 0:
		return inSeal
	case old > 0:
		return inRetention
	}
	if _, ok := p.said("log read"); !ok {
		return inRecovery
	}
	return inIntake
}

// unfinished counts the periods that are just being written, and those that are just being removed.
func unfinished(t testing.TB, dir string) (tmp, old int) {
	entries, err := os.ReadDir(filepath.Join(dir, "data", "store", "sealed"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), ".old-"):
			old++
		case strings.HasPrefix(e.Name(), "."):
			tmp++
		}
	}
	return tmp, old
}

// often are the shortest times that a configuration may have, so that much happens.
var often = []string{"--store-seal-every", "1s", "--store-hot-period", "1s", "--store-wal-segment-bytes", "1MiB", "--store-retention-iterations", "24h", "--store-retention-requests", "48h"}

// TestServerKilled kills the whole server at fifty moments of a stream that goes on over all of them: nothing that was acknowledged is
// lost, nothing is there twice, and at the end it answers what the same frames answer as a file. Two engines are of the last
// hour; of one the retention lets the detail go, and of one everything, while it is sent.
func TestServerKilled(t *testing.T) {
	kills, length := 50, 1500
	if testing.Short() {
		kills, length = 6, 500
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(5, 50))
	now := time.Now()
	one, two := randomFeed(t, "one", 11, length, now.Add(-time.Hour)), randomFeed(t, "two", 12, length, now.Add(-time.Hour))
	aged, gone := randomFeed(t, "aged", 13, length/4, now.Add(-30*time.Hour)), randomFeed(t, "gone", 14, length/4, now.Add(-72*time.Hour))
	s := newSender(t, 1, one, two, aged, gone)
	each := s.left() / kills / 2 // half of it is sent while a seal is awaited

	phases := map[string]int{}
	var windows []int
	total := 0
	for range kills {
		p := serve(t, dir, often...)
		// The moment: a number of frames acknowledged, that and some moments into what a seal does next, or some moments after the start.
		frames, moments, seal, settled := 1+rng.IntN(2*each), rng.IntN(25), false, rng.IntN(2) == 0
		switch rng.IntN(10) {
		case 0, 1:
			frames, moments = 0, rng.IntN(120)
		case 2, 3, 4:
			seal, moments = true, rng.IntN(250)
		}
		if frames > 0 && s.connect(p) {
			if settled { // else it takes in while it reads its log
				await(t, "the log to be read", func() bool { p.alive(); _, ok := p.said("log read"); return ok })
			}
			for end := time.Now().Add(patience); s.acked < frames && s.left() > 0; s.pause() {
				if !s.hear() || time.Now().After(end) {
					t.Fatal("the server ended by itself, or does not go on")
				}
				s.send(mostOnTheWay)
			}
			if seal {
				polls := 0
				await(t, "a seal", func() bool {
					if !s.hear() {
						t.Fatal("the server ended by itself")
					}
					if polls++; polls%16 == 0 {
						s.send(1)
					}
					tmp, old := unfinished(t, dir)
					return tmp+old > 0
				})
			} else {
				moments = 0
			}
		}
		for range moments {
			time.Sleep(time.Millisecond) // a moment: which one it is is drawn, what is done in it is not known
		}
		if s.conn != nil {
			s.send(mostOnTheWay)
		}
		p.kill()
		if s.conn != nil {
			for s.hear() { // what it acknowledged with its last breath counts
				s.pause()
			}
			s.hangUp()
			windows = append(windows, s.unacknowledged())
		}
		phases[phase(t, p, dir)]++
		total++
	}
	p := serve(t, dir, often...)
	s.all(p)
	t.Logf("%d kills: %s", total, counted(phases))
	t.Logf("frames sent and not acknowledged at each kill of a server that was sent to: %v", windows)
	slices.Sort(windows)
	t.Logf("median %d, at most %d; of all of them %d were on disk at the next start; acknowledged and lost: 0",
		windows[len(windows)/2], windows[len(windows)-1], s.known)

	file := fromFile(t, one, two, aged)
	check := func(when string, p *process) {
		t.Helper()
		c := p.client()
		var n [3]compared
		settle(t, c, file, one, two, aged)
		for i, f := range []*feed{one, two, aged} {
			n[i] = sameAnswers(t, file, c, f, f != aged)
		}
		healthy(t, c)
		t.Logf("%s: %+v", when, n)
	}
	check("after the last kill", p)
	p.stop()
	p = serve(t, dir, often...)
	check("stopped and started again", p)
	if cut := cutTails(t, p.client()); cut > 0 {
		t.Logf("%d kills cut the write of a block of the log", cut)
	}
	p.stop()
	if !testing.Short() && (phases[inSeal]+phases[inRetention] == 0 || phases[inIntake] == 0) { // of few kills none may meet a seal, which takes milliseconds
		t.Errorf("the kills fell only into %s", counted(phases))
	}
}

func counted(phases map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(phases)) {
		words = append(words, fmt.Sprintf("%d while %s", phases[name], name))
	}
	return strings.Join(words, ", ")
}
