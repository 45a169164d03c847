package ledger

import (
	"encoding/json"
	"testing"
)

func TestLabelsAreTheirDigits(t *testing.T) {
	in := Labels{Tenant: 0xa1, Route: 1 << 63}
	b, err := json.Marshal(in)
	if want := `{"tenant":"00000000000000a1","route":"8000000000000000"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
	var out Labels
	if err := json.Unmarshal(b, &out); err != nil || out != in {
		t.Errorf("%+v came back as %+v, %v", in, out, err)
	}
	if err := json.Unmarshal([]byte(`{"tenant":"acme"}`), &out); err == nil {
		t.Error("a name is taken for a label")
	}
	for digits, is := range map[string]bool{"": false, "0000000": false, "00000000": true, "00000000000000a1": true, "00000000000000a2": false} {
		if in.Tenant.Is(digits) != is {
			t.Errorf("%q: %v", digits, !is)
		}
		if Label(0).Is(digits) {
			t.Errorf("%q is no label at all", digits)
		}
	}
	for digits, ok := range map[string]bool{"8000000": false, "80000000": true, "8000000000000000": true, "80000000000000000": false, "8000000G": false, "8000000A": false} {
		if err := CheckLabelDigits(digits); (err == nil) != ok {
			t.Errorf("%q: %v", digits, err)
		}
	}
}
