package identity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/identity"
)

type says = func(*identity.Says)

func thing(kind identity.Kind, source, name string, what ...says) identity.Thing {
	var s identity.Says
	for _, w := range what {
		w(&s)
	}
	return identity.Thing{Kind: kind, Source: source, Name: name, Says: s}
}

func pod(ns, name string) says { return func(s *identity.Says) { s.Pod(ns, name, "pod") } }
func host(name string) says    { return func(s *identity.Says) { s.Host(name, "host") } }
func address(a string) says    { return func(s *identity.Says) { s.Address(a, "", "instance") } }
func model(m string) says      { return func(s *identity.Says) { s.Add(identity.Model, m, "model_name") } }
func attr(a identity.Attr, v string) says {
	return func(s *identity.Says) { s.Add(a, v, string(a)) }
}

// told writes what was joined: a group a line, with the links that made it, then what is loose.
func told(j *identity.Joined) string {
	name := func(i int) string { return j.Things[i].Source + ":" + j.Things[i].Name }
	var lines []string
	for _, l := range j.Links {
		how, verb := "certain", "is"
		if !l.Certain {
			how = "likely"
		}
		if l.WorksOn {
			verb = "works on"
		}
		line := fmt.Sprintf("%s %s %s, %s by %s %s", name(l.A), verb, name(l.B), how, l.Attr, l.Value)
		if l.Disagree != "" {
			line += fmt.Sprintf(", but not of one %s", l.Disagree)
		}
		lines = append(lines, line)
	}
	for _, l := range j.Loose {
		lines = append(lines, name(l.Thing)+" alone: "+l.Why)
	}
	return strings.Join(lines, "\n")
}

