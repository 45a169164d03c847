package look

import (
	"cmp"
	"slices"
	"strings"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/identity"
)

// Join says which engines, gateways and devices of a scene's sources are one, by what, and where that is only likely.
func Join(s *Scene, told ...identity.Alias) *identity.Joined {
	return identity.Join(Things(s), told...)
}

// Things are the engines, gateways and devices that a scene's sources speak of.
func Things(s *Scene) []identity.Thing {
	things := slices.Concat(s.scraped(), s.gpuThings())
	if s.Traces != nil {
		things = append(things, Callers(s.Traces.Calls)...)
	}
	return things
}

// scraped are the engines and gateways whose metrics were read, each with all its ranks.
func (s *Scene) scraped() (things []identity.Thing) {
	at := map[string]int{}
	for _, r := range s.Readings {
		w := r.Who
		if w.Device != "" {
			continue
		}
		name := adapter.Title(w.Producer) + " at " + cmp.Or(w.Target, "an unnamed target")
		i, ok := at[name]
		if !ok {
			i = len(things)
			at[name] = i
			kind := identity.Engine
			if dialects.IsGateway(w) {
				kind = identity.Gateway
			}
			things = append(things, identity.Thing{Kind: kind, Source: "metrics", Name: name, Target: w.Target})
		}
		says := (*identity.Says)(&things[i].Says)
		place(says, r.Labels)
		local := s.local(&r.Track)
		says.Address(w.Target, local, "target")
		if local != "" {
			says.Host(local, "read over the loopback")
		}
		says.Add(identity.Model, w.Model, modelLabel(r.Labels))
	}
	return things
}

// local is the host over whose loopback a series was read, "" where it was not, or that is not known.
func (s *Scene) local(t *adapter.Track) string {
	if s.Host != "" && s.Came != nil && identity.Loopback(t.Target) && slices.Equal(s.Came(t), []string{"scrape"}) {
		return s.Host
	}
	return ""
}

// place takes from the labels of a series where whoever it is about runs.
func place(says *identity.Says, ls exposition.Labels) {
	for _, from := range []string{"exported_pod", "pod", "pod_name", "kubernetes_pod_name", "k8s_pod_name"} {
		pod := ls.Get(from)
		if pod == "" {
			continue
		}
		namespace := cmp.Or(ls.Get(strings.Replace(from, "pod", "namespace", 1)), ls.Get("namespace"), ls.Get("kubernetes_namespace"), ls.Get("pod_namespace"))
		says.Pod(namespace, pod, "label "+from)
		break
	}
	for _, from := range []string{"node", "nodename", "kubernetes_node", "k8s_node_name", "host", "hostname", "Hostname"} {
		if host := ls.Get(from); host != "" {
			says.Add(identity.Host, identity.Short(host), "label "+from)
			break
		}
	}
	says.Address(ls.Get("instance"), "", "label instance")
}

func modelLabel(ls exposition.Labels) string {
	for _, name := range []string{"model_name", "model", "served_model_name", "target_model_name"} {
		if ls.Get(name) != "" {
			return "label " + name
		}
	}
	return "metrics"
}

// gpuThings are the devices of which metrics were read, as each target calls them.
func (s *Scene) gpuThings() (things []identity.Thing) {
	at := map[string]int{}
	for _, r := range s.Readings {
		w := r.Who
		if w.Device == "" {
			continue
		}
		name := w.String() + " at " + cmp.Or(w.Target, "an unnamed target")
		i, ok := at[name]
		if !ok {
			i = len(things)
			at[name] = i
			things = append(things, identity.Thing{Kind: identity.Device, Source: "metrics of " + adapter.Title(w.Producer) + " at " + cmp.Or(w.Target, "an unnamed target"), Name: name})
		}
		says := (*identity.Says)(&things[i].Says)
		if dcgm.Identified(w) {
			says.Add(identity.UUID, w.Device, "label UUID")
		}
		if ns, pod, ok := strings.Cut(w.Workload, "/"); ok {
			says.Pod(ns, pod, "labels of the workload")
		} else {
			says.Pod("", w.Workload, "labels of the workload")
		}
	}
	return things
}

// Callers are whoever made the spans that calls passed.
func Callers(calls []*genai.Call) (things []identity.Thing) {
	at := map[genai.Resource]int{}
	for _, c := range calls {
		for _, l := range c.Layers {
			r := *l.Span.Resource
			i, ok := at[r]
			if !ok {
				i = len(things)
				at[r] = i
				things = append(things, identity.Thing{Kind: identity.Gateway, Source: "traces", Name: resourceName(&r)})
				says := (*identity.Says)(&things[i].Says)
				says.Add(identity.Instance, r.Instance, "service.instance.id")
				says.Process(r.Host, r.Process, "host.name and process.pid")
				says.Pod(r.Namespace, r.Pod, "k8s.pod.name")
				says.Host(r.Host, "host.name")
			}
			if l.Span.Engine() {
				things[i].Kind = identity.Engine
				(*identity.Says)(&things[i].Says).Add(identity.Model, cmp.Or(c.Served, c.Requested), "gen_ai model")
			}
		}
	}
	return things
}

func resourceName(r *genai.Resource) string {
	name := cmp.Or(r.Service, "an unnamed service")
	for _, more := range []string{r.Pod, r.Host, r.Instance, r.Process} {
		if more != "" {
			return name + " " + more
		}
	}
	return name
}
