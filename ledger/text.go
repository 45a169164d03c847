package ledger

import (
	"fmt"
	"strconv"
	"strings"
)

// The enumerations travel as their names (MarshalText), and here is the way back: a client that reads an answer gets the very
// values that the server had. A name that this version does not know is refused, since it comes from a newer one.

// UnmarshalText reads what MarshalText wrote.
func (r *SkipReason) UnmarshalText(b []byte) error {
	return numberOf(r, b, "skip reason", "other", skipNames[:])
}

// UnmarshalText reads what MarshalText wrote.
func (r *FinishReason) UnmarshalText(b []byte) error {
	return numberOf(r, b, "finish reason", "unknown", finishNames[:])
}

// UnmarshalText reads what MarshalText wrote.
func (o *Outcome) UnmarshalText(b []byte) error {
	return numberOf(o, b, "outcome", "unknown", outcomeNames[:])
}

// UnmarshalText reads what MarshalText wrote.
func (p *Phase) UnmarshalText(b []byte) error {
	return numberOf(p, b, "phase", "", []string{Phase(0).String(), Prefill.String(), Decode.String(), Recompute.String()})
}

// UnmarshalText reads what MarshalText wrote.
func (e *End) UnmarshalText(b []byte) error {
	return numberOf(e, b, "end", "", []string{EndUnknown.String(), EndComplete.String(), EndDisconnect.String(), EndError.String()})
}

// UnmarshalText reads what MarshalText wrote.
func (g *GraphMode) UnmarshalText(b []byte) error {
	return numberOf(g, b, "graph mode", "unknown", graphNames[:])
}

// numberOf finds the number that a name stands for: its place among names, or the number in "other(17)" where the kind writes
// unnamed numbers so.
func numberOf[T ~uint8](to *T, text []byte, kind, unnamed string, names []string) error {
	s := string(text)
	for i, n := range names {
		if s == n {
			*to = T(i)
			return nil
		}
	}
	if inner, ok := strings.CutPrefix(s, unnamed+"("); ok && unnamed != "" {
		if digits, ok := strings.CutSuffix(inner, ")"); ok {
			if n, err := strconv.ParseUint(digits, 10, 8); err == nil && int(n) >= len(names) {
				*to = T(n)
				return nil
			}
		}
	}
	return fmt.Errorf("%s %q is not known to this version, which knows %s: the answer comes from a newer one; update this program",
		kind, s, strings.Join(names, ", "))
}
