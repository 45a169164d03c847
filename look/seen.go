package look

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/adapter/dialects"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/signals"
)

// ChangesOf are the changes that series tell between one look at a target and the next: its labels that should stay as they are, its start, its
// counters that begin anew, its first and its last sight. A change lies between two looks ([ledger.Change].After and At); both are 0 where the
// looks have an order and no time. The same tracks give the same changes, under the same ids.
func ChangesOf(tracks []*adapter.Track) []ledger.Change {
	w := seen{aspects: map[aspect][]sight{}, starts: map[string][]*adapter.Track{}, counters: map[string][]*adapter.Reading{}, adapters: map[string][]*adapter.Track{},
		driver: map[string]string{}, often: map[string]bool{}, first: map[string]int64{}, last: map[string]int64{}}
	for _, t := range tracks {
		w.take(t)
	}
	var all []ledger.Change
	for _, a := range slices.SortedFunc(maps.Keys(w.aspects), aspect.compare) {
		all = append(all, a.changes(w.aspects[a])...)
	}
	for _, target := range slices.Sorted(maps.Keys(w.first)) {
		all = append(all, w.restarts(target)...)
		all = append(all, newAdapters(target, w.adapters[target])...)
	}
	all = append(all, w.comings()...)
	inOrder(all)
	all = slices.CompactFunc(all, func(a, b ledger.Change) bool { return a.Key() == b.Key() }) // every GPU of a host tells of one driver
	for i := range all {
		all[i].ID = all[i].Key()
	}
	return all
}

func inOrder(all []ledger.Change) {
	slices.SortStableFunc(all, func(a, b ledger.Change) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.To, b.To))
	})
}

// seen is what was seen of targets, look by look.
type seen struct {
	aspects  map[aspect][]sight
	starts   map[string][]*adapter.Track   // process_start_time_seconds, by target
	counters map[string][]*adapter.Reading // of engines and gateways, by target
	adapters map[string][]*adapter.Track   // that tell which adapters are in use, by target
	driver   map[string]string             // of a target, the family by which its drivers are looked at: every family has the label
	often    map[string]bool               // targets that were looked at more than patience times
	first    map[string]int64              // of what is understood, by target
	last     map[string]int64
	looks    []int64 // of the target that was looked at most often
}

// aspect is a set of labels of a target that should stay as it is.
type aspect struct{ target, family, of string }

func (a aspect) compare(b aspect) int {
	return cmp.Or(cmp.Compare(a.target, b.target), cmp.Compare(a.family, b.family), cmp.Compare(a.of, b.of))
}

// sight is how an aspect was at one look.
type sight struct {
	look   look
	labels exposition.Labels
}

// look is one look at a target: its time, or where that is not known which one it was.
type look struct {
	at int64
	n  int32
}

func (l look) compare(m look) int { return cmp.Or(cmp.Compare(l.at, m.at), cmp.Compare(l.n, m.n)) }

func lookOf(t *adapter.Track, i int) look {
	if at := t.Points[i].At; at != 0 || i >= len(t.Order) {
		return look{at: at}
	}
	return look{n: t.Order[i]}
}

func (w *seen) take(t *adapter.Track) {
	if len(t.Points) == 0 {
		return
	}
	owner := dialects.Of(t.Family)
	switch {
	case t.Family == processStart:
		w.starts[t.Target] = append(w.starts[t.Target], t)
		return
	case strings.HasSuffix(t.Family, "lora_requests_info"):
		w.adapters[t.Target] = append(w.adapters[t.Target], t)
	case strings.HasSuffix(t.Family, "_info"):
		w.watch(t, t.Family, t.Labels)
	}
	if owner == nil {
		return
	}
	w.spans(t)
	if driver := chosen(t.Labels, isDriver); len(driver) > 0 && cmp.Or(w.driver[t.Target], t.Family) == t.Family {
		w.driver[t.Target] = t.Family
		w.watch(t, "", append(driver, t.Labels.Of(identities...)...))
	}
	for _, m := range signals.Named(owner.Producer, t.Family) {
		switch {
		case m.Signal.Name == "request.running":
			who := adapter.Who{Producer: owner.Producer, Target: t.Target}
			if owner.Who != nil {
				owner.Who(t, &who)
			}
			if who.Model != "" {
				w.watch(t, "request.running", exposition.Labels{{Name: "engine", Value: who.Rank}, {Name: "served_model", Value: who.Model}})
			}
		case m.Signal.Kind == signals.Counter && m.Signal.Scope != signals.OfDevice && !t.Rate:
			w.counters[t.Target] = append(w.counters[t.Target], &adapter.Reading{Track: *t, Signal: m.Signal, Native: m.Native})
		default:
			continue
		}
		return
	}
}

// identities are labels that say which of several a series is about, not how it is.
var identities = []string{"UUID", "device", "dp_rank", "engine", "gpu", "gpu_id", "rank", "tp_rank"}

