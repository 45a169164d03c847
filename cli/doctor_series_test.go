package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/look"
)

// observing is a server that says what it was given.
type observing struct {
	api.Service
	signals    *api.SignalList
	identities *api.Identities
	targets    *api.TargetList
}

var errForbidden = errors.New("a token of no role may not do this")

func (o *observing) Signals(context.Context) (*api.SignalList, error) {
	if o.signals == nil {
		return nil, errForbidden
	}
	return o.signals, nil
}

func (o *observing) Identities(context.Context) (*api.Identities, error) { return o.identities, nil }
func (o *observing) Targets(context.Context) (*api.TargetList, error)    { return o.targets, nil }

// Each thing that is to be mended has the line to change; what cannot be looked at is said so.
func TestDoctorOfArriving(t *testing.T) {
	engine := func(source, name, target string, says ...identity.Said) identity.Thing {
		return identity.Thing{Kind: identity.Engine, Source: source, Name: name, Target: target, Says: says}
	}
	host := func(h string) identity.Said {
		return identity.Said{Attr: identity.Host, Value: h, From: "host"}
	}
	down := api.Target{Job: "j", URL: "http://a:1/metrics", Health: api.TargetDown, Error: "nobody answers there", Remedy: "is it running?"}
	for name, c := range map[string]struct {
		svc  api.Service
		want string
	}{
		"no server":    {&struct{ api.Service }{}, "ok    series: could not be looked at: only a server takes in series ('whylate serve')\n"},
		"not allowed":  {&observing{}, "ok    series: could not be looked at: a token of no role may not do this\n"},
		"nothing read": {&observing{signals: &api.SignalList{Inventory: look.Inventory{Arrives: []look.Arrival{{}}}}, identities: &api.Identities{}, targets: &api.TargetList{}}, "ok    scraping: no metrics page is read; series come by other ways\nok    series: 1 signals arrive, none is in doubt\n"},
		"all down": {&observing{signals: &api.SignalList{}, identities: &api.Identities{Joined: *identity.Join([]identity.Thing{engine("probe", "chat/0", "")})}, targets: &api.TargetList{Targets: []api.Target{down}}},
			"WRONG scraping: none of 1 targets can be read; http://a:1/metrics: nobody answers there\n      change: is it running?\nok    series: 0 signals arrive, none is in doubt\n" +
				"WRONG identity: engine chat/0 has no series that could be joined with it\n      change: add its /metrics to scrape.jobs\n"},
		"strangers": {&observing{signals: &api.SignalList{Inventory: look.Inventory{Facts: []look.Fact{{ID: "contradiction", Text: "they differ\x1b[2J", Do: "look"}, {ID: "gpu-xid", Text: "an error"}}}, Refused: []api.RefusedSeries{{Count: 3}}},
			identities: &api.Identities{Clocks: []api.ClockShift{{Clock: "host b", From: "host a", Low: 10e6, High: 20e6, Pairs: 2}},
				Joined: *identity.Join([]identity.Thing{engine("probe", "chat/0", "", host("h1")), engine("probe", "chat/1", "", host("h2")), engine("metrics", "vLLM at a:1", "a:1", host("h2")), engine("metrics", "vLLM at b:1", "b:1"), engine("traces", "vllm x", "")})},
			targets: &api.TargetList{Targets: []api.Target{{Health: api.TargetUp}, down}}}, `ok    scraping: 1 of 2 targets are read
WRONG series: they differ�[2J
      change: look
ok    series: 3 samples were not let in as they were; 'whylate signals' says whose and why
ok    series: 1 more facts about what arrives: 'whylate look'
WRONG identity: engine chat/0 has no series that could be joined with it
      change: if they are one, identity.aliases: ['chat/0 = vLLM at b:1']; else add its /metrics to scrape.jobs
WRONG identity: vLLM at b:1 has no engine that the probe tells of
      change: if they are one, identity.aliases: ['chat/0 = vLLM at b:1']; else put the probe into it (docs/probe.md), or give it a WHYLATE_REPLICA that its labels name
WRONG identity: spans of engine vllm x match nothing else that is known
      change: give its spans host.name, k8s.pod.name or service.instance.id (OTEL_RESOURCE_ATTRIBUTES) as the engine's other sources have them, or identity.aliases
ok    identity: 1 joins are only likely; 'whylate signals join' shows them, identity.aliases makes them certain
WRONG clocks: the clock of host b is 10.0 ms to 20.0 ms behind that of host a (no answer before its question: 2 pairs of spans)
      change: let one time service keep both hosts' clocks (chrony); until then times of calls are corrected by this
`},
	} {
		t.Run(name, func(t *testing.T) {
			var d doctor
			d.arriving(t.Context(), c.svc)
			var b bytes.Buffer
			(&env{out: &b}).printDoctor(d.found)
			if b.String() != c.want {
				t.Errorf("doctor says\n%s\nwant\n%s", b.String(), c.want)
			}
		})
	}
}
