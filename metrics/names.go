package metrics

import (
	"strings"
	"sync"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// NameOf is what a signal is called in PromQL, as Prometheus names things: whylate_, words joined by underscores, the unit, _total of a counter.
func NameOf(s *signals.Signal) string {
	name := "whylate_" + strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			return r
		}
		return '_'
	}, s.Name)
	if unit := UnitOf(s); unit != "" && !strings.HasSuffix(name, "_"+unit) {
		name += "_" + unit
	}
	switch s.Kind {
	case signals.Counter:
		name = strings.TrimSuffix(name, "_total") + "_total"
	case signals.Info:
		name = strings.TrimSuffix(name, "_info") + "_info"
	}
	return name
}

var units = map[string]string{"s": "seconds", "1": "ratio", "By": "bytes", "W": "watts", "J": "joules", "Cel": "celsius", "Hz": "hertz", "By/s": "bytes_per_second", "%": "percent"}

// UnitOf is a signal's unit as a word of Prometheus's; "" where it is a count.
func UnitOf(s *signals.Signal) string { return units[s.Unit] }

var byName = sync.OnceValue(func() map[string]*signals.Signal {
	m := map[string]*signals.Signal{}
	for i := range signals.All() {
		s := &signals.All()[i]
		m[NameOf(s)] = s
	}
	return m
})

// SignalOf is the signal that a series of this name is of, a histogram's with its suffix; nil where it is none.
func SignalOf(name string) *signals.Signal {
	if s := byName()[name]; s != nil {
		return s
	}
	if base, suffix := exposition.Split(name); suffix != "" {
		if s := byName()[base]; s != nil && s.Kind == signals.Histogram {
			return s
		}
	}
	return nil
}
