package server

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/metrics/native"
	"github.com/whylate/whylate/query"
)

var _ api.Observer = (*Server)(nil)

// lookedBack is how far back series are looked at: what has not come for so long does not arrive.
const lookedBack = 10 * time.Minute

// probe is the source of engines that the ledger knows.
const probe = "probe"

// joined is who is one, and what follows for engines of the ledger and what is scraped.
type joined struct {
	api.Identities
	replicas []replica
	targets  map[string][]string // of an engine's id: instances of its series
	engines  map[string][]string // of an instance: ids of engines
}

// replica is an engine of the ledger with all its ranks.
type replica struct {
	name  string
	ranks []ledger.EngineID
	model string // that it has loaded: a name, or a path
	at    int    // in Identities.Things
	sure  bool   // it is joined for certain
}

// Identities implements [api.Observer].
func (s *Server) Identities(ctx context.Context) (*api.Identities, error) {
	if err := s.refuse(); err != nil {
		return nil, err
	}
	j, err := s.joined(ctx)
	if err != nil {
		return nil, err
	}
	return &j.Identities, nil
}

func (s *Server) joined(ctx context.Context) (*joined, error) {
	return s.who.get(s.set.Now, func() (*joined, error) {
		scene, err := s.scene(ctx, native.Labels)
		if err != nil {
			return nil, err
		}
		replicas, things := s.replicas()
		calls, shifts := s.liveView()
		things = slices.Concat(things, look.Things(scene), s.callers.things(calls, s.set.Now()))
		j := &joined{replicas: replicas, targets: map[string][]string{}, engines: map[string][]string{},
			Identities: api.Identities{Joined: *identity.Join(things, s.set.Aliases...), Clocks: api.ShiftsOf(shifts)}}
		j.relate()
		return j, nil
	})
}

// scene is what the time series have of the last minutes, as read reads it. It is empty where there are none.
func (s *Server) scene(ctx context.Context, read native.Reader) (*look.Scene, error) {
	now := s.set.Now()
	db := s.series()
	if db == nil {
		return look.Of(nil, now), nil
	}
	tracks, err := read(ctx, db.Detail(), now.Add(-lookedBack), now)
	if err != nil {
		return nil, fmt.Errorf("look at the time series of the last %s: %w", lookedBack, err)
	}
	ways := func(t *adapter.Track) []string { return db.Ways(t.Labels.Get("job"), t.Target) }
	own := []string{metrics.Own}
	scene := look.Of(slices.DeleteFunc(tracks, func(t *adapter.Track) bool { return slices.Equal(ways(t), own) }), now)
	scene.Came, scene.Host = ways, s.set.Host
	return scene, nil
}

func (s *Server) series() *metrics.DB {
	if s.set.Series == nil {
		return nil
	}
	return s.set.Series()
}

// relate says for each replica where metrics of it are read.
func (j *joined) relate() {
	group := map[int][]int{}
	for _, g := range j.Groups {
		for _, i := range g {
			group[i] = g
		}
	}
	for k := range j.replicas {
		r := &j.replicas[k]
		r.at = slices.IndexFunc(j.Things, func(t identity.Thing) bool { return t.Source == probe && t.Name == r.name })
		for _, i := range group[r.at] {
			target := j.Things[i].Target
			if target == "" {
				continue
			}
			for _, id := range r.ranks {
				j.targets[id.String()] = append(j.targets[id.String()], target)
				j.engines[target] = append(j.engines[target], id.String())
			}
		}
		r.sure = slices.ContainsFunc(j.Links, func(l identity.Link) bool { return l.Certain && !l.WorksOn && (l.A == r.at || l.B == r.at) })
	}
	for _, m := range []map[string][]string{j.targets, j.engines} {
		for k, list := range m {
			slices.Sort(list)
			m[k] = slices.Compact(list)
		}
	}
}

