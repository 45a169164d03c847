package ledger

import (
	"encoding"
	"strings"
	"testing"
)

// enum is a pointer to an enumeration that goes to text and back.
type enum[T any] interface {
	*T
	encoding.TextUnmarshaler
}

// roundTrip takes every number of T to text and back; last is the greatest that has a meaning, and all says that numbers above
// it keep theirs.
func roundTrip[T interface {
	~uint8
	encoding.TextMarshaler
}, P enum[T]](t *testing.T, last int, all bool) {
	t.Helper()
	for n := 0; n < 256; n++ {
		if n > last && !all {
			break
		}
		text, err := T(n).MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var back T
		if err := P(&back).UnmarshalText(text); err != nil || back != T(n) {
			t.Errorf("%T(%d) is %q, which reads as %d, %v", back, n, text, back, err)
		}
	}
	var v T
	for _, wrong := range []string{"", "no such name", "other(x)", "other(3)", "unknown(999)", "other(", "other(17))", strings.Repeat("x", 1000)} {
		if err := P(&v).UnmarshalText([]byte(wrong)); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Errorf("%T reads %q as %d, %v; it must be refused", v, wrong, v, err)
		}
	}
}

func TestEnumsRoundTripAsText(t *testing.T) {
	roundTrip[SkipReason](t, 15, true)
	roundTrip[FinishReason](t, 5, true)
	roundTrip[Outcome](t, 4, true)
	roundTrip[Phase](t, 3, false)
	roundTrip[End](t, 3, false)
	roundTrip[GraphMode](t, 3, true)
}
