package query

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// A long-lived engine does not look like a restart when the beginning of its records is let go.
func TestAnUnknownBeginningIsNoChange(t *testing.T) {
	of := func(id string, began, last int64) Incarnation {
		return Incarnation{store.Described{ID: ledger.EngineID{Replica: "r", Incarnation: id}, Began: began}, last}
	}
	if got := Changes([]Incarnation{of("old", 5, 6), of("young", 0, 90)}, nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestRanksAndEnds(t *testing.T) {
	minute := int64(time.Minute)
	of := func(id string, rank int, began, last int64) Incarnation {
		return Incarnation{store.Described{ID: ledger.EngineID{Deployment: "d", Replica: "r", Rank: rank, Incarnation: id}, Producer: "p 1", Began: began}, last}
	}
	show := func(all []Incarnation, beats map[ledger.EngineID]ledger.Beat) string {
		var lines []string
		for _, c := range Changes(all, beats) {
			lines = append(lines, fmt.Sprintf("%d %s %s %s>%s", c.At/minute, c.Kind, c.Subject, c.From, c.To))
		}
		return strings.Join(lines, ", ")
	}
	a0, a1 := of("a", 0, 1*minute, 9*minute), of("a", 1, 2*minute, 9*minute)
	b0, b1 := of("b", 0, 10*minute, 30*minute), of("b", 1, 15*minute, 30*minute)
	early := of("b", 0, 10*minute, 10*minute+1)
	both := []ledger.EngineID{a0.ID}
	for name, c := range map[string]struct {
		all   []Incarnation
		beats map[ledger.EngineID]ledger.Beat
		want  string
	}{
		"one start, a late rank":            {[]Incarnation{a0, a1}, nil, ""},
		"both restart":                      {[]Incarnation{a0, a1, b0, b1}, nil, "15 restart d/r/1 a>b, 10 restart d/r/0 a>b"},
		"a rank appears":                    {[]Incarnation{a0, b0, b1}, nil, "15 rank d/r/1 >b, 10 restart d/r/0 a>b"},
		"a rank does not come back":         {[]Incarnation{a0, a1, b0}, nil, "10 restart d/r/0 a>b, 10 rank d/r/1 a>"},
		"it is too early to say":            {[]Incarnation{a0, a1, early}, nil, "10 restart d/r/0 a>b"},
		"a process that is gone":            {[]Incarnation{a0}, map[ledger.EngineID]ledger.Beat{both[0]: {State: ledger.BeatDead, Since: 9 * minute}}, "9 end d/r/0 a>"},
		"one that is stuck, not gone":       {[]Incarnation{a0}, map[ledger.EngineID]ledger.Beat{both[0]: {State: ledger.BeatStuck, Since: 9 * minute}}, ""},
		"ranks with incarnations of theirs": {[]Incarnation{of("x", 0, minute, 30*minute), of("y", 1, 2*minute, 30*minute)}, nil, "2 rank d/r/1 >y"},
	} {
		if got := show(c.all, c.beats); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
