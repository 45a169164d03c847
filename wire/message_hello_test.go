package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseHelloRefuses(t *testing.T) {
	tests := []struct {
		name, object string
		want         error
		says         string
	}{
		{"newer major", `{"protocol":[2,3],"depth":"in a form that only 2.x knows"}`, ErrNewerMajor,
			"this hello is format 2.3: the format is newer than this whylate; this whylate reads up to 1.x; upgrade whylate"},
		{"no JSON", `nothing`, ErrValue, "hello: body: invalid character"},
		{"nothing", ``, ErrValue, "hello: body: unexpected end"},
		{"another type", `{"protocol":[1,0],"engine":{"rank":"zero"}}`, ErrValue, "hello: engine.rank: a string where int belongs"},
		{"negative pid", `{"protocol":[1,0],"pid":-1}`, ErrValue, "hello: pid: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseHello([]byte(tt.object))
			if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("got %v, want %v that says %q", err, tt.want, tt.says)
			}
			body := append([]byte(tt.object), "  "...)
			if err := Decode(Frame{Type: TypeHello, Sequence: 1, Body: body}, new(Hello)); !errors.Is(err, tt.want) {
				t.Errorf("decoded: got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHelloKeepsLargeSettings(t *testing.T) {
	h, err := ParseHello([]byte(`{"protocol":[1,7],"new in 1.7":{},"settings":{"seed":9223372036854775807}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := h.Settings["seed"], json.Number("9223372036854775807"); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestHelloIsPaddedWithSpaces(t *testing.T) {
	for n := range 9 {
		f := mustParse(t, mustAppend(t, 1, &Hello{Protocol: [2]uint16{1, 0}, Host: strings.Repeat("<", n)}))
		if text := string(f.Body); !json.Valid(f.Body) || strings.Contains(text, "\x00") || !strings.Contains(text, strings.Repeat("<", n)) {
			t.Errorf("%d: %q is no JSON text", n, text)
		}
	}
}
