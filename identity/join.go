package identity

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

type joiner struct {
	Joined
	group     []int // of each thing, the smallest thing that is one with it
	ambiguous []ambiguity
}

// ambiguity is a value that several things of one source have.
type ambiguity struct {
	attr   Attr
	value  string
	things []int
}

// by joins what has the same value of an attribute. A value joins only if no source has it for two things that are not one already: then
// it is no name of either. What is joined already is not joined again by less.
func (j *joiner) by(a Attr, sure bool) {
	for _, k := range j.values(a) {
		if sources(j.Things, k.things) < 2 {
			continue
		}
		if j.shared(k.things) {
			j.ambiguous = append(j.ambiguous, k)
			continue
		}
		first := k.things[0]
		for _, b := range k.things[1:] {
			switch {
			case j.group[first] == j.group[b]:
			case !sure && (j.contradict(first, b) != "" || j.taken(first, b)): // what is likely is no reason against what they say
			default:
				j.link(first, b, a, sure)
			}
		}
	}
}

// values are the values of an attribute with the things that have them, in order.
func (j *joiner) values(a Attr) (list []ambiguity) {
	type key struct {
		kind  Kind
		value string
	}
	at := map[key]int{}
	for i := range j.Things {
		t := &j.Things[i]
		v := t.Value(a).Value
		if v == "" || t.Kind == Device && a != UUID { // a device's pod is its owner's
			continue
		}
		k := key{t.Kind, v}
		n, ok := at[k]
		if !ok {
			n = len(list)
			at[k] = n
			list = append(list, ambiguity{attr: a, value: v})
		}
		list[n].things = append(list[n].things, i)
	}
	return list
}

func sources(things []Thing, of []int) int {
	var seen []string
	for _, i := range of {
		if s := things[i].Source; !slices.Contains(seen, s) {
			seen = append(seen, s)
		}
	}
	return len(seen)
}

// shared reports whether two things of one source are among them that are not one.
func (j *joiner) shared(things []int) bool {
	for k, a := range things {
		for _, b := range things[k+1:] {
			if j.Things[a].Source == j.Things[b].Source && j.group[a] != j.group[b] {
				return true
			}
		}
	}
	return false
}

// contradict is an attribute that names one thing and that both have, differently. An engine has several processes: that two sources name
// different ones is none.
func (j *joiner) contradict(a, b int) Attr {
	for _, x := range slices.Concat(certain, []Attr{Host, Model}) {
		va, vb := j.Things[a].Value(x).Value, j.Things[b].Value(x).Value
		if va != "" && vb != "" && va != vb && x != Process {
			return x
		}
	}
	return ""
}

// taken reports whether one of two things is one with another thing of the other's source: a source has one name for a thing.
func (j *joiner) taken(a, b int) bool {
	as, bs := j.members(j.group[a]), j.members(j.group[b])
	return slices.ContainsFunc(as, func(i int) bool {
		return slices.ContainsFunc(bs, func(k int) bool { return i != k && j.Things[i].Source == j.Things[k].Source })
	})
}

func (j *joiner) members(group int) (of []int) {
	for i, g := range j.group {
		if g == group {
			of = append(of, i)
		}
	}
	return of
}

func (j *joiner) link(a, b int, by Attr, sure bool) {
	sa, sb := j.Things[a].Value(by), j.Things[b].Value(by)
	j.Links = append(j.Links, Link{A: a, B: b, Attr: by, Value: sa.Value, Certain: sure, FromA: sa.From, FromB: sb.From, Disagree: j.contradict(a, b)})
	keep, gone := min(j.group[a], j.group[b]), max(j.group[a], j.group[b])
	for i, g := range j.group {
		if g == gone {
			j.group[i] = keep
		}
	}
}

// owners say which engine works on which device: by its pod or process, or likely by a name alone.
func (j *joiner) owners() {
	for d := range j.Things {
		if j.Things[d].Kind != Device {
			continue
		}
		for _, by := range []Attr{Pod, Process, PodName} {
			said := j.Things[d].Value(by)
			if said.Value == "" {
				continue
			}
			groups := map[int]int{} // group → the first of it
			for e := range j.Things {
				if j.Things[e].Kind == Engine && j.Things[e].Value(by).Value == said.Value {
					if _, ok := groups[j.group[e]]; !ok {
						groups[j.group[e]] = e
					}
				}
			}
			if len(groups) == 1 {
				for _, e := range groups {
					j.Links = append(j.Links, Link{A: e, B: d, Attr: by, Value: said.Value, Certain: by != PodName, FromA: j.Things[e].Value(by).From, FromB: said.From, WorksOn: true})
				}
				break
			}
		}
	}
}

// finish lists the groups, and what is in none.
func (j *joiner) finish() {
	members := map[int][]int{}
	owned := map[int]bool{} // devices with an engine, and engines with a device
	for i, g := range j.group {
		members[g] = append(members[g], i)
	}
	for _, l := range j.Links {
		if l.WorksOn {
			owned[l.A], owned[l.B] = true, true
		}
	}
	j.Groups, j.Loose = [][]int{}, []Loose{}
	for i := range j.Things {
		switch m := members[j.group[i]]; {
		case len(m) > 1 && m[0] == i:
			j.Groups = append(j.Groups, m)
		case len(m) == 1 && !owned[i] && len(j.Things) > 1:
			j.Loose = append(j.Loose, Loose{i, j.why(i)})
		}
	}
	slices.SortStableFunc(j.Links, func(a, b Link) int { return cmp.Or(cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B)) })
}

// why a thing is joined with nothing.
func (j *joiner) why(i int) string {
	var reasons []string
	for _, k := range j.ambiguous {
		if slices.Contains(k.things, i) {
			reasons = append(reasons, fmt.Sprintf("%s %s is that of %d things", k.attr, k.value, len(k.things)))
		}
	}
	if len(reasons) > 0 {
		return strings.Join(reasons, "; ")
	}
	if len(j.Things[i].Says) == 0 {
		return "it says nothing of itself that another source could know it by"
	}
	var says []string
	for _, s := range j.Things[i].Says {
		if j.Things[i].Kind != Device || s.Attr == UUID {
			says = append(says, fmt.Sprintf("%s %s", s.Attr, s.Value))
		}
	}
	why := "no other source has its " + strings.Join(says, ", ")
	if len(says) == 0 {
		why = "it has no identity of its own"
	}
	if j.Things[i].Kind == Device {
		for _, a := range []Attr{Pod, PodName, Process} {
			if v := j.Things[i].Value(a).Value; v != "" {
				return fmt.Sprintf("%s, and no engine was seen of its %s %s", why, a, v)
			}
		}
	}
	return why
}
