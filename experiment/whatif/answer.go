package whatif

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/whylate/whylate/experiment/simulate"
	"github.com/whylate/whylate/experiment/simulate/timing"
	"github.com/whylate/whylate/experiment/simulate/world"
	"github.com/whylate/whylate/experiment/workload"
	"github.com/whylate/whylate/internal/student"
	"github.com/whylate/whylate/ledger"
)

// Question is what is asked of a captured run.
type Question struct {
	Book   *ledger.Book   // its hashes kept ([ingest.Assembler.KeepHashes]), or no prefix is shared
	Engine *ledger.Engine // whose; one of the book's
	Set    []string       // changes, "setting=value"
	Seeds  int            // simulations of each arm, at least 3; 0 = 8
	Seed   uint64         // of the first; the others follow

	Unchanged bool                       // nothing is changed: how far is the simulation from the capture?
	Learn     func(n uint64) bool        // iterations that the iteration time is learned from; nil = all
	Take      func(*ledger.Request) bool // requests that are played and measured; nil = all of the engine
}

// Answer is a prediction, and what it may be wrong by.
type Answer struct {
	Engine   string            `json:"engine"`
	Version  string            `json:"version"`
	Changes  []Setting         `json:"changes"`
	Requests int               `json:"requests"`           // played
	LeftOut  map[string]int    `json:"left_out,omitempty"` // of the capture's requests, by reason
	Seeds    int               `json:"seeds"`              // of each arm
	Time     timing.Provenance `json:"time"`               // the iteration time's calibration
	Figures  []Figure          `json:"figures"`
	Notes    []string          `json:"notes,omitempty"` // what weakens the answer
}

// Figure is one measure in all arms.
type Figure struct {
	Name       string  `json:"name"`
	Unit       string  `json:"unit,omitempty"`
	Observed   float64 `json:"observed"`   // in the capture
	Same       float64 `json:"same"`       // simulated with the settings as they were, the mean over seeds
	Changed    float64 `json:"changed"`    // … with the change
	Difference float64 `json:"difference"` // Changed − Same
	Error      float64 `json:"error"`      // of Difference, 95 %: see [Ask]
	Sham       float64 `json:"sham"`       // 95 % of differences between two seeds of the same settings are no larger
	Told       bool    `json:"told"`       // Difference is larger than Error and Sham
}

// Off is how far the simulation is from the capture where nothing was changed, as a share; NaN where the capture shows 0 or nothing.
func (f *Figure) Off() float64 {
	if f.Observed == 0 {
		return math.NaN()
	}
	return f.Same/f.Observed - 1
}

// Limits of what is believed.
const (
	leastSeeds   = 3
	defaultSeeds = 8
	mostSeeds    = 1000
	farOff       = 0.25 // of a figure of the unchanged simulation, beyond which a note says so
)

// Check says what is wrong with the question itself.
func (q *Question) Check() error {
	if q.Seeds != 0 && (q.Seeds < leastSeeds || q.Seeds > mostSeeds) {
		return fmt.Errorf("whatif: %d seeds: give %d to %d", q.Seeds, leastSeeds, mostSeeds)
	}
	if q.Unchanged {
		return nil
	}
	_, _, err := apply(q.Engine.Version, q.Engine.Settings, q.Set)
	return err
}

// Ask answers a question.
//
// The error of a difference is the half-width within which 95 % of single pairs of runs lie (Student's t of the seeds' differences, and of
// one more), plus the share by which the simulation misses the capture where nothing was changed, of the difference.
func Ask(ctx context.Context, q Question) (*Answer, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	seeds := cmp.Or(q.Seeds, defaultSeeds)
	b := only(q.Book, q.Engine, q.Take)
	settings, changes := q.Engine.Settings, []Setting(nil)
	if !q.Unchanged {
		var err error
		if settings, changes, err = apply(q.Engine.Version, q.Engine.Settings, q.Set); err != nil {
			return nil, err
		}
	}
	learn := q.Learn
	if learn == nil {
		learn = func(uint64) bool { return true }
	}
	calibration, err := timing.Calibrate(q.Engine, learn)
	if err != nil {
		return nil, err
	}
	taken := workload.FromLedger(b)
	if len(taken.Requests) == 0 {
		return nil, fmt.Errorf("whatif: no request of engine %s can be played again: %s", q.Engine.ID, reasons(taken.LeftOut))
	}
	front, network := world.FrontLike(b), way(b)
	same := &arm{q.Engine.Version, q.Engine.Settings, calibration, front, network, taken.Requests}
	changed := &arm{q.Engine.Version, settings, calibration, front, network, taken.Requests}
	before, after, err := play(ctx, same, changed, seeds, q.Seed)
	if err != nil {
		return nil, err
	}
	a := &Answer{Engine: q.Engine.ID.String(), Version: q.Engine.Version, Changes: changes, Requests: len(taken.Requests), LeftOut: taken.LeftOut, Seeds: seeds, Time: calibration.Provenance}
	observed := outcomeOf(b)
	for _, m := range measures {
		a.Figures = append(a.Figures, figure(m, observed, before, after))
	}
	a.note(q.Engine, settings, taken, observed, after)
	return a, nil
}

