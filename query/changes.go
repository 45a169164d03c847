package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// Incarnation is one start of an engine, as it is compared with the one before it.
type Incarnation struct {
	store.Described
	Last int64 // the newest time that is known of it
}

// rankWait is how long a start must have been recorded before a rank that says nothing counts as not there: ranks come up one
// after the other.
const rankWait = time.Minute

// kinds are the kinds of changes that [Changes] sees, in the order in which they are told of one start.
var kinds = []ledger.ChangeKind{ledger.ChangeRestart, ledger.ChangeVersion, ledger.ChangeProbe, ledger.ChangeModel, ledger.ChangeSetting, ledger.ChangeRank, ledger.ChangeEnd}

// Kinds are the kinds of changes that [Changes] sees.
func Kinds() []ledger.ChangeKind { return slices.Clone(kinds) }

// Changes compares each incarnation with the one before it of the same deployment, replica and rank. Those of which the beginning is not
// known are left out: nobody knows when they changed. beats says whose process is gone. The newest stand first.
func Changes(all []Incarnation, beats map[ledger.EngineID]ledger.Beat) []ledger.Change {
	type replica struct{ deployment, name string }
	replicas := map[replica][]Incarnation{}
	var out []ledger.Change
	for _, s := range all {
		if b := beats[s.ID]; b.State == ledger.BeatDead {
			out = append(out, change(s, b.Since, ledger.ChangeEnd, place(s.ID), s.ID.Incarnation, "", "its process is gone"))
		}
		if s.Began != 0 {
			k := replica{s.ID.Deployment, s.ID.Replica}
			replicas[k] = append(replicas[k], s)
		}
	}
	for _, list := range replicas {
		slices.SortFunc(list, func(a, b Incarnation) int {
			return cmp.Or(cmp.Compare(a.Began, b.Began), cmp.Compare(a.ID.Rank, b.ID.Rank), cmp.Compare(a.ID.Incarnation, b.ID.Incarnation))
		})
		newest := map[int]Incarnation{} // by rank
		for _, s := range list {
			if before, ok := newest[s.ID.Rank]; ok {
				out = append(out, differences(before, s)...)
			}
			newest[s.ID.Rank] = s
		}
		out = append(out, ranks(list)...)
	}
	slices.SortStableFunc(out, func(a, b ledger.Change) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Engine, b.Engine),
			cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), cmp.Compare(a.Subject, b.Subject))
	})
	return out
}

// differences is what a restart brought.
func differences(before, s Incarnation) []ledger.Change {
	out := []ledger.Change{change(s, s.Began, ledger.ChangeRestart, place(s.ID), before.ID.Incarnation, s.ID.Incarnation,
		fmt.Sprintf("restarted: %.8s after %.8s", s.ID.Incarnation, before.ID.Incarnation))}
	differ := func(kind ledger.ChangeKind, subject, from, to, text string) {
		if from != to {
			out = append(out, change(s, s.Began, kind, subject, from, to, text))
		}
	}
	from, to := before.Name+" "+before.Version, s.Name+" "+s.Version
	differ(ledger.ChangeVersion, place(s.ID), from, to, fmt.Sprintf("the engine is %s, was %s", to, from))
	differ(ledger.ChangeProbe, place(s.ID), before.Producer, s.Producer, fmt.Sprintf("it is recorded by %s, was by %s", s.Producer, before.Producer))
	names := map[string]bool{}
	for name := range before.Settings {
		names[name] = true
	}
	for name := range s.Settings {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		from, to := setting(before.Settings, name), setting(s.Settings, name)
		kind, subject := ledger.ChangeSetting, name
		if name == "model" {
			kind, subject = ledger.ChangeModel, place(s.ID)
		}
		text := fmt.Sprintf("%s is %s, was %s", name, to, from)
		switch {
		case from == "":
			text = fmt.Sprintf("%s is %s, was not told", name, to)
		case to == "":
			text = fmt.Sprintf("%s is not told any more, was %s", name, from)
		}
		differ(kind, subject, from, to, text)
	}
	return out
}

// setting writes a setting's value: "" if it is not there.
func setting(settings map[string]any, name string) string {
	switch v, ok := settings[name]; v := v.(type) {
	case nil:
		if ok {
			return "none"
		}
		return ""
	case string:
		if v == "" {
			return `""`
		}
		return v
	default:
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(b)
	}
}

// ranks tells of the ranks of a replica that come or go with a start. list is in order of time; the ranks of one start have one
// incarnation.
func ranks(list []Incarnation) (out []ledger.Change) {
	type group struct {
		of    map[int]Incarnation
		began int64
		last  int64
	}
	var groups []group
	index := map[string]int{}
	for _, s := range list {
		k, ok := index[s.ID.Incarnation]
		if !ok {
			k = len(groups)
			index[s.ID.Incarnation] = k
			groups = append(groups, group{of: map[int]Incarnation{}, began: s.Began})
		}
		groups[k].of[s.ID.Rank] = s
		groups[k].last = max(groups[k].last, s.Last)
	}
	for k := 1; k < len(groups); k++ {
		was, is := groups[k-1], groups[k]
		for rank, s := range is.of {
			if _, ok := was.of[rank]; !ok {
				out = append(out, change(s, s.Began, ledger.ChangeRank, place(s.ID), "", s.ID.Incarnation, fmt.Sprintf("rank %d is there, which the start before did not have", rank)))
			}
		}
		for rank, s := range was.of {
			if _, ok := is.of[rank]; ok || s.Last >= is.began || is.last-is.began < int64(rankWait) {
				continue
			}
			first := is.of[slices.Min(slices.Collect(maps.Keys(is.of)))]
			out = append(out, change(first, is.began, ledger.ChangeRank, place(s.ID), s.ID.Incarnation, "", fmt.Sprintf("rank %d is not there, which the start before had", rank)))
		}
	}
	return out
}

func change(s Incarnation, at int64, kind ledger.ChangeKind, subject, from, to, text string) ledger.Change {
	return ledger.Change{At: at, Kind: kind, Engine: s.ID.String(), Subject: subject, From: from, To: to, Source: s.Producer, Text: text}
}

// place is an engine without its Incarnation.
func place(id ledger.EngineID) string {
	return fmt.Sprintf("%s/%d", PlaceOf(id.Deployment, id.Replica), id.Rank)
}

// PlaceOf is how people call a replica: without its deployment where that repeats it.
func PlaceOf(deployment, replica string) string {
	if deployment == "" || deployment == replica {
		return replica
	}
	return deployment + "/" + replica
}

// Incarnations are those of the book's engines.
func (l *Ledger) Incarnations() (out []Incarnation) {
	for _, e := range l.Book.Engines {
		k := Incarnation{Described: store.Described{ID: e.ID, Name: e.Name, Version: e.Version, Producer: e.Producer, Settings: e.Settings}, Last: e.BaseEnd}
		if e.First == e.Began { // else its beginning is sealed
			k.Began = e.TileStart(e.First)
		}
		if n := len(e.Iterations); n > 0 {
			k.Last = max(k.Last, e.Iterations[n-1].End, e.Iterations[n-1].Decided)
		}
		out = append(out, k)
	}
	return out
}