// replicas are the engines of the ledger that may still run, each with all its ranks.
func (s *Server) replicas() (list []replica, things []identity.Thing) {
	beats := s.beats()
	defer s.hot.lock()()
	type start struct{ deployment, replica, incarnation string }
	ranks := map[start][]*ledger.Engine{}
	for _, e := range s.hot.l.Book.Engines {
		if b, known := beats[e.ID]; !known || b.State != ledger.BeatDead {
			k := start{e.ID.Deployment, e.ID.Replica, e.ID.Incarnation}
			ranks[k] = append(ranks[k], e)
		}
	}
	for a, of := range ranks {
		if _, alive := beats[of[0].ID]; alive {
			continue
		}
		for b, later := range ranks { // a later start of it takes its place
			if a != b && a.deployment == b.deployment && a.replica == b.replica && began(later) > ended(of) {
				delete(ranks, a)
				break
			}
		}
	}
	starts := map[string]int{}
	for k := range ranks {
		starts[query.PlaceOf(k.deployment, k.replica)]++
	}
	for _, k := range slices.SortedFunc(maps.Keys(ranks), func(a, b start) int {
		return cmp.Or(cmp.Compare(a.deployment, b.deployment), cmp.Compare(a.replica, b.replica), cmp.Compare(a.incarnation, b.incarnation))
	}) {
		of := ranks[k]
		r := replica{name: query.PlaceOf(k.deployment, k.replica)}
		if starts[r.name] > 1 { // two engines that nobody gave names
			r.name = fmt.Sprintf("%s@%.8s", r.name, k.incarnation)
		}
		r.model, _ = of[0].Settings["model"].(string)
		var says identity.Says
		says.Add(identity.Incarnation, k.incarnation, "hello")
		says.Host(of[0].Host, "hello: host")
		if of[0].PID != 0 {
			says.Process(of[0].Host, fmt.Sprint(of[0].PID), "hello: host and pid")
		}
		for _, e := range of {
			r.ranks = append(r.ranks, e.ID)
		}
		list = append(list, r)
		things = append(things, identity.Thing{Kind: identity.Engine, Source: probe, Name: r.name, Says: says})
	}
	return list, things
}

// began and ended are when engines are known to have worked, Unix ns; 0 where none did.
func began(of []*ledger.Engine) (at int64) {
	for _, e := range of {
		if len(e.Iterations) > 0 && (at == 0 || e.Iterations[0].Decided < at) {
			at = e.Iterations[0].Decided
		}
	}
	return at
}

func ended(of []*ledger.Engine) (at int64) {
	for _, e := range of {
		if n := len(e.Iterations); n > 0 {
			at = max(at, e.Iterations[n-1].Decided)
		}
	}
	return at
}

// callers are whoever made the spans of late, of calls that are sealed too. They are not kept beyond the process.
type callers struct {
	mu   sync.Mutex
	seen map[string]caller
}

type caller struct {
	identity.Thing
	at time.Time
}

// mostCallers bounds how many are remembered, callersFor how long.
const (
	mostCallers = 1000
	callersFor  = time.Hour
)

func (c *callers) note(calls []*genai.Call, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]caller{}
	}
	maps.DeleteFunc(c.seen, func(_ string, x caller) bool { return now.Sub(x.at) > callersFor })
	for _, t := range look.Callers(calls) {
		if _, known := c.seen[t.Name]; known || len(c.seen) < mostCallers {
			c.seen[t.Name] = caller{t, now}
		}
	}
}

// things are those that are remembered, and those of calls in memory.
func (c *callers) things(calls []*genai.Call, now time.Time) (list []identity.Thing) {
	live := look.Callers(calls)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.seen)) {
		x := c.seen[name]
		if now.Sub(x.at) <= callersFor && !slices.ContainsFunc(live, func(t identity.Thing) bool { return t.Name == name }) {
			list = append(list, x.Thing)
		}
	}
	return append(list, live...)
}
