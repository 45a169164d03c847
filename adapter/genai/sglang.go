package genai

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
)

// SGLang's trace has three layers: the request, a thread span for each process that had it, and slices, the stages, under the threads. A thread
// only holds its slices. Every tensor-parallel rank does the same work at the same time, so the stages of one rank are the request's.

// stageParts says where a slice's time belongs. The names are not declared stable by SGLang; one that is not here is shown by its name.
var stageParts = map[string]account.Part{
	"tokenize": account.Frontend, "api_server_dispatch": account.Frontend, "dpc_dispatch": account.Frontend, "request_process": account.Frontend,
	"prefill_waiting": account.Queue, "decode_waiting": account.Queue, "prefill_prepare": account.Queue, "decode_prepare": account.Queue,
	"prefill_forward": account.Prefill, "chunked_prefill": account.Prefill, "mm_encode": account.Prefill,
	"prefill_bootstrap": account.Transfer, "prefill_transfer_kv_cache": account.Transfer, "decode_bootstrap": account.Transfer, "decode_transferred": account.Transfer,
	"mooncake_send": account.Transfer, "mooncake_recv": account.Transfer, "mooncake_worker_send": account.Transfer, "mooncake_worker_recv": account.Transfer,
	"decode_forward": account.Decode, "decode_loop": account.Decode, "spec_draft": account.Decode, "spec_verify": account.Decode,
	"quick_finish": account.Stream,
}

// stageWords are what people call the stages that matter most.
var stageWords = map[string]string{"prefill_waiting": "waiting", "prefill_forward": "prefill", "chunked_prefill": "prefill", "decode_forward": "decode", "decode_loop": "decode"}

// maxLines is how many lines unknown stages may make.
const maxLines = 24

type processThread struct {
	span               int32
	label              string
	pp, tp             int64
	slices             []int32
	scheduler, several bool // of several tokenizers
}

func (t *trace) threads(engineSpan int32) (out []processThread) {
	stack := []int32{engineSpan}
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, k := range t.kids(i) {
			if t.role[k] != thread {
				continue
			}
			stack = append(stack, k)
			s := t.spans[k]
			th := processThread{span: k, label: cmp.Or(s.Text(ThreadLabel), labelIn(s.Name)), pp: rank(s, PPRank, "[PP "), tp: rank(s, TPRank, "[TP ")}
			th.scheduler, th.several = strings.EqualFold(th.label, "scheduler"), strings.HasPrefix(th.label, "MultiTokenizer")
			for _, j := range t.kids(k) {
				if t.role[j] == slice {
					th.slices = append(th.slices, j)
				}
			}
			out = append(out, th)
		}
	}
	slices.SortFunc(out, func(a, b processThread) int {
		return cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(a.pp, b.pp), cmp.Compare(a.tp, b.tp), cmp.Compare(a.span, b.span))
	})
	return out
}

func labelIn(name string) string {
	name, _, _ = strings.Cut(name, "(")
	name, _, _ = strings.Cut(name, "[")
	return strings.TrimSpace(name)
}

func rank(s *Span, f Field, mark string) int64 {
	if n, ok := s.Number(f); ok {
		return n
	}
	if _, rest, ok := strings.Cut(s.Name, mark); ok {
		n, _, _ := strings.Cut(rest, "]")
		k, _ := strconv.ParseInt(strings.TrimSpace(n), 10, 32)
		return k
	}
	return 0
}

// ranksOnce leaves one thread of each kind: that of the lowest rank which has slices.
func ranksOnce(all []processThread) (kept []processThread) {
	for _, th := range all {
		k := len(kept) - 1
		switch {
		case k < 0 || kept[k].label != th.label:
			kept = append(kept, th)
		case len(kept[k].slices) == 0:
			kept[k] = th
		}
	}
	return kept
}

// stages fills the parts from the slices; false where the engine's span has no threads.
func (t *trace) stages(c *Call, inner int32, took int64) bool {
	all := t.threads(inner)
	if len(all) == 0 {
		return false
	}
	kept := ranksOnce(all)
	c.ranks(t, all, kept)
	var parts []int32
	scheduled, several := false, false
	for _, th := range kept {
		parts = append(parts, th.slices...)
		scheduled = scheduled || th.scheduler && len(th.slices) > 0
		several = several || th.several
	}
	slices.SortFunc(parts, func(a, b int32) int {
		x, y := t.spans[a], t.spans[b]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(y.End, x.End), cmp.Compare(a, b))
	})
	root := t.spans[inner]
	cursor, end := root.Start, root.Start+took
	seen := map[account.Part]bool{}
	for _, i := range parts {
		s := t.spans[i]
		if s.Open() {
			c.note("stage %s has no usable end; its time is in what nobody accounts for", s.Name)
			continue
		}
		from, to := max(s.Start, cursor), min(s.End, end)
		if to <= from {
			continue // within another one, as chunks and loops are
		}
		part, ok := stageParts[s.Name]
		if !ok {
			part = account.Unexplained
		}
		c.gap(from-cursor, scheduled, seen, cursor == root.Start)
		name := cmp.Or(stageWords[s.Name], s.Name)
		if !ok && len(c.Lines) > maxLines {
			name = "other stages"
		}
		c.add(part, name, to-from, Measured)
		seen[part] = true
		cursor = to
	}
	tail := end - cursor
	switch {
	case !scheduled:
		c.add(account.Unexplained, "scheduler telemetry missing", tail, Unknown)
		c.Gap = Gap{NS: tail, Why: "scheduler telemetry missing"}
		c.note("scheduler telemetry missing: nothing of the last %s is in the trace%s; it is no stage of the tokenizer and no network", millis(tail), unless(several, " (known with more than one tokenizer worker)"))
	case seen[account.Decode]:
		c.add(account.Stream, "after decode", tail, Measured)
	default:
		c.add(account.Unexplained, "after the last stage", tail, Unknown)
	}
	return true
}

