package config

import (
	"reflect"
	"strings"
	"testing"
)

// Every field of Config belongs to exactly one key, and every key's own words can be read.
func TestKeysCoverConfig(t *testing.T) {
	c := &Config{}
	owner := map[any]string{}
	names, envs := map[string]bool{}, map[string]bool{}
	flags := map[Role]map[string]bool{Server: {}, Agents: {}}
	for i := range keys {
		k := &keys[i]
		f := k.field(c)
		if other := owner[f]; other != "" {
			t.Errorf("%s and %s have the same field", other, k.Name)
		}
		owner[f] = k.Name
		if names[k.Name] || envs[k.Env()] {
			t.Errorf("%s or %s stands twice", k.Name, k.Env())
		}
		names[k.Name], envs[k.Env()] = true, true
		for role, seen := range flags {
			if k.For&role == 0 {
				continue
			}
			if seen[k.Flag(role)] {
				t.Errorf("--%s stands twice", k.Flag(role))
			}
			seen[k.Flag(role)] = true
		}
		if k.For == 0 || !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s: no role, or a meaning that is no sentence", k.Name)
		}
		for _, bound := range []string{k.Least, k.Most} {
			if bound != "" {
				k.bound(bound)
			}
		}
		if strings.HasPrefix(k.Name, "agent.") != (k.For == Agents) {
			t.Errorf("%s: agent keys are those of the agent alone", k.Name)
		}
	}
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Struct:
				walk(v.Field(i), path+f.Name+".")
			case owner[v.Field(i).Addr().Interface()] == "":
				t.Errorf("the field %s%s belongs to no key", path, f.Name)
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
}

func TestFlagNames(t *testing.T) {
	k := find("agent.tls.name")
	if got := k.Flag(Agents); got != "tls-name" {
		t.Errorf("flag of the agent is %q", got)
	}
	if got := find("rings.dir").Env(); got != "WHYLATE_RING_DIR" {
		t.Errorf("rings.dir is %q: the probe reads WHYLATE_RING_DIR", got)
	}
	if got := find("store.wal.segment_bytes").Env(); got != "WHYLATE_STORE_WAL_SEGMENT_BYTES" {
		t.Errorf("variable %q", got)
	}
}
