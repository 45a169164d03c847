package genai

import (
	"cmp"
	"slices"
	"strings"
)

// draft is a model call while it is put together: every span that is a view of it.
type draft struct {
	views    []int32  // views and engines, in no particular order
	lost     []int32  // those of attempts that failed before the last one
	head     int32    // the outermost
	few      [4]int32 // room for views
	attempts int
	sibling  bool // views were joined that are not nested: inferred
}

// drafts finds the calls of a trace. A call is one chain of nested views; a span above several calls is none itself, whatever it says of tokens.
func (t *trace) drafts() (calls []*draft, holders int) {
	live := make([][]*draft, len(t.spans)) // calls below a span that may still get views
	holding := make([]bool, len(t.spans))  // calls below are finished: what is above holds them
	var orphans map[SpanID][]*draft        // by the parent that is missing
	order := t.down()
	for k := len(order) - 1; k >= 0; k-- {
		i := order[k]
		switch r := t.role[i]; {
		case r == container:
			calls = append(calls, t.siblings(live[i])...)
			live[i], holding[i] = nil, true
		case r == view || r == engine:
			below := t.siblings(live[i])
			if len(below) > 1 {
				below = t.attempts(i, below)
			}
			switch {
			case holding[i] || len(below) > 1:
				calls = append(calls, below...)
				live[i], holding[i] = nil, true
				holders++
			case len(below) == 1:
				below[0].views = append(below[0].views, i)
				below[0].head = i
				live[i] = below
			case r == view && weak(t.spans[i]):
			default:
				d := &draft{head: i, attempts: 1}
				d.views = append(d.few[:0], i)
				live[i] = []*draft{d}
			}
		}
		if p := t.parent[i]; p >= 0 {
			if len(live[p]) < len(live[i]) {
				live[p], live[i] = live[i], live[p]
			}
			live[p] = append(live[p], live[i]...)
			holding[p] = holding[p] || holding[i]
		} else if t.missing[i] {
			if orphans == nil {
				orphans = map[SpanID][]*draft{}
			}
			orphans[t.spans[i].Parent] = append(orphans[t.spans[i].Parent], live[i]...)
		} else {
			calls = append(calls, t.siblings(live[i])...)
		}
		live[i] = nil
	}
	for _, list := range orphans {
		calls = append(calls, t.siblings(list)...)
	}
	slices.SortFunc(calls, func(a, b *draft) int {
		return cmp.Or(cmp.Compare(t.spans[a.head].Start, t.spans[b.head].Start), cmp.Compare(a.head, b.head))
	})
	return calls, holders
}

// weak reports a span that names a model and nothing else, inside a process: routers have many of them for one call.
func weak(s *Span) bool {
	const said = modelFields&^(1<<RequestModel|1<<ResponseModel|1<<MaxTokens) | 1<<Operation | 1<<SpanType | 1<<RequestID
	return s.Kind != Client && s.Kind != Server && !s.any(said)
}

// lookBack is how many calls are compared with the next one for being views of the same: enough for what runs side by side in one trace, and
// the work stays linear.
const lookBack = 16

// siblings joins calls beside each other that are views of one.
func (t *trace) siblings(list []*draft) []*draft {
	if len(list) < 2 {
		return list
	}
	slices.SortFunc(list, func(a, b *draft) int {
		x, y := t.spans[a.head], t.spans[b.head]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(y.End, x.End), cmp.Compare(a.head, b.head))
	})
	byID := map[string]*draft{}
	out := list[:0:0]
	for _, d := range list {
		var same *draft
		for _, id := range t.ids(d) {
			same = cmp.Or(same, byID[id])
		}
		for k := len(out) - 1; k >= max(0, len(out)-lookBack) && same == nil; k-- {
			if t.oneCall(out[k], d) {
				same = out[k]
			}
		}
		if same == nil {
			out = append(out, d)
			same = d
		} else if t.retried(same, d) {
			out[slices.Index(out, same)] = d
			same = d
		} else {
			t.join(same, d)
		}
		for _, id := range t.ids(d) {
			byID[id] = same
		}
	}
	return out
}

