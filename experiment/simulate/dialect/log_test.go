package dialect

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/wire"
)

var (
	iterationLine = regexp.MustCompile(`^\((\w+) pid=(\d+)\) INFO (\S+ \S+) \[([^\]]*)\] (.*)iteration elapsed time: ([0-9.]+) ms(.*)$`)
	statusLine    = regexp.MustCompile(`INFO (\S+ \S+) \[([^\]]*)\] Engine 000: Avg prompt throughput: ([0-9.]+) tokens/s, Avg generation throughput: ([0-9.]+) tokens/s, (.*)$`)
)

// logOf is the log that the dialect writes of a real run. begun is when the first interval of its status lines began, 0 = with the front end.
func logOf(t *testing.T, r real, device string, begun int64) (lines []string) {
	t.Helper()
	f := newFleet(window)
	f.metFront = func(x *front, _ *wire.Hello, at int64) {
		at = cmp.Or(begun, at)
		c := newConsole(x, device, at, func(line []byte) { lines = append(lines, strings.TrimSpace(string(line))) })
		x.hears = append(x.hears, c)
		f.every(at, statusEvery, func(at int64) error { c.status(at); return nil })
	}
	r.play(t, fleetRecorder{f})
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	if err := f.until(f.latest + int64(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestIterationLinesAreTheEngines holds each line of the log against that of the engine. All of it is equal, word for word, but the time that an
// iteration took: the engine measures the wait for its result alone.
func TestIterationLinesAreTheEngines(t *testing.T) {
	for _, name := range realRuns {
		t.Run(name, func(t *testing.T) {
			r := readReal(t, name)
			var want, got [][]string
			for line := range strings.Lines(string(r.files["log/vllm-0.log"])) {
				if m := iterationLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
					want = append(want, m)
				}
			}
			var status []string
			for _, line := range logOf(t, r, "CPU", 0) {
				if m := iterationLine.FindStringSubmatch(line); m != nil {
					got = append(got, m)
				} else if statusLine.MatchString(line) {
					status = append(status, line)
				}
			}
			if len(want) == 0 || len(got) != len(want) {
				t.Fatalf("%d lines, the engine has %d", len(got), len(want))
			}
			var off []float64
			equal, later := 0, 0
			differ := map[string]int{}
			for i, w := range want {
				g := got[i]
				a, _ := strconv.ParseFloat(w[6], 64)
				b, _ := strconv.ParseFloat(g[6], 64)
				off = append(off, b-a)
				if w[3] != g[3] {
					later++
				}
				switch {
				case w[1] != g[1] || w[2] != g[2] || w[4] != g[4] || w[5] != g[5]:
					t.Errorf("line %d:\n%s\n%s", i, g[0], w[0])
				case w[7] != g[7]:
					differ["usage"]++
				default:
					equal++
				}
			}
			slices.Sort(off)
			n := len(off)
			if med := off[n/2]; math.Abs(med) > 1 {
				t.Errorf("iterations differ by %.2f ms at the median", med)
			}
			golden(t, path.Join("testdata", name+".log.txt"), fmt.Sprintf("%d lines, %d equal but for the elapsed time, %d with another usage of the KV cache, %d printed in another second\nelapsed, here minus engine: p10 %.2f, p50 %.2f, p90 %.2f, max %.2f ms\n\n%s\n",
				n, equal, differ["usage"], later, off[n/10], off[n/2], off[n*9/10], off[n-1], strings.Join(status, "\n")))
		})
	}
}

// TestStatusLinesAreTheEngines holds the lines that tell the load every ten seconds against the engine's. When the engine's intervals began is
// known to the second: there is a moment in it from which all lines are the engine's, but for the throughput's last digits, since its
// intervals are not of ten seconds to the millisecond. The first line is left out: its interval began when the engine was not ready yet.
func TestStatusLinesAreTheEngines(t *testing.T) {
	for _, name := range realRuns {
		r := readReal(t, name)
		var want [][]string
		for line := range strings.Lines(string(r.files["log/vllm-0.log"])) {
			if m := statusLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
				want = append(want, m)
			}
		}
		first, err := time.Parse("2006 01-02 15:04:05", "2026 "+want[0][1])
		if err != nil {
			t.Fatal(err)
		}
		want = want[1:]
		best := 0
		for part := time.Duration(0); part < time.Second && best < len(want); part += 20 * time.Millisecond {
			i := 0
			for _, line := range logOf(t, r, "CPU", first.Add(part-statusEvery).UnixNano()) {
				if m := statusLine.FindStringSubmatch(line); m != nil && i < len(want) && alike(want[i], m) {
					i++
				}
			}
			best = max(best, i)
		}
		if best != len(want) || best == 0 {
			t.Errorf("%s: of %d lines at most %d agree", name, len(want), best)
		}
	}
}

// alike reports whether two status lines say the same, to two tokens in a thousand.
func alike(a, b []string) bool {
	for _, i := range []int{3, 4} {
		x, _ := strconv.ParseFloat(a[i], 64)
		y, _ := strconv.ParseFloat(b[i], 64)
		if math.Abs(x-y) > 0.002*x+0.05 {
			return false
		}
	}
	return a[2] == b[2] && a[5] == b[5]
}
