package look

import "github.com/whylate/whylate/signals"

// successor is the name by which a producer sends a signal today.
func successor(from []signals.Native, producer string) string {
	name := ""
	for _, n := range from {
		if n.Producer == producer && n.Until == "" {
			name = n.Name
		}
	}
	return name
}

// renamed reports whether a producer has sent a signal under another name.
func renamed(from []signals.Native, producer string) bool {
	for _, n := range from {
		if n.Producer == producer && n.Until != "" {
			return true
		}
	}
	return false
}

// nameOf is the name by which a producer sends a signal, with the labels it must have.
func nameOf(signal, producer string) string {
	s := signals.Lookup(signal)
	for _, n := range s.From {
		if n.Producer == producer && n.Until == "" {
			name := n.Name
			for k, v := range n.Where {
				name += "{" + k + "=\"" + v + "\"}"
			}
			return name
		}
	}
	return s.Name
}
