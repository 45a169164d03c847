package dialect

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/wire"
)

var update = flag.Bool("update", false, "accept what the tests found")

// A run of each version: the probe's records, what the engine itself printed meanwhile (its metrics page every five seconds, the lines of
// its log that tell of iterations and load, its request spans), and what the clients saw.
var realRuns = []string{"vllm-0.20.2", "vllm-0.32.0"}

// window is by how much the rings of a real run are read out of step.
const window = 5 * time.Second

// real is one of them.
type real struct {
	files map[string][]byte
}

func readReal(t testing.TB, name string) real {
	t.Helper()
	b, err := bundle.Open("testdata/"+name+".zip", bundle.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := real{map[string][]byte{}}
	for _, m := range b.Members {
		in, err := b.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		if r.files[m.Path], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
		in.Close()
	}
	return r
}

// under are the names of the files in a folder, in order.
func (r real) under(dir string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.files)), func(p string) bool { return !strings.HasPrefix(p, dir+"/") })
}

// play gives a recorder both captures of the run, one after the other.
func (r real) play(t testing.TB, to world.Recorder) {
	t.Helper()
	for _, name := range []string{"capture.wlc", "client.wlc"} {
		in, err := wire.NewCaptureReader(strings.NewReader(string(r.files[name])))
		if err != nil {
			t.Fatal(err)
		}
		left, err := Play(in, to)
		if err != nil || left != 0 {
			t.Fatalf("%s: %d frames left out, %v", name, left, err)
		}
		in.Close()
	}
}

// fleetRecorder is a fleet alone.
type fleetRecorder struct{ *fleet }

func (f fleetRecorder) Source(h *wire.Hello) (int, error) {
	p, err := f.open(h)
	return p.source, err
}

func (f fleetRecorder) Record(source int, m wire.Message) error {
	return f.record(source, m)
}

// numbers are the series of a page.
func numbers(t testing.TB, page []byte) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out[line[:i]] = v
	}
	return out
}

// scraped is how long after the file's name, which is the moment of the asking, the page was made.
const scraped = 4 * time.Millisecond

// fromReal plays a real run and gives what the dialect's page says at each of the real scrapes beside the real one.
func fromReal(t *testing.T, r real, compare func(real, ours map[string]float64)) *fleet {
	f := newFleet(window)
	for _, name := range r.under("scrape") {
		_, ms, _ := bundle.ScrapeOf(name)
		at := ms*1e6 + int64(scraped)
		page := r.files[name]
		f.every(at-int64(time.Hour), time.Hour, func(now int64) error { // once, at that moment
			if now == at {
				ours := f.page("vllm-0", nil)
				compare(numbers(t, page), numbers(t, ours))
			}
			return nil
		})
	}
	r.play(t, fleetRecorder{f})
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	if err := f.until(f.latest + int64(30*time.Second)); err != nil { // the last pages are of an engine at rest
		t.Fatal(err)
	}
	return f
}

var familyOf = regexp.MustCompile(`^[^{]*`)

// TestPageIsTheEngines holds the page that is made from the probe's records against the page of the engine itself, at the same moments: each
// counter and gauge and each bucket. What differs is what two clocks read a moment apart, and is accepted in testdata/NAME.page.txt.
func TestPageIsTheEngines(t *testing.T) {
	for _, name := range realRuns {
		t.Run(name, func(t *testing.T) {
			run := readReal(t, name)
			pages, compared, equal := 0, 0, 0
			differ := map[string]float64{} // series → the largest relative difference
			missing, extra := map[string]bool{}, map[string]bool{}
			f := fromReal(t, run, func(real, ours map[string]float64) {
				pages++
				for series, want := range real {
					family := familyOf.FindString(series)
					if strings.HasPrefix(family, "python_") || strings.HasSuffix(family, "_created") || family == "vllm:cache_config_info" {
						continue
					}
					got, ok := ours[series]
					if !ok {
						missing[family] = true
						continue
					}
					compared++
					if got == want {
						equal++
						continue
					}
					differ[series] = max(differ[series], math.Abs(got-want)/max(math.Abs(want), 1e-9))
					switch bucket := strings.HasSuffix(family, "_bucket"); {
					case bucket && math.Abs(got-want) <= 1 && strings.Contains(family, "_seconds"):
					case strings.HasSuffix(family, "_seconds_sum") && math.Abs(got-want) <= 0.001*real[strings.Replace(series, "_sum", "_count", 1)]: // 1 ms each
					default:
						t.Errorf("page %d: %s is %v, the engine says %v", pages, series, got, want)
					}
				}
				for series := range ours {
					if _, ok := real[series]; !ok && !strings.HasPrefix(series, "vllm:cache_config_info") {
						extra[familyOf.FindString(series)] = true
					}
				}
			})
			x := f.fronts["vllm-0"]
			scrapes := run.under("scrape")
			if why := amiss(declared(run.files[scrapes[len(scrapes)-1]]), declared(x.page(nil))); why != "" {
				t.Error(why)
			}
			if len(x.sequences)+len(x.exchanges)+len(x.parents)+len(x.engines[0].sequences)+len(x.engines[0].sent)+len(x.engines[0].open)+len(f.line.queue) != 0 {
				t.Errorf("kept after the run: %d sequences, %d exchanges, %d parents; of the engine %d sequences, %d messages, %d decisions; %d waiting",
					len(x.sequences), len(x.exchanges), len(x.parents), len(x.engines[0].sequences), len(x.engines[0].sent), len(x.engines[0].open), len(f.line.queue))
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%d pages, %d values compared, %d equal\n\ndiffer, largest relative difference:\n", pages, compared, equal)
			for _, s := range slices.Sorted(maps.Keys(differ)) {
				fmt.Fprintf(&b, "  %-88s %.2g\n", s, differ[s])
			}
			fmt.Fprintf(&b, "\nnot told by the wire:\n  %s\n\nsaid by the dialect alone:\n  %s\n", strings.Join(slices.Sorted(maps.Keys(missing)), "\n  "), strings.Join(slices.Sorted(maps.Keys(extra)), "\n  "))
			golden(t, path.Join("testdata", name+".page.txt"), b.String())
		})
	}
}

// declared are the families that a page declares, with their types.
func declared(page []byte) (out []string) {
	for line := range strings.Lines(string(page)) {
		if text, ok := strings.CutPrefix(line, "# TYPE "); ok {
			out = append(out, strings.TrimSpace(text))
		}
	}
	return out
}

// amiss says which of some families is not among the engine's, or not in the same place.
func amiss(real, ours []string) string {
	at := 0
	for _, family := range ours {
		i := slices.Index(real[at:], family)
		if i < 0 {
			return fmt.Sprintf("%s: the engine has none, or further up", family)
		}
		at += i + 1
	}
	return ""
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(file); err != nil || string(want) != got {
		t.Errorf("not as accepted in %s:\n%s", file, got)
	}
}
