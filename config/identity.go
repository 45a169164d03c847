package config

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/whylate/whylate/identity"
)

// Identity says which things of several sources are one, where they do not say it themselves.
type Identity struct {
	Aliases []string // each as [identity.ParseAlias] reads it
}

var identityKeys = []Key{
	{Name: "identity.aliases", kind: aliases, For: Server, field: func(c *Config) any { return &c.Identity.Aliases },
		Doc: "Which things are one, a list of `NAME = NAME` with names as `whylate signals join` prints them, such as `[chat/0 = vLLM at 10.0.0.3:8000]`. `SOURCE:NAME` where several sources have the name. They join for certain, and are shown as told."},
}

// aliases is a list of equations.
var aliases = kind{name: "aliases", allowed: "a list of NAME = NAME", list: true,
	format: func(v any) string {
		if len(v.([]string)) == 0 {
			return ""
		}
		n := yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range v.([]string) {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s})
		}
		return oneLine(&n)
	},
	parse: func(s string, _ place) (any, error) { return parseAliases(s) }}

func parseAliases(s string) (any, error) {
	var out []string
	if s == "" {
		return out, nil
	}
	var list []string
	if err := yaml.Unmarshal([]byte(s), &list); err != nil {
		return nil, errors.New("is no list of NAME = NAME")
	}
	for _, text := range list {
		a, err := identity.ParseAlias(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		out = append(out, a.String())
	}
	return out, nil
}
