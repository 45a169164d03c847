package ledger

import (
	"fmt"
	"strconv"
	"strings"
)

// Labels are keyed hashes of whose a request is and what kind of one.
type Labels struct {
	Tenant Label `json:"tenant,omitzero"`
	Class  Label `json:"class,omitzero"`
	Route  Label `json:"route,omitzero"`
}

// Label is a keyed hash, in answers its 16 hexadecimal digits: equal means equal, and only who has the key can say more. 0 means not said.
type Label uint64

// LabelDigits is how many digits of a label a list shows, and how many a question must give at least.
const LabelDigits = 8

// String is the label's digits, "" where it is not said.
func (l Label) String() string {
	if l == 0 {
		return ""
	}
	return fmt.Sprintf("%016x", uint64(l))
}

// Short is as much of the label as a list shows.
func (l Label) Short() string {
	s := l.String()
	return s[:min(len(s), LabelDigits)]
}

// Is reports whether the label begins with the digits of a question.
func (l Label) Is(digits string) bool { return l != 0 && LabelIs(l.String(), digits) }

// LabelIs is [Label.Is] of a label's text.
func LabelIs(text, digits string) bool {
	return len(digits) >= LabelDigits && strings.HasPrefix(text, digits)
}

// CheckLabelDigits refuses digits that no label can begin with.
func CheckLabelDigits(digits string) error {
	if n := len(digits); n < LabelDigits || n > 16 || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("give %d to 16 of a label's hexadecimal digits, as lists and explanations show them", LabelDigits)
	}
	return nil
}

// MarshalText writes the digits.
func (l Label) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (l *Label) UnmarshalText(b []byte) error {
	*l = 0
	if len(b) == 0 {
		return nil
	}
	n, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("label %q: want 16 hexadecimal digits", b)
	}
	*l = Label(n)
	return nil
}