// plumbing are labels that whoever scrapes puts on, or that say where something runs.
var plumbing = []string{"cluster", "container", "endpoint", "exported_container", "exported_namespace", "exported_pod", "host", "hostname", "Hostname", "instance", "job", "namespace", "node", "pid", "pod",
	"pod_template_hash", "prometheus", "prometheus_replica", "replica", "service"}

func isDriver(name string) bool {
	return strings.HasSuffix(name, "DRIVER_VERSION") || strings.HasSuffix(name, "driver_version")
}

func chosen(ls exposition.Labels, want func(string) bool) exposition.Labels {
	return slices.DeleteFunc(slices.Clone(ls), func(l exposition.Label) bool { return !want(l.Name) })
}

func (w *seen) watch(t *adapter.Track, family string, labels exposition.Labels) {
	a := aspect{t.Target, family, labels.Of(identities...).Key()}
	compared := labels.Without(append(slices.Clone(identities), plumbing...)...)
	for i := range t.Points {
		w.aspects[a] = append(w.aspects[a], sight{lookOf(t, i), compared})
	}
}

func (w *seen) spans(t *adapter.Track) {
	first, last := t.Points[0].At, t.Points[len(t.Points)-1].At
	if _, ok := w.first[t.Target]; !ok {
		w.first[t.Target] = first
	}
	if first == 0 || len(t.Points) <= patience {
		return // seen too seldom to say when it came and when it went
	}
	w.often[t.Target] = true
	if old, ok := w.first[t.Target]; !ok || first < old {
		w.first[t.Target] = first
	}
	w.last[t.Target] = max(w.last[t.Target], last)
	if len(t.Points) > len(w.looks) {
		w.looks = w.looks[:0]
		for _, p := range t.Points {
			w.looks = append(w.looks, p.At)
		}
	}
}

// changes are the differences of an aspect from one look to the next: where one set of labels has taken the place of one other.
func (a aspect) changes(sights []sight) (out []ledger.Change) {
	slices.SortStableFunc(sights, func(x, y sight) int { return x.look.compare(y.look) })
	var before []sight // at the look before
	for i := 0; i < len(sights); {
		n := i + 1
		for n < len(sights) && sights[n].look == sights[i].look {
			n++
		}
		now := sights[i:n]
		if from, to, ok := replaced(before, now); ok {
			out = append(out, a.differences(from, to)...)
		}
		before, i = now, n
	}
	return out
}

// replaced is the one set that has gone, or goes (a Prometheus shows a series for minutes after its last sample), and the one that has come.
func replaced(before, now []sight) (from, to sight, ok bool) {
	fresh := slices.DeleteFunc(slices.Clone(now), func(s sight) bool {
		return slices.ContainsFunc(before, func(b sight) bool { return slices.Equal(b.labels, s.labels) })
	})
	if len(before) != 1 || len(fresh) != 1 {
		return from, to, false
	}
	return before[0], fresh[0], true
}

