package config

import (
	"slices"
	"strings"
	"testing"
)

func TestAliases(t *testing.T) {
	c, err := Load(input("identity:\n  aliases:\n    - chat/0 = vLLM at 10.0.0.3:8000 # ours\n    - 'traces:gw = LiteLLM at gw:4000'\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"chat/0 = vLLM at 10.0.0.3:8000", "traces:gw = LiteLLM at gw:4000"}
	if !slices.Equal(c.Identity.Aliases, want) {
		t.Errorf("%q", c.Identity.Aliases)
	}
	e, err := c.Explain("identity.aliases")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load(input("identity: {aliases: " + e.Value + "}"))
	if err != nil || !slices.Equal(again.Identity.Aliases, want) {
		t.Errorf("%s: %v", e.Value, err)
	}
	if c, err := Load(input("")); err != nil || len(c.Identity.Aliases) != 0 {
		t.Errorf("%v %v", c, err)
	}
	for in, text := range map[string]string{"identity: {aliases: [a]}": "is no alias", "identity: {aliases: a}": "is no list", "identity: {aliases: [{a: b}]}": "is no list", "identity: {aliases: [a = a]}": "is itself"} {
		if _, err := Load(input(in)); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", in, err)
		}
	}
}