func unless(say bool, text string) string {
	if say {
		return text
	}
	return ""
}

// gap is time between stages: before the scheduler it is the front end's, later nobody's.
func (c *Call) gap(ns int64, scheduled bool, seen map[account.Part]bool, first bool) {
	switch {
	case scheduled && !seen[account.Queue] && !seen[account.Prefill] && !seen[account.Decode]:
		c.add(account.Frontend, "other before the scheduler", ns, Measured)
	case first:
		c.add(account.Unexplained, "before the first stage", ns, Unknown)
	default:
		c.add(account.Unexplained, "between stages", ns, Unknown)
	}
}

// add is line, but a stage that came before grows.
func (c *Call) add(p account.Part, name string, ns int64, s Standing) {
	for k := range c.Lines {
		if l := &c.Lines[k]; l.Part == p && l.Name == name {
			l.NS += ns
			return
		}
	}
	c.line(p, name, ns, s)
}

// ranks says how many ranks showed the same stages, and where one of them took visibly longer.
func (c *Call) ranks(t *trace, all, kept []processThread) {
	times := func(th processThread) map[string]int64 {
		m := map[string]int64{}
		for _, i := range th.slices {
			if d, ok := t.spans[i].Duration(); ok {
				m[t.spans[i].Name] += d
			}
		}
		return m
	}
	var of map[string]int64
	n, slow := 0, ""
	for _, th := range all {
		if !th.scheduler || len(th.slices) == 0 {
			continue
		}
		n++
		if n == 1 {
			of = times(th)
			continue
		}
		mine := times(th)
		for _, name := range []string{"prefill_waiting", "prefill_forward", "decode_forward"} {
			if a, b := of[name], mine[name]; a > 0 && b > a+a/10+int64(time.Millisecond) && slow == "" {
				slow = fmt.Sprintf("; rank TP %d PP %d took %s for %s, the shown one %s", th.tp, th.pp, millis(b), name, millis(a))
			}
		}
	}
	if n > 1 {
		c.note("%d ranks show the same stages; those of one are shown, they are not added up%s", n, slow)
	}
}

// Batch is one forward pass of an engine, rebuilt from the requests that say they were in it (SGLang, trace level 3).
type Batch struct {
	Engine string // host and process
	BID    string
	Mode   string // prefill, decode, prebuilt
	Size   int64  // requests in it, by its own word
	Seen   int    // requests of this view that were in it
	At     int64  // Unix ns
}

// Coverage is the share of the batch's requests that are in this view.
func (b Batch) Coverage() float64 {
	if b.Size <= 0 {
		return 0
	}
	return min(float64(b.Seen)/float64(b.Size), 1)
}

type batchKey struct{ engine, bid string }

// batches adds the forward passes that a call was in, once for all its ranks.
func (t *trace) batches(c *Call, engines []int32, into map[batchKey]*Batch) {
	for _, e := range engines {
		for _, th := range ranksOnce(t.threads(e)) {
			s := t.spans[th.span]
			pid, _ := s.Number(PID)
			engineID := fmt.Sprintf("%s pid %d", cmp.Or(s.Text(HostID), s.Resource.Host, s.Resource.Service), pid)
			mine := map[string]bool{}
			for _, i := range append([]int32{th.span}, th.slices...) {
				for _, ev := range t.spans[i].Events {
					switch {
					case ev.Name == "retract":
						c.Retracted++
					case ev.Name == "schedule" && ev.BID != "" && !mine[ev.BID]:
						mine[ev.BID] = true
						k := batchKey{engineID, ev.BID}
						b := into[k]
						if b == nil {
							b = &Batch{Engine: engineID, BID: ev.BID, Mode: ev.Mode, Size: ev.Size, At: ev.At}
							into[k] = b
						}
						b.Size, b.Seen = max(b.Size, ev.Size), b.Seen+1
						b.At = min(b.At, ev.At)
						b.Mode = max(b.Mode, ev.Mode)
					}
				}
			}
		}
	}
}
