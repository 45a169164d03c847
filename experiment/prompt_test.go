package experiment

import (
	"slices"
	"strings"
	"testing"
)

func prompter(t testing.TB, o PromptOptions) *Prompter {
	t.Helper()
	p, err := NewPrompter(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPromptsShareWhatTheirHashesSay(t *testing.T) {
	p := prompter(t, PromptOptions{})
	shared := []PrefixRun{{Hash: 17, Tokens: 512}, {Hash: 18, Tokens: 100}}
	a := p.AppendTokens(nil, &Request{PromptTokens: 700, Prefix: shared}, "a")
	b := p.AppendTokens(nil, &Request{PromptTokens: 650, Prefix: shared}, "b")
	short := p.AppendTokens(nil, &Request{PromptTokens: 40, Prefix: []PrefixRun{{Hash: 17, Tokens: 30}}}, "c")
	other := p.AppendTokens(nil, &Request{PromptTokens: 700, Prefix: []PrefixRun{{Hash: 19, Tokens: 612}}}, "a")
	if len(a) != 700 || len(b) != 650 || len(short) != 40 || len(other) != 700 {
		t.Fatal("lengths", len(a), len(b), len(short), len(other))
	}
	if !slices.Equal(a[:612], b[:612]) || !slices.Equal(a[:30], short[:30]) {
		t.Error("equal hashes gave different tokens")
	}
	for what, pair := range map[string][2][]int32{
		"the ends of two requests": {a[612:644], b[612:644]},
		"a run and another hash":   {a[:16], other[:16]},
		"two runs of one prompt":   {a[:16], a[512:528]},
		"a prefix and its end":     {short[30:40], a[30:40]},
	} {
		if slices.Equal(pair[0], pair[1]) {
			t.Errorf("%s are equal", what)
		}
	}
	if !slices.Equal(a[612:], other[612:]) {
		t.Error("the end of a prompt depends on more than its key")
	}
	if again := p.AppendTokens(nil, &Request{PromptTokens: 700, Prefix: shared}, "a"); !slices.Equal(a, again) {
		t.Error("the same request gave another prompt")
	}
	cold := prompter(t, PromptOptions{Seed: 1}).AppendTokens(nil, &Request{PromptTokens: 700, Prefix: shared}, "a")
	if slices.Equal(a[:16], cold[:16]) || slices.Equal(a[612:628], cold[612:628]) {
		t.Error("another seed gave the same tokens")
	}
}

// The bytes of a prompt are a promise: a capture made last year is replayed with the same tokens.
func TestPromptsAreTheSameEverywhere(t *testing.T) {
	p := prompter(t, PromptOptions{})
	r := &Request{PromptTokens: 12, Prefix: []PrefixRun{{Hash: 1, Tokens: 6}}}
	if got, want := p.AppendTokens(nil, r, "cli-0"), []int32{131, 134, 186, 6, 123, 21, 166, 4, 197, 122, 107, 252}; !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v", got, want)
	}
	if got, want := string(p.AppendText(nil, r, "cli-0")), "ggtAeEoAwda."; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestPromptTokensStayInRange(t *testing.T) {
	for _, o := range []PromptOptions{{}, {Low: 0, High: 1}, {Low: 100, High: 151_000}} {
		p := prompter(t, o)
		if o == (PromptOptions{}) {
			o = PromptOptions{Low: 3, High: 258}
		}
		seen := make(map[int32]bool)
		for _, token := range p.AppendTokens(nil, &Request{PromptTokens: 4096}, "k") {
			if int(token) < o.Low || int(token) > o.High {
				t.Fatalf("token %d is outside %d to %d", token, o.Low, o.High)
			}
			seen[token] = true
		}
		if all := o.High - o.Low + 1; all <= 256 && len(seen) != all {
			t.Errorf("range %d to %d: only %d ids were used", o.Low, o.High, len(seen))
		}
	}
	for _, o := range []PromptOptions{{Low: 5, High: 5}, {Low: 9, High: 3}, {Low: -1, High: 3}, {Low: 3, High: 1 << 40}} {
		if _, err := NewPrompter(o); err == nil || !strings.Contains(err.Error(), "vocabulary") {
			t.Errorf("%+v: error %v", o, err)
		}
	}
}

func TestTextHasOneByteAToken(t *testing.T) {
	p := prompter(t, PromptOptions{})
	r := &Request{PromptTokens: 300, Prefix: []PrefixRun{{Hash: 5, Tokens: 200}}}
	a, b := p.AppendText(nil, r, "a"), p.AppendText(nil, r, "b")
	if len(a) != 300 || string(a[:200]) != string(b[:200]) || string(a[200:]) == string(b[200:]) {
		t.Errorf("a %d bytes, b %d bytes", len(a), len(b))
	}
	for _, c := range a {
		if !strings.ContainsRune(alphabet, rune(c)) {
			t.Fatalf("character %q is not of the alphabet", c)
		}
	}
}

func BenchmarkAppendTokens(b *testing.B) {
	p := prompter(b, PromptOptions{})
	r := &Request{PromptTokens: 4096, Prefix: []PrefixRun{{Hash: 5, Tokens: 2048}}}
	var dst []int32
	b.SetBytes(4096)
	for b.Loop() {
		dst = p.AppendTokens(dst[:0], r, "k")
	}
}
