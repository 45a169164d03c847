package look

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// Inventory is what arrives, what is missing, and what arrives without a use.
type Inventory struct {
	Arrives []Arrival `json:"arrives"`
	Missing []Missing `json:"missing"`
	Unused  []Unused  `json:"unused"`          // the most series first
	Facts   []Fact    `json:"facts,omitempty"` // what is to be known of what arrives
}

// Arrival is a registered signal that somebody sends.
type Arrival struct {
	Signal   string       `json:"signal"`
	Path     signals.Path `json:"path"`
	Unit     string       `json:"unit"`
	Producer string       `json:"producer"`
	Native   string       `json:"native"`
	Targets  int          `json:"targets"`
	Series   int          `json:"series"`
	Newest   int64        `json:"newest,omitempty"`      // Unix ns; 0 where the source does not say
	Every    int64        `json:"interval_ns,omitempty"` // between two samples, the longest where targets differ; 0 = not known
	Came     []string     `json:"came,omitempty"`        // to a server, by which ways: scrape, remote write, otlp, …
	Unknown  int          `json:"unknown,omitempty"`     // samples that are no values
	Doubt    string       `json:"doubt,omitempty"`       // why it is no evidence
}

// Missing is a registered signal that a producer which is there could send, and does not.
type Missing struct {
	Signal   string `json:"signal"`
	Producer string `json:"producer"`
	Native   string `json:"native"`   // as it would be called today
	Question string `json:"question"` // what stays unanswered
}

// Unused is a native metric that no signal is made of.
type Unused struct {
	Family      string   `json:"family"`
	Targets     int      `json:"targets"`
	Series      int      `json:"series"`                       // what it costs whoever keeps it
	PerSecond   float64  `json:"samples_per_second,omitempty"` // 0 = not known
	BytesPerDay int64    `json:"bytes_per_day,omitempty"`      // on a server's disk, estimated; 0 = not known
	Came        []string `json:"came,omitempty"`               // to a server, by which ways
}

// TakeInventory lists what a scene's sources send. It judges the scene first: what is no evidence is said to be none.
func TakeInventory(s *Scene) *Inventory {
	facts := judge(s, careRules...)
	return &Inventory{arrivals(s), missing(s), unused(s), facts}
}

func arrivals(s *Scene) []Arrival {
	type key struct{ signal, producer, native string }
	found := map[key]*Arrival{}
	targets := map[key]map[string]bool{}
	for _, r := range s.Readings {
		k := key{r.Signal.Name, r.Who.Producer, r.Native.Name}
		a := found[k]
		if a == nil {
			a = &Arrival{Signal: r.Signal.Name, Path: r.Signal.Path, Unit: r.Signal.Unit, Producer: r.Who.Producer, Native: r.Native.Name}
			found[k], targets[k] = a, map[string]bool{}
		}
		targets[k][r.Target] = true
		a.Series++
		a.Doubt = cmp.Or(a.Doubt, s.invalid[r])
		for _, n := range r.Unknown {
			a.Unknown += n
		}
		a.Newest, a.Every = max(a.Newest, newest(&r.Track)), max(a.Every, int64(interval(&r.Track)))
		a.Came = s.came(a.Came, &r.Track)
	}
	list := []Arrival{}
	for k, a := range found {
		a.Targets = len(targets[k])
		list = append(list, *a)
	}
	slices.SortFunc(list, func(a, b Arrival) int {
		return cmp.Or(cmp.Compare(slices.Index(signals.Paths, a.Path), slices.Index(signals.Paths, b.Path)), cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Native, b.Native))
	})
	return list
}

// came adds the ways by which a series came to others, in order.
func (s *Scene) came(ways []string, t *adapter.Track) []string {
	if s.Came == nil {
		return nil
	}
	for _, w := range s.Came(t) {
		if i, there := slices.BinarySearch(ways, w); !there {
			ways = slices.Insert(ways, i, w)
		}
	}
	return ways
}

// interval is the time between two samples of a series, the middle one; 0 where it is not known.
func interval(t *adapter.Track) time.Duration {
	if len(t.Hists) == 0 {
		return adapter.Interval(t.Points)
	}
	points := make([]adapter.Point, len(t.Hists))
	for i := range t.Hists {
		points[i].At = t.Hists[i].At
	}
	return adapter.Interval(points)
}

func newest(t *adapter.Track) int64 {
	var at int64
	if n := len(t.Points); n > 0 {
		at = t.Points[n-1].At
	}
	if n := len(t.Hists); n > 0 {
		at = max(at, t.Hists[n-1].At)
	}
	return at
}

func missing(s *Scene) []Missing {
	sent := map[[2]string]bool{}
	producers := map[string]bool{}
	for _, r := range s.Readings {
		sent[[2]string{r.Who.Producer, r.Signal.Name}] = true
		producers[r.Who.Producer] = true
	}
	list := []Missing{}
	for _, p := range slices.Sorted(maps.Keys(producers)) {
		for _, sig := range signals.All() {
			if sent[[2]string{p, sig.Name}] || sig.Useless() {
				continue
			}
			if name := successor(sig.From, p); name != "" {
				list = append(list, Missing{sig.Name, p, name, sig.Question})
			}
		}
	}
	return list
}

func unused(s *Scene) []Unused {
	used := map[string]bool{}
	for _, r := range s.Readings {
		used[r.Family] = true
	}
	found := map[string]*Unused{}
	targets := map[string]map[string]bool{}
	intervals := map[string]time.Duration{}
	for _, t := range s.Tracks {
		if used[t.Family] || registered(t.Family) || strings.HasSuffix(t.Family, "_created") || t.Family == "up" || strings.HasPrefix(t.Family, "scrape_") { // when a counter began, how a scrape went: of use, but none of its own
			continue
		}
		u := found[t.Family]
		if u == nil {
			u = &Unused{Family: exposition.Printable(t.Family, 120)}
			found[t.Family], targets[t.Family] = u, map[string]bool{}
		}
		targets[t.Family][t.Target] = true
		u.Series += series(t)
		u.Came = s.came(u.Came, t)
		if every := interval(t); every > 0 {
			intervals[t.Family] = every
		}
	}
	list := []Unused{}
	for f, u := range found {
		u.Targets = len(targets[f])
		if every := intervals[f]; every > 0 {
			u.PerSecond = float64(u.Series) / every.Seconds()
		}
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Unused) int { return cmp.Or(cmp.Compare(b.Series, a.Series), cmp.Compare(a.Family, b.Family)) })
	return list
}

// series is how many a track is in a store.
func series(t *adapter.Track) int {
	switch {
	case t.Series > 0:
		return t.Series
	case len(t.Hists) > 0:
		return 1 + len(t.Hists[0].Bounds) + 2 // each bucket is a series, and so are +Inf, count and sum
	}
	return 1
}
