package identity

import (
	"fmt"
	"strings"
)

// Alias says that two things are one. Each is a name, or SOURCE:NAME where several sources have the name.
type Alias struct{ A, B string }

func (a Alias) String() string { return a.A + " = " + a.B }

// ParseAlias reads "NAME = NAME".
func ParseAlias(s string) (a Alias, err error) {
	left, right, ok := strings.Cut(s, " = ")
	a = Alias{strings.TrimSpace(left), strings.TrimSpace(right)}
	if !ok || a.A == "" || a.B == "" || strings.Contains(right, " = ") {
		return a, fmt.Errorf("%q is no alias: write NAME = NAME, with names as 'whylate signals join' prints them", s)
	}
	if a.A == a.B {
		return a, fmt.Errorf("%q says that a thing is itself", s)
	}
	return a, nil
}

// told joins two things that somebody has said to be one, whatever they say of themselves.
func (j *joiner) told(a Alias) {
	as, bs := j.called(a.A), j.called(a.B)
	of := func(name string, n int) {
		j.Notes = append(j.Notes, fmt.Sprintf("alias %s: %d things are called %s", a, n, name))
	}
	switch {
	case len(as) != 1:
		of(a.A, len(as))
	case len(bs) != 1:
		of(a.B, len(bs))
	case j.Things[as[0]].Kind != j.Things[bs[0]].Kind:
		j.Notes = append(j.Notes, fmt.Sprintf("alias %s: one is of the kind %s, the other of the kind %s", a, j.Things[as[0]].Kind, j.Things[bs[0]].Kind))
	case j.group[as[0]] != j.group[bs[0]]:
		j.link(as[0], bs[0], Told, true)
		l := &j.Links[len(j.Links)-1]
		l.Value, l.FromA, l.FromB = a.String(), "alias", "alias"
	}
}

// called are the things of a name.
func (j *joiner) called(name string) (found []int) {
	for i, t := range j.Things {
		if name == t.Name || name == t.Source+":"+t.Name {
			found = append(found, i)
		}
	}
	return found
}
