package logline

import (
	"cmp"
	"slices"
)

// message is what one or several physical lines carried.
type message struct {
	Mark
	text []byte
	at   stamp // of the innermost wrapper that tells a time
}

// unwrapper takes the wrappers off, and joins what they cut. Its zero value is ready.
type unwrapper struct {
	parts map[string]*message // messages whose end is to come, by their stream
}

// maxWraps is how deep wrappers are taken off: a service's JSON inside a runtime's JSON inside kubectl's prefix.
const maxWraps = 4

// maxParts is how many messages may wait for their end at once.
const maxParts = 64

// take is the message that a physical line ends, if it ends one.
func (u *unwrapper) take(raw []byte, line int, skipped int64) (message, bool) {
	m := message{Mark: Mark{First: line, Last: line, Skipped: skipped}, text: plain(raw)}
	for range maxWraps {
		inner, ok := unwrap(m.text)
		if !ok {
			break
		}
		m.into(inner)
		if inner.stream == "" {
			continue
		}
		if key := m.Tags.Get("from") + "\xff" + inner.stream; inner.more || u.parts[key] != nil {
			return u.join(m, key, inner.more)
		}
	}
	return m, true
}

// into goes one layer into a message.
func (m *message) into(w wrapper) {
	m.text, m.Tags = w.text, m.Tags.and(w.tags)
	m.Level, m.Source = cmp.Or(w.level, m.Level), cmp.Or(w.source, m.Source)
	if w.at.date != NoTime {
		m.at = w.at
	}
}

// and are these tags and, inside them, more.
func (ts Tags) and(more Tags) Tags {
	switch {
	case len(ts) == 0:
		return more
	case len(more) == 0:
		return ts
	}
	return slices.Concat(ts, more)
}

func (u *unwrapper) join(m message, key string, more bool) (message, bool) {
	begun := u.parts[key]
	if begun == nil {
		if len(u.parts) >= maxParts {
			m.Cut = true
			return m, true
		}
		m.text = slices.Clone(m.text)
		if u.parts == nil {
			u.parts = map[string]*message{}
		}
		u.parts[key] = &m
		return message{}, false
	}
	room := min(len(m.text), max(0, MaxLine-len(begun.text)))
	begun.text = append(begun.text, m.text[:room]...)
	begun.Skipped += m.Skipped + int64(len(m.text)-room)
	begun.Last = m.Last
	if more {
		return message{}, false
	}
	delete(u.parts, key)
	if inner, ok := structured(begun.text); ok { // what was cut may be wrapped itself
		begun.into(inner)
	}
	return *begun, true
}

// rest gives what still waited for its end, and whether it was taken.
func (u *unwrapper) rest(give func(message) bool) bool {
	waiting := make([]*message, 0, len(u.parts))
	for _, m := range u.parts {
		waiting = append(waiting, m)
	}
	slices.SortFunc(waiting, func(a, b *message) int { return cmp.Compare(a.First, b.First) })
	for _, m := range waiting {
		m.Cut = true
		if !give(*m) {
			return false
		}
	}
	return true
}