// retried makes of an earlier call that failed an attempt of a later one with the same id.
func (t *trace) retried(earlier, later *draft) bool {
	a, b := t.spans[earlier.head], t.spans[later.head]
	if a.Open() || b.Start < a.End || !failed(a) {
		return false
	}
	later.lost = append(append(earlier.lost, earlier.views...), later.lost...)
	later.attempts += earlier.attempts
	return true
}

func (t *trace) ids(d *draft) (ids []string) {
	for _, i := range d.views {
		for _, f := range []Field{RequestID, ResponseID} {
			if id := PlainID(t.spans[i].Text(f)); id != "" && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// PlainID is a request id without what engines put around it: vLLM makes chatcmpl-X and cmpl-X-0 of a client's X.
func PlainID(id string) string {
	if rest, ok := strings.CutPrefix(id, "chatcmpl-"); ok {
		return rest
	}
	if rest, ok := strings.CutPrefix(id, "cmpl-"); ok {
		if k := strings.LastIndexByte(rest, '-'); k > 0 && len(rest)-k <= 4 {
			rest = rest[:k]
		}
		return rest
	}
	return id
}

func (t *trace) join(to, from *draft) {
	to.views = append(to.views, from.views...)
	to.lost = append(to.lost, from.lost...)
	to.sibling = true
	to.attempts = max(to.attempts, from.attempts)
	if a, b := t.spans[to.head], t.spans[from.head]; !b.Open() && (a.Open() || b.End-b.Start > a.End-a.Start) {
		to.head = from.head
	}
}

// oneCall reports that two calls beside each other are the same, seen by two instrumentations: one lies within the other in time, they do not
// contradict each other, and either their token counts are equal or one is the engine's and both were made on the same host.
func (t *trace) oneCall(a, b *draft) bool {
	x, y := t.spans[a.head], t.spans[b.head]
	if x.Open() || y.Open() || y.Start < x.Start || y.End > x.End {
		return false
	}
	if *x.Scope == *y.Scope && *x.Resource == *y.Resource {
		return false // one instrumentation makes one span a call
	}
	if m, n := x.Text(RequestModel), y.Text(RequestModel); m != "" && n != "" && m != n {
		return false
	}
	in, inKnown := equal(x, y, InputTokens)
	out, outKnown := equal(x, y, OutputTokens)
	if inKnown && !in || outKnown && !out {
		return false
	}
	if inKnown && outKnown {
		return true
	}
	return (t.role[a.head] == engine) != (t.role[b.head] == engine) && sameHost(x.Resource, y.Resource)
}

func equal(a, b *Span, f Field) (equal, known bool) {
	x, ok := a.Number(f)
	y, too := b.Number(f)
	return x == y, ok && too
}

// sameHost reports that two spans come from one host, as far as is told: by its name, else by the service's.
func sameHost(a, b *Resource) bool {
	if a.Host != "" && b.Host != "" {
		return a.Host == b.Host
	}
	if a.Pod != "" && b.Pod != "" {
		return a.Pod == b.Pod
	}
	return a.Service == b.Service && a.Service != ""
}

// attempts joins several calls below one view where they are one request: each but the last failed before the next began, or the view counts the
// tokens of each of them and not of their sum.
func (t *trace) attempts(above int32, list []*draft) []*draft {
	retries := true
	for k, d := range list[:len(list)-1] {
		a, b := t.spans[d.head], t.spans[list[k+1].head]
		retries = retries && !a.Open() && b.Start >= a.End && failed(a)
	}
	if retries {
		for k, d := range list[:len(list)-1] {
			t.retried(d, list[k+1])
		}
		return list[len(list)-1:]
	}
	out, known := t.spans[above].Number(OutputTokens)
	for _, d := range list {
		n, ok := t.spans[d.head].Number(OutputTokens)
		known = known && ok && n == out && out > 0
	}
	if known {
		for _, d := range list[1:] {
			t.join(list[0], d)
		}
		return list[:1]
	}
	return list
}

func failed(s *Span) bool {
	code, _ := s.Number(HTTPStatus)
	return s.Status == Failed || s.Status == Cancelled || s.Has(ErrorType) || code >= 500 || code == 429 || abortReason(s.Text(FinishReason)) || s.Text(FinishReason) == "error"
}

func abortReason(reason string) bool {
	switch r := strings.ToLower(reason); r {
	case "abort", "aborted", "cancel", "cancelled", "canceled", "client_disconnect", "disconnect":
		return true
	}
	return false
}

// inner is the view that is nearest to the work: the engine's, the longest where there are several, else the deepest.
func (t *trace) inner(d *draft) int32 {
	best, depth := d.head, -1
	for _, i := range d.views {
		if t.role[i] == engine {
			if t.role[best] != engine || longer(t.spans[i], t.spans[best]) {
				best = i
			}
		} else if n := t.depth(i, d.head); t.role[best] != engine && n > depth && !t.after(i) {
			best, depth = i, n
		}
	}
	return best
}

// after reports a short span at the very end of its parent or behind it: bookkeeping about a call, not the call.
func (t *trace) after(i int32) bool {
	p := t.parent[i]
	if p < 0 || t.spans[i].Open() || t.spans[p].Open() {
		return false
	}
	s, above := t.spans[i], t.spans[p]
	whole := above.End - above.Start
	return s.Start-above.Start > whole/10*9 && (s.End-s.Start) < whole/10
}

func longer(a, b *Span) bool {
	x, _ := a.Duration()
	y, _ := b.Duration()
	return cmp.Or(cmp.Compare(y, x), cmp.Compare(a.Start, b.Start)) < 0
}

// depth is how far a span lies below another; it stops counting at 64, which is deeper than anybody wraps a call.
func (t *trace) depth(i, above int32) int {
	n := 0
	for ; i >= 0 && i != above && n < 64; i = t.parent[i] {
		n++
	}
	return n
}

// maxLayers is how many layers a call may have; nobody wraps one so often.
const maxLayers = 64

// path are the spans from the outermost view down to the innermost, and the web servers directly above that only pass the call on.
func (t *trace) path(d *draft, inner int32) []int32 {
	var up []int32
	inside := true
	for i := inner; i >= 0 && len(up) < maxLayers; i = t.parent[i] {
		if !inside && !(t.role[i] == web && modelRoute(t.spans[i].Name)) || t.role[i] == container {
			break
		}
		up = append(up, i)
		inside = inside && i != d.head
	}
	if inside { // the head is a sibling: only views count
		up = slices.DeleteFunc(up, func(i int32) bool { return !slices.Contains(d.views, i) && t.role[i] != web })
	}
	slices.Reverse(up)
	if d.sibling {
		up = t.enclosing(d, up, inner)
	}
	return up
}

// enclosing puts views that hang beside the way into it, by their length, where they are longer than the innermost one.
func (t *trace) enclosing(d *draft, way []int32, inner int32) []int32 {
	for _, i := range d.views {
		if len(way) >= maxLayers || t.role[i] == engine || slices.Contains(way, i) || t.nested(i, inner) || longerOrder(t.spans[i], t.spans[inner]) >= 0 {
			continue
		}
		at := slices.IndexFunc(way, func(w int32) bool { return longerOrder(t.spans[i], t.spans[w]) < 0 })
		way = slices.Insert(way, at, i)
	}
	return way
}

func modelRoute(name string) bool {
	for _, r := range []string{"/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/generate", ":generateContent", "Received Proxy Server Request"} {
		if strings.Contains(name, r) {
			return true
		}
	}
	return false
}

// beside are web server spans that hang beside the innermost span and enclose it in time on the same host: the way of the request led through
// them, their parent only says otherwise. One that another call has is not taken.
func (t *trace) beside(inner int32) int32 {
	s := t.spans[inner]
	var kin []int32
	if p := t.parent[inner]; p >= 0 {
		kin = t.kids(p)
	} else if t.missing[inner] {
		kin = t.byStart
	}
	at, _ := slices.BinarySearchFunc(kin, s.Start, func(i int32, start int64) int {
		if t.spans[i].Start <= start {
			return -1
		}
		return 1
	})
	for k := at - 1; k >= max(0, at-256); k-- {
		i := kin[k]
		w := t.spans[i]
		if i != inner && !t.used[i] && t.role[i] == web && w.Kind != Client && w.Parent == s.Parent && !w.Open() && w.End >= s.End && !s.Open() && sameHost(w.Resource, s.Resource) {
			t.used[i] = true
			return i
		}
	}
	return -1
}