func TestJoin(t *testing.T) {
	const e, d = identity.Engine, identity.Device
	for name, c := range map[string]struct {
		things []identity.Thing
		want   string
	}{
		"a pod names one engine": {
			[]identity.Thing{thing(e, "scrape", "10.0.0.3:8000", address("10.0.0.3:8000"), pod("prod", "llama-0")), thing(e, "otlp", "vllm", pod("prod", "llama-0"), host("llama-0"))},
			"otlp:vllm is scrape:10.0.0.3:8000, certain by pod prod/llama-0"},
		"a container is called like its pod": {
			[]identity.Thing{thing(e, "probe", "prod/llama-0", host("llama-0"), attr(identity.Incarnation, "5f0c")), thing(e, "scrape", "a", pod("prod", "llama-0"))},
			"probe:prod/llama-0 is scrape:a, likely by pod name llama-0"},
		"a host of two engines is nobody's name": {
			[]identity.Thing{thing(e, "probe", "x", host("gpu-7.example.com")), thing(e, "scrape", "a:1", address("a:1"), host("gpu-7")), thing(e, "scrape", "a:2", address("a:2"), host("gpu-7"))},
			"probe:x alone: pod name gpu-7 is that of 3 things; host gpu-7 is that of 3 things\n" +
				"scrape:a:1 alone: pod name gpu-7 is that of 3 things; host gpu-7 is that of 3 things\n" +
				"scrape:a:2 alone: pod name gpu-7 is that of 3 things; host gpu-7 is that of 3 things"},
		"one model on each side is likely, two are not": {
			[]identity.Thing{thing(e, "probe", "x", model("llama")), thing(e, "scrape", "a", model("llama")), thing(e, "probe", "y", model("qwen")), thing(e, "scrape", "b", model("qwen")), thing(e, "scrape", "c", model("qwen"))},
			"probe:x is scrape:a, likely by model llama\n" +
				"probe:y alone: model qwen is that of 3 things\nscrape:b alone: model qwen is that of 3 things\nscrape:c alone: model qwen is that of 3 things"},
		"the same model elsewhere is another engine": {
			[]identity.Thing{thing(e, "probe", "x", host("h1"), model("llama")), thing(e, "scrape", "a", host("h2"), model("llama"))},
			"probe:x alone: no other source has its host h1, pod name h1, model llama\nscrape:a alone: no other source has its host h2, pod name h2, model llama"},
		"they are one and disagree": {
			[]identity.Thing{thing(e, "probe", "x", attr(identity.Incarnation, "5f"), model("llama")), thing(e, "otlp", "y", attr(identity.Incarnation, "5f"), model("qwen"))},
			"otlp:y is probe:x, certain by incarnation 5f, but not of one model"},
		"loopback is no address": {
			[]identity.Thing{thing(e, "probe", "x", address("127.0.0.1:8000")), thing(e, "scrape", "a", address("http://localhost:8000/metrics"))},
			"probe:x alone: it says nothing of itself that another source could know it by\nscrape:a alone: it says nothing of itself that another source could know it by"},
		"a GPU is one under two names, and an engine's by pod": {
			[]identity.Thing{thing(d, "scrape", "GPU 0 of h", attr(identity.UUID, "GPU-1"), pod("prod", "llama-0")), thing(d, "gpu", "0", attr(identity.UUID, "GPU-1")), thing(e, "scrape", "a", pod("prod", "llama-0"))},
			"gpu:0 is scrape:GPU 0 of h, certain by uuid GPU-1\nscrape:a works on scrape:GPU 0 of h, certain by pod prod/llama-0"},
		"GPUs of one pod are not one": {
			[]identity.Thing{thing(d, "scrape", "0", attr(identity.UUID, "GPU-1"), pod("p", "a")), thing(d, "gpu", "1", attr(identity.UUID, "GPU-2"), pod("p", "a"))},
			"gpu:1 alone: no other source has its uuid GPU-2, and no engine was seen of its pod p/a\nscrape:0 alone: no other source has its uuid GPU-1, and no engine was seen of its pod p/a"},
		"a source has one name for a thing": {
			[]identity.Thing{thing(e, "probe", "x", pod("p", "a")), thing(e, "scrape", "a", pod("p", "a"), model("m")), thing(e, "scrape", "b", host("b")), thing(e, "otlp", "z", model("m"), host("b"))},
			"otlp:z is scrape:b, likely by pod name b\nprobe:x is scrape:a, certain by pod p/a"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := told(identity.Join(c.things)); got != c.want {
				t.Errorf("joined\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// A thousand engines of two sources with eight GPUs each are joined in the time that somebody waits for an answer.
func BenchmarkJoin(b *testing.B) {
	var things []identity.Thing
	for i := range 1000 {
		h := host(fmt.Sprintf("gpu-%d", i))
		things = append(things, thing(identity.Engine, "probe", fmt.Sprint("p", i), h), thing(identity.Engine, "metrics", fmt.Sprint("m", i), h, pod("p", fmt.Sprint("e", i)), model("llama")))
		for k := range 8 {
			things = append(things, thing(identity.Device, "dcgm", fmt.Sprint("d", i, k), attr(identity.UUID, fmt.Sprint("GPU-", i, "-", k)), pod("p", fmt.Sprint("e", i))))
		}
	}
	for b.Loop() {
		if j := identity.Join(things); len(j.Groups) != 1000 || len(j.Links) != 9000 {
			b.Fatal(len(j.Groups), len(j.Links))
		}
	}
}

// What somebody tells joins for certain, even what contradicts itself; what names nothing is said.
func TestAliases(t *testing.T) {
	const e = identity.Engine
	things := []identity.Thing{thing(e, "probe", "chat/0", host("h1")), thing(e, "metrics", "vLLM at a:1", host("h2")), thing(e, "traces", "chat/0", host("h3")), thing(identity.Device, "metrics", "GPU 0")}
	var told []identity.Alias
	for _, s := range []string{"probe:chat/0 = vLLM at a:1", "chat/0 = vLLM at a:1", "nobody = vLLM at a:1", "vLLM at a:1 = GPU 0"} {
		a, err := identity.ParseAlias(s)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, a)
	}
	j := identity.Join(things, told...)
	if len(j.Groups) != 1 || len(j.Links) != 1 || j.Links[0].Attr != identity.Told || !j.Links[0].Certain || j.Links[0].Disagree != identity.Host || j.Links[0].Value != "probe:chat/0 = vLLM at a:1" {
		t.Errorf("%+v", j)
	}
	if want := []string{"alias chat/0 = vLLM at a:1: 2 things are called chat/0", "alias nobody = vLLM at a:1: 0 things are called nobody",
		"alias vLLM at a:1 = GPU 0: one is of the kind engine, the other of the kind device"}; !slices.Equal(j.Notes, want) {
		t.Errorf("%q", j.Notes)
	}
	for _, s := range []string{"", "a", "a = ", " = b", "a = b = c", "a = a"} {
		if _, err := identity.ParseAlias(s); err == nil {
			t.Errorf("%q is taken", s)
		}
	}
}

// Whatever the order and whatever they say: nothing is in two groups, what is certain joins all who have it, and no two things of a source
// become one by what is only likely.
func TestJoinKeepsItsRules(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var things []identity.Thing
		for i := range 1 + r.IntN(8) {
			var what []says
			for _, a := range []identity.Attr{identity.Incarnation, identity.Address, identity.Pod, identity.PodName, identity.Host, identity.Model} {
				if r.IntN(3) == 0 {
					what = append(what, attr(a, fmt.Sprint(r.IntN(3))))
				}
			}
			things = append(things, thing([]identity.Kind{identity.Engine, identity.Gateway}[r.IntN(2)], []string{"probe", "scrape", "otlp"}[r.IntN(3)], fmt.Sprint(i), what...))
		}
		j := identity.Join(things)
		in := map[int]int{}
		for g, members := range j.Groups {
			for _, i := range members {
				if _, twice := in[i]; twice {
					t.Fatalf("thing %d is in two groups: %+v", i, j)
				}
				in[i] = g
			}
		}
		for _, l := range j.Links {
			if in[l.A] != in[l.B] || j.Things[l.A].Kind != j.Things[l.B].Kind {
				t.Fatalf("a link outside a group: %+v", l)
			}
			if !l.Certain && j.Things[l.A].Source == j.Things[l.B].Source {
				t.Fatalf("one source's things are one by %s", l.Attr)
			}
		}
		r.Shuffle(len(things), func(a, b int) { things[a], things[b] = things[b], things[a] })
		if again := identity.Join(things); told(again) != told(j) || !slices.EqualFunc(again.Groups, j.Groups, slices.Equal) {
			t.Fatalf("another order, another answer:\n%s\n%s", told(j), told(again))
		}
	}
}