// only is the part of a book that is about one engine, and the requests that are taken of it.
func only(b *ledger.Book, e *ledger.Engine, take func(*ledger.Request) bool) *ledger.Book {
	part := &ledger.Book{Engines: []*ledger.Engine{e}}
	for _, r := range b.Requests {
		if len(r.Sequences) > 0 && r.Sequences[0].Engine == e && (take == nil || take(r)) {
			part.Requests = append(part.Requests, r)
		}
	}
	return part
}

// play runs both arms with each seed, as many at once as there are processors.
func play(ctx context.Context, same, changed *arm, seeds int, seed uint64) (before, after []*outcome, err error) {
	before, after = make([]*outcome, seeds), make([]*outcome, seeds)
	errs := make([]error, 2*seeds)
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	var all sync.WaitGroup
	for i := range 2 * seeds {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			if i%2 == 0 {
				before[i/2], errs[i] = same.play(seed + uint64(i/2))
			} else { // other seeds: two real runs have no luck in common either
				after[i/2], errs[i] = changed.play(seed + uint64(seeds+i/2))
			}
		})
	}
	all.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, nil, errs[i]
	}
	return before, after, nil
}

func figure(m measure, observed *outcome, before, after []*outcome) Figure {
	x, y := values(m, before), values(m, after)
	n := float64(len(x))
	f := Figure{Name: m.name, Unit: m.unit, Observed: m.of(observed), Same: mean(x), Changed: mean(y)}
	f.Difference = f.Changed - f.Same
	t := student.Quantile(0.975, float64(len(x)-1))
	f.Error = t * math.Sqrt((variance(x)+variance(y))*(1+1/n))
	if off := f.Off(); !math.IsNaN(off) {
		f.Error += math.Abs(off * f.Difference)
	}
	f.Sham = t * math.Sqrt(2*variance(x))
	f.Told = math.Abs(f.Difference) > max(f.Error, f.Sham)
	return f
}

func values(m measure, outcomes []*outcome) []float64 {
	var xs []float64
	for _, o := range outcomes {
		xs = append(xs, m.of(o))
	}
	return xs
}

func mean(xs []float64) (m float64) {
	for _, x := range xs {
		m += x
	}
	return m / float64(len(xs))
}

// variance of which xs are a sample.
func variance(xs []float64) (v float64) {
	m := mean(xs)
	for _, x := range xs {
		v += (x - m) * (x - m)
	}
	return v / float64(len(xs)-1)
}

func reasons(leftOut map[string]int) string {
	if len(leftOut) == 0 {
		return "the capture has none"
	}
	var words []string
	for why, n := range leftOut {
		words = append(words, fmt.Sprintf("%d × %s", n, why))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// note tells what weakens the answer.
func (a *Answer) note(e *ledger.Engine, settings map[string]any, taken workload.Taken, observed *outcome, after []*outcome) {
	say := func(format string, args ...any) { a.Notes = append(a.Notes, fmt.Sprintf(format, args...)) }
	if e.Began > 1 {
		say("the capture begins with iteration %d: the simulation begins with an empty engine and an empty cache", e.Began)
	}
	_, s, err := simulate.FromHello(e.Version, settings)
	if err == nil {
		tokens, running := widest(e)
		if widest := s.MaxTokens; widest > tokens && setTo(a.Changes, "max_num_batched_tokens") {
			say("no captured iteration had more than %d tokens: beyond that its time is extrapolated", tokens)
		}
		if s.MaxSequences > running && setTo(a.Changes, "max_num_seqs") {
			say("no captured iteration had more than %d sequences: beyond that its time is extrapolated", running)
		}
		if s.PrefixCaching && taken.Engines == 0 {
			say("the capture has no block hashes: no prompt shares a prefix with another in the simulation")
		}
	}
	for i := range a.Figures {
		if f := &a.Figures[i]; f.Unit == "ns" && math.Abs(f.Off()) > farOff {
			say("%s: the simulation of what was is %+.0f %% off the capture", f.Name, 100*f.Off())
		}
	}
	if lost := observed.requests - observed.over; lost > 0 {
		say("%d of the %d captured requests had not ended, or had no output: they are not in the observed figures", lost, observed.requests)
	}
	if o := after[0]; o.over < o.requests {
		say("with the change %d of %d requests do not end with output", o.requests-o.over, o.requests)
	}
	say("requests come when they came: clients that wait for an answer before they ask again would come sooner or later with the change")
}

func setTo(changes []Setting, name string) bool {
	return slices.ContainsFunc(changes, func(s Setting) bool { return s.Name == name })
}

// widest are the most tokens and sequences that an iteration had.
func widest(e *ledger.Engine) (tokens, sequences int) {
	for i := range e.Iterations {
		tokens, sequences = max(tokens, int(e.Iterations[i].Tokens)), max(sequences, int(e.Iterations[i].Members))
	}
	return tokens, sequences
}
