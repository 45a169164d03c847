package incident

import (
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/experiment/simulate/dialect"
	"github.com/whylate/whylate/experiment/simulate/world"
)

// Play is an incident that is about to be played.
type Play struct {
	Truth Truth
	of    *Incident
	stage *stage
}

// Prepare sets up an incident on an engine.
func (i *Incident) Prepare(p Params, e Engine) (*Play, error) {
	s, err := newStage(i, p, e)
	if err != nil {
		return nil, err
	}
	return &Play{s.truth(i), i, s}, nil
}

// Fault is when the fault begins, since the run began, and how long it lasts: what was asked for, unless the incident decides by itself.
func (p *Play) Fault() (onset, duration time.Duration) {
	return p.stage.Onset, p.stage.end() - p.stage.Onset
}

// Run plays it to its end, once. wait is called before the world moves on to a time; nil = at once.
func (p *Play) Run(to world.Recorder, wait func(at time.Duration) error) (world.Summary, error) {
	s := p.stage
	s.models()
	s.tap.to, s.tap.begin, s.tap.version = to, s.Begin.UnixNano(), s.config.Version
	c := s.config
	c.Recorder, c.Wait = s.tap, wait
	c.Traits = func(r *experiment.Request) (t world.Traits) {
		if of := s.traits[r.Class]; of != nil {
			t = of(r)
		}
		return t
	}
	var err error
	if c.Workload, err = s.workload(); err != nil {
		return world.Summary{}, err
	}
	if err := s.tap.open(); err != nil {
		return world.Summary{}, err
	}
	w, err := world.New(c)
	if err != nil {
		return world.Summary{}, err
	}
	for _, x := range s.plan {
		w.At(x.at, x.do)
	}
	summary, err := w.Run()
	if err == nil {
		err = s.err
	}
	return summary, err
}

// lead is how far ahead of each other the sources of a world may speak: a front end tells what it will have done once it has caught up.
const lead = 30 * time.Second

// Bundle plays it into a run bundle, with its truth.
func (p *Play) Bundle(dir string, keep dialect.Evidence) (world.Summary, error) {
	truth, err := p.Truth.JSON()
	if err != nil {
		return world.Summary{}, err
	}
	b, err := dialect.Create(dir, dialect.Options{Keep: keep, ScrapeEvery: scrapeEvery, Producer: world.Producer + " " + p.stage.config.Version, Window: lead, Truth: truth})
	if err != nil {
		return world.Summary{}, err
	}
	summary, err := p.Run(b, nil)
	if closed := b.Close(); err == nil {
		err = closed
	}
	for _, spoil := range p.of.after {
		if err == nil && !p.stage.Sham {
			err = spoil(dir, &p.Truth)
		}
	}
	return summary, err
}

// scrapeEvery is the time between metrics pages.
const scrapeEvery = 5 * time.Second