func (a aspect) differences(from, to sight) (out []ledger.Change) {
	names := map[string]bool{}
	for _, l := range slices.Concat(from.labels, to.labels) {
		names[l.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, is := from.labels.Get(name), to.labels.Get(name)
		if was == is {
			continue
		}
		kind := kindOfLabel(name)
		subject := name
		if name == "version" {
			subject = a.family
		}
		c := ledger.Change{Kind: kind, Engine: a.target, Subject: subject, From: was, To: is, Source: cmp.Or(a.family, "labels of its series"), Text: worded(subject, was, is)}
		setBetween(&c, from.look, to.look)
		out = append(out, c)
	}
	return out
}

func worded(subject, was, is string) string {
	subject, was, is = exposition.Printable(subject, 80), exposition.Printable(was, 120), exposition.Printable(is, 120)
	switch "" {
	case was:
		return fmt.Sprintf("%s is %s, was not told", subject, is)
	case is:
		return fmt.Sprintf("%s is not told any more, was %s", subject, was)
	}
	return fmt.Sprintf("%s is %s, was %s", subject, is, was)
}

// labelKinds tell from a label's name what kind of change a difference in it is; the first that fits.
var labelKinds = []struct {
	kind  ledger.ChangeKind
	words []string
}{
	{ledger.ChangePrompt, []string{"prompt", "chat_template"}},
	{ledger.ChangeRetrieval, []string{"retrieval", "index_version", "index_name", "collection"}},
	{ledger.ChangeAdapter, []string{"lora", "adapter"}},
	{ledger.ChangeWeights, []string{"quantization", "weight", "revision", "model_version", "model_dtype", "checkpoint"}},
	{ledger.ChangeVersion, []string{"version"}},
	{ledger.ChangeModel, []string{"model_name", "served_model", "model_path", "model_id", "base_model"}},
}

func kindOfLabel(name string) ledger.ChangeKind {
	lower := strings.ToLower(name)
	if lower == "model" {
		return ledger.ChangeModel
	}
	if lower == "dtype" {
		return ledger.ChangeWeights
	}
	for _, k := range labelKinds {
		if slices.ContainsFunc(k.words, func(w string) bool { return strings.Contains(lower, w) }) {
			return k.kind
		}
	}
	return ledger.ChangeSetting
}

// restarts are a target's: by the time at which its process says that it began; where that is not told, by its counters, which begin anew.
func (w *seen) restarts(target string) (out []ledger.Change) {
	restart := func(before, now look, text, source string) {
		c := ledger.Change{Kind: ledger.ChangeRestart, Engine: target, Subject: target, Source: source, Text: text}
		setBetween(&c, before, now)
		out = append(out, c)
	}
	for _, t := range w.starts[target] {
		for i := 1; i < len(t.Points); i++ {
			was, is := t.Points[i-1].Value, t.Points[i].Value
			if math.Abs(is-was) < 2 { // it is reckoned from the machine's start, and wavers
				continue
			}
			restart(lookOf(t, i-1), lookOf(t, i), fmt.Sprintf("restarted: its process began at %s", time.Unix(int64(is), 0).UTC().Format(time.TimeOnly)), processStart)
			if c := &out[len(out)-1]; int64(is*1e9) > c.After && int64(is*1e9) <= c.At {
				c.At = int64(is * 1e9)
			}
		}
	}
	if len(w.starts[target]) > 0 {
		return out
	}
	falls := map[look]look{} // the look at which a counter had fallen: the one before
	names := map[look]string{}
	for _, c := range w.counters[target] {
		spans, _ := c.Spans()
		for k, s := range spans {
			if k > 0 && s.First.Value < spans[k-1].Last.Value {
				now, before := lookOf(&c.Track, s.From), lookOf(&c.Track, spans[k-1].To)
				if old, ok := falls[now]; !ok || before.compare(old) > 0 {
					falls[now], names[now] = before, c.Family
				}
			}
		}
	}
	for _, now := range slices.SortedFunc(maps.Keys(falls), look.compare) {
		restart(falls[now], now, "restarted: its counters begin anew", names[now])
	}
	return out
}

// newAdapters are the adapters that a target used for the first time while it was watched.
func newAdapters(target string, tracks []*adapter.Track) (out []ledger.Change) {
	type use struct {
		look
		names []string
	}
	var uses []use
	for _, t := range tracks {
		var names []string
		for _, label := range []string{"running_lora_adapters", "waiting_lora_adapters"} {
			names = append(names, strings.FieldsFunc(t.Labels.Get(label), func(r rune) bool { return r == ',' || r == ' ' })...)
		}
		for i := range t.Points {
			uses = append(uses, use{lookOf(t, i), names})
		}
	}
	slices.SortStableFunc(uses, func(a, b use) int { return a.compare(b.look) })
	known := map[string]bool{}
	for i, u := range uses {
		for _, name := range u.names {
			if !known[name] && u.look != uses[0].look && len(out) < mostAdapters {
				c := ledger.Change{Kind: ledger.ChangeAdapter, Engine: target, Subject: name, To: name, Source: tracks[0].Family, Text: fmt.Sprintf("adapter %s is in use for the first time", exposition.Printable(name, 80))}
				setBetween(&c, uses[i-1].look, u.look)
				out = append(out, c)
			}
			known[name] = true
		}
	}
	return out
}

// mostAdapters bounds what is told of a target with a stream of them.
const mostAdapters = 20

// patience is so many looks that a target may be missing.
const patience = 3

// comings are targets that were not there at first, or not at last, while others were.
func (w *seen) comings() (out []ledger.Change) {
	if len(w.looks) < 5 || w.looks[0] == 0 || len(w.often) < 2 {
		return nil
	}
	step := (w.looks[len(w.looks)-1] - w.looks[0]) / int64(len(w.looks)-1)
	begin, end := int64(math.MaxInt64), int64(0)
	for target := range w.often {
		begin, end = min(begin, w.first[target]), max(end, w.last[target])
	}
	for _, target := range slices.Sorted(maps.Keys(w.often)) {
		c := ledger.Change{Kind: ledger.ChangeDeployment, Engine: target, Subject: target, Source: "its series"}
		if first := w.first[target]; first > begin+patience*step {
			c.After, c.At, c.To, c.Text = first-step, first, target, "speaks for the first time"
			out = append(out, c)
		}
		if last := w.last[target]; last < end-patience*step {
			c.After, c.At, c.From, c.To, c.Text = last, last+step, target, "", "is not seen any more"
			out = append(out, c)
		}
	}
	return out
}

func setBetween(c *ledger.Change, before, now look) { c.After, c.At = before.at, now.at }
