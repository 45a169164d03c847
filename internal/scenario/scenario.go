// Package scenario is the test language: a page of text that reads like an inference engineer's sketch, turned into the very
// frames that a probe would write. A line is a time (or a span, for an iteration), a verb and its arguments:
//
//	engine vllm depth=1 max_num_seqs=2 num_gpu_blocks=10
//	0ms      http r1 trace=00-…-01           the front end received r1
//	1ms      submit r1 prompt=32             … handed it to the engine (n children: submit r1/0, r1/1)
//	2ms      arrive r1                       … it reached the engine process
//	3ms      queue r1 prompt=32 logprobs=5   … the scheduler took it up
//	3..8ms   iter r1:32                      r1 was given 32 tokens
//	8..61ms  iter r1 r2:256 stop=kv head=r3 need=5 free=2 running=2 waiting=1 preempt=r4 by=r1 hold=r1:4,r2:3 end=r1:length
//	61ms     abort r2
//	62ms     first r1
//	63ms     last r1 end=disconnect
//	0..70ms  client r1 first=62ms class=short
//	0ms      labels r1 tenant=a1 class=b2 route=c3     hexadecimal digits of keyed hashes
//	70..75ms iter r1:4 r2 draft=r1:3:1 evict=r2:5,-:1  three of r1's tokens are drafts and one of them was right; six blocks
//	                                         were evicted before it, five last used by r2, one by nobody who is known
//	70..74ms step 9 rank=1 device=2ms wait=1ms padded=8 graph=full eager=1 peak=1024      a rank executed iteration 9
//	70ms x60 8ms iter r1                     sixty iterations of 8 ms each, one after the other
//
// A member without a number is in decode (one token). Lines starting with # are comments.
package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// Epoch is the Unix time at which a scenario's clock stands at 0; its monotonic clock then reads Boot.
const (
	Epoch int64 = 1_800_000_000_000_000_000
	Boot  int64 = 1_000_000_000_000
)

// Run is a scenario turned into frames: sources as a real engine has.
type Run struct {
	Engine, Front, Client *Source
	Input                 *Source
	Worker                *Source // nil if no rank says anything
}

// Source is one source's frames in order.
type Source struct {
	Name   string
	Hello  wire.Hello
	Frames [][]byte
	seq    uint64
}

func (s *Source) add(m wire.Message) error {
	s.seq++
	b, err := wire.Append(nil, s.seq, m)
	s.Frames = append(s.Frames, b)
	return err
}

// HelloJSON is the hello as a carrier holds it.
func (s *Source) HelloJSON() json.RawMessage {
	b, err := json.Marshal(s.Hello)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return b
}

// Parse turns the text of a scenario into frames.
func Parse(text string) (*Run, error) {
	p := &parser{recorder: newRecorder(), names: map[string]*request{}}
	p.run = &Run{}
	p.run.Front, p.run.Input, p.run.Engine, p.run.Client = newSource("frontend", "main"), newSource("engine", "input"), newSource("engine", "scheduler"), newSource("client", "main")
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := p.line(strings.Fields(line)); err != nil {
			return nil, fmt.Errorf("scenario line %d: %w", n+1, err)
		}
	}
	return p.run, nil
}

// newSource is a source of a role's thread that has said hello and nothing else.
func newSource(role, thread string) *Source {
	return &Source{Name: role + "-" + thread, Hello: wire.Hello{Protocol: [2]uint16{1, 0}, Producer: wire.Producer{Name: "scenario", Version: "1"},
		Engine: wire.Engine{Name: "vllm", Version: "0.32.0", Deployment: "test", Replica: "test", Incarnation: "0123456789abcdef"},
		Role:   role, Thread: thread, Boot: "boot", Host: "host", Depth: 1, Clock: [3]int64{Boot, Epoch, Boot}, Settings: map[string]any{}}}
}

// Sources lists all sources.
func (r *Run) Sources() []*Source {
	all := []*Source{r.Front, r.Input, r.Engine, r.Client}
	if r.Worker != nil {
		all = append(all, r.Worker)
	}
	return all
}

// Assemble feeds the frames to a new assembler, source by source, without those that drop returns true for; drop may be nil.
func (r *Run) Assemble(drop func(wire.Frame) bool) (*ingest.Assembler, error) {
	a := ingest.New()
	for _, s := range r.Sources() {
		if len(s.Frames) == 0 {
			continue
		}
		id, err := a.Source(wire.Source{Name: s.Name, Hello: s.HelloJSON()})
		if err != nil {
			return nil, err
		}
		for _, b := range s.Frames {
			f, _, err := wire.ParseFrame(b)
			if err != nil {
				return nil, err
			}
			if drop == nil || !drop(f) {
				a.Frame(id, f)
			}
		}
	}
	return a, nil
}

// Capture is the scenario as a capture file.
func (r *Run) Capture() ([]byte, error) {
	var b bytes.Buffer
	w, err := wire.NewCaptureWriter(&b)
	if err != nil {
		return nil, err
	}
	for _, s := range r.Sources() {
		id, err := w.Source(wire.Source{Name: s.Name, Hello: s.HelloJSON()})
		if err != nil {
			return nil, err
		}
		for _, raw := range s.Frames {
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				return nil, err
			}
			if err := w.Frame(id, f); err != nil {
				return nil, err
			}
		}
	}
	err = w.Close()
	return b.Bytes(), err
}

// Book is the book of the whole scenario.
func (r *Run) Book() (*ledger.Book, error) {
	a, err := r.Assemble(nil)
	if err != nil {
		return nil, err
	}
	return a.Book(), nil
}

type parser struct {
	run      *Run
	names    map[string]*request
	handles  uint32
	http     uint32
	recorder *recorder
}

// request is a name of the scenario: an HTTP request, a sequence, or both.
type request struct {
	name   string
	http   uint32
	handle uint32
	prompt uint32
	before uint32 // computed
	output uint32
}

func (p *parser) get(name string) *request {
	r := p.names[name]
	if r == nil {
		p.handles++
		r = &request{name: name, handle: p.handles}
		p.names[name] = r
	}
	return r
}

// base is the name of the HTTP request that a sequence belongs to: "r1/2" is the third child of r1.
func base(name string) (string, uint32, bool) {
	parent, index, child := strings.Cut(name, "/")
	n, _ := strconv.Atoi(index)
	return parent, uint32(n), child
}

func internal(name string) string {
	return "cmpl-" + strings.ReplaceAll(name, "/", "-") + "-0-deadbeef"
}

type options map[string]string

func (o options) num(key string, otherwise int64) (int64, error) {
	s, ok := o[key]
	if !ok {
		return otherwise, nil
	}
	return strconv.ParseInt(s, 10, 64)
}

func (o options) u32(key string) uint32 {
	n, _ := o.num(key, 0)
	return uint32(n)
}

func (p *parser) line(words []string) error {
	if words[0] == "engine" {
		return p.engine(words[1:])
	}
	if len(words) < 2 {
		return fmt.Errorf("want a time, a verb and arguments, got %q", strings.Join(words, " "))
	}
	from, to, err := span(words[0])
	if err != nil {
		return err
	}
	verb, args, opts := words[1], []string{}, options{}
	for _, w := range words[2:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			if old, again := opts[k]; again {
				v = old + "," + v
			}
			opts[k] = v
		} else {
			args = append(args, w)
		}
	}
	if verb == "iter" {
		return p.iter(from, to, args, opts)
	}
	if times, ok := strings.CutPrefix(verb, "x"); ok && len(args) > 2 && args[1] == "iter" {
		return p.repeat(from, times, args[0], args[2:], opts)
	}
	if len(args) != 1 {
		return fmt.Errorf("%s wants one request, got %v", verb, args)
	}
	return p.event(from, to, verb, args[0], opts)
}

func (p *parser) engine(words []string) error {
	for _, s := range p.run.Sources() {
		for _, w := range words {
			k, v, ok := strings.Cut(w, "=")
			n, err := strconv.ParseFloat(v, 64)
			switch {
			case !ok:
				s.Hello.Engine.Name = w
			case err != nil:
				return fmt.Errorf("engine %s: %w", w, err)
			case k == "depth":
				s.Hello.Depth = int(n)
				p.recorder.depth = int(n)
			default:
				s.Hello.Settings[k] = n
			}
		}
	}
	return nil
}

func (p *parser) event(at, to int64, verb, name string, o options) error {
	if verb == "step" {
		return p.step(at, to, name, o)
	}
	r := p.get(name)
	parent, index, child := base(name)
	switch verb {
	case "http":
		p.http++
		r.http = p.http
		return p.run.Front.add(&wire.Received{Time: at, HTTP: r.http, RequestID: name, Traceparent: o["trace"], Path: "/v1/completions"})
	case "labels":
		m := &wire.Labels{Time: at, HTTP: r.http}
		for to, digits := range map[*uint64]string{&m.Tenant: o["tenant"], &m.Class: o["class"], &m.Route: o["route"]} {
			if digits == "" {
				continue
			}
			n, err := strconv.ParseUint(digits, 16, 64)
			if err != nil {
				return err
			}
			*to = n
		}
		return p.run.Front.add(m)
	case "submit":
		m := &wire.Submitted{Time: at, Handle: r.handle, Index: index, Prompt: o.u32("prompt"), ID: internal(name), External: "cmpl-" + parent + "-0", HTTP: p.get(parent).http}
		if child {
			m.Parent = internal(parent)
		}
		return p.run.Front.add(m)
	case "first":
		return p.run.Front.add(&wire.FirstByte{Time: at, HTTP: r.http, Status: 200})
	case "last":
		m := &wire.LastByte{Time: at, HTTP: r.http, Status: 200, Wait: uint64(o.u32("wait_ms")) * 1e6}
		if o["end"] == "disconnect" {
			m.End, m.Disconnect = wire.EndDisconnected, at
		}
		return p.run.Front.add(m)
	case "answer":
		return p.run.Front.add(&wire.Answered{Time: at, Handle: r.handle, Reason: reason(o["reason"]), Output: r.output})
	case "arrive":
		return p.run.Input.add(&wire.Arrived{Time: at, ID: internal(name), External: "cmpl-" + parent + "-0"})
	case "queue":
		r.prompt = o.u32("prompt")
		logprobs, err := o.num("logprobs", -1)
		if err != nil {
			return err
		}
		plp, _ := o.num("prompt_logprobs", -1)
		m := &wire.Queued{Time: at, Handle: r.handle, Prompt: r.prompt, Max: o.u32("max"), N: uint16(max(o.u32("n"), 1)), Logprobs: int16(logprobs),
			PromptLogprobs: int16(plp), Features: ledger.Feature(o.u32("features")), ID: internal(name), External: "cmpl-" + parent + "-0"}
		if s, ok := o["arrived"]; ok {
			if m.Arrived, _, err = span(s); err != nil {
				return err
			}
		}
		return p.run.Engine.add(m)
	case "abort":
		return p.run.Engine.add(&wire.Finished{Time: at, Finish: wire.Finish{Handle: r.handle, Reason: ledger.FinishAbort, Output: r.output}})
	case "client":
		m := &wire.Client{Time: at, Planned: at, End: to, Status: 200, RequestID: name, Class: o["class"], Output: o.u32("output")}
		if s, ok := o["first"]; ok {
			var err error
			if m.First, _, err = span(s); err != nil {
				return err
			}
		}
		return p.run.Client.add(m)
	}
	return fmt.Errorf("unknown verb %q", verb)
}

// step is one rank's execution of an iteration's batch.
func (p *parser) step(from, to int64, iteration string, o options) error {
	n, err := strconv.ParseUint(iteration, 10, 64)
	if err != nil {
		return err
	}
	m := &wire.Step{Time: from, Returned: to, Iteration: n, Rank: o.u32("rank"), Padded: o.u32("padded"), Eager: uint8(o.u32("eager")), Peak: uint64(o.u32("peak"))}
	m.Mode = map[string]uint8{"none": 1, "piecewise": 2, "full": 3}[o["graph"]]
	for to, text := range map[*uint64]string{&m.Device: o["device"], &m.Wait: o["wait"]} {
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		*to = uint64(d)
	}
	if p.run.Worker == nil {
		p.run.Worker = newSource("worker", "main")
	}
	return p.run.Worker.add(m)
}

var stops = map[string]ledger.SkipReason{"": 0, "seqs": ledger.SkipSequenceLimit, "tokens": ledger.SkipTokenBudget, "kv": ledger.SkipKVBlocks,
	"preempt": ledger.SkipPreemptionStep, "other": ledger.SkipOther, "paused": ledger.SkipPaused}

func reason(s string) ledger.FinishReason {
	return map[string]ledger.FinishReason{"stop": ledger.FinishStop, "length": ledger.FinishLength, "abort": ledger.FinishAbort}[s]
}

func (p *parser) iter(from, to int64, args []string, o options) error {
	r := p.recorder
	stop, ok := stops[o["stop"]]
	if !ok {
		return fmt.Errorf("unknown stop %q", o["stop"])
	}
	m := &wire.Scheduled{Time: from, Returned: from + 100_000, Free: o.u32("free"), Running: o.u32("running"), Waiting: o.u32("waiting"), Need: o.u32("need"), Stop: stop}
	if h := o["head"]; h != "" {
		m.Head = p.get(h).handle
	}
	if v := o["preempt"]; v != "" {
		victim := p.get(v)
		pre := wire.Preemption{Victim: victim.handle, Lost: victim.before, Output: victim.output, Free: m.Free, Blocks: (victim.before + 31) / 32, Cause: wire.CauseKVBlocks}
		if by := o["by"]; by != "" {
			pre.Preemptor = p.get(by).handle
		}
		victim.before = 0
		m.Preemptions = append(m.Preemptions, pre)
	}
	if h := o["hold"]; h != "" {
		for _, s := range strings.Split(h, ",") {
			name, blocks, _ := strings.Cut(s, ":")
			n, err := strconv.Atoi(blocks)
			if err != nil {
				return err
			}
			m.Holders = append(m.Holders, wire.Holder{Handle: p.get(name).handle, Blocks: uint32(n), Weight: float32(n)})
		}
	}
	if err := p.evict(from, o["evict"]); err != nil {
		return err
	}
	right, err := p.draft(m, o["draft"])
	if err != nil {
		return err
	}
	var now []wire.Join
	for _, a := range args {
		name, tokens, _ := strings.Cut(a, ":")
		q := p.get(name)
		n, cached := 1, 0
		if t, c, hit := strings.Cut(tokens, "+"); hit { // r1:16+16 — 16 of the prompt from cache
			tokens = t
			cached, _ = strconv.Atoi(c)
		}
		if tokens != "" {
			var err error
			if n, err = strconv.Atoi(tokens); err != nil {
				return err
			}
		}
		q.before += uint32(cached)
		now = append(now, wire.Join{Handle: q.handle, Tokens: uint32(n), Before: q.before, Total: q.prompt + q.output, Cached: uint32(cached)})
	}
	if err := r.decide(m, now); err != nil {
		return err
	}
	if err := p.run.Engine.add(m); err != nil {
		return err
	}
	d := &wire.Done{Time: to - 100_000, Returned: to, Iteration: m.Iteration}
	quiet := strings.Split(o["quiet"], ",")
	for _, j := range now {
		var q *request
		for _, c := range p.names {
			if c.handle == j.Handle {
				q = c
			}
		}
		q.before += j.Tokens
		if n, drafted := right[j.Handle]; drafted {
			q.before -= j.Tokens - 1 - n
			q.output += n + 1
			d.Tokens += n + 1
			d.Emits = append(d.Emits, wire.Emit{Handle: q.handle, Tokens: uint16(n + 1)})
			continue
		}
		switch due := j.Before+j.Tokens >= j.Total; {
		case due && slices.Contains(quiet, q.name):
			d.Emits = append(d.Emits, wire.Emit{Handle: q.handle, Discarded: 1})
		case due:
			q.output++
			d.Tokens++
		}
	}
	if e := o["end"]; e != "" {
		for _, s := range strings.Split(e, ",") {
			name, why, _ := strings.Cut(s, ":")
			q := p.get(name)
			d.Finishes = append(d.Finishes, wire.Finish{Handle: q.handle, Reason: reason(why), Output: q.output})
		}
	}
	if o["running"] == "flight" || o["done"] == "no" { // still in flight at the end of the scenario
		return nil
	}
	return p.run.Engine.add(d)
}

// evict writes what was evicted up to a decision: "r1:2,-:1" are blocks by who had used them last.
func (p *parser) evict(at int64, what string) error {
	for _, s := range strings.FieldsFunc(what, func(c rune) bool { return c == ',' }) {
		name, blocks, _ := strings.Cut(s, ":")
		n, err := strconv.Atoi(blocks)
		if err != nil {
			return err
		}
		m := &wire.Cache{Time: at, Kind: wire.CacheEvicted, Blocks: uint32(n), Hashes: make([]uint64, n)}
		if name != "-" {
			m.Handle = p.get(name).handle
		}
		if err := p.run.Engine.add(m); err != nil {
			return err
		}
	}
	return nil
}

// draft notes the drafts of a decision, "r1:3:1", and returns by handle how many of each were right.
func (p *parser) draft(m *wire.Scheduled, what string) (right map[uint32]uint32, err error) {
	right = map[uint32]uint32{}
	for _, s := range strings.FieldsFunc(what, func(c rune) bool { return c == ',' }) {
		var drafts, were uint32
		name, counts, _ := strings.Cut(s, ":")
		if _, err := fmt.Sscanf(counts, "%d:%d", &drafts, &were); err != nil {
			return nil, fmt.Errorf("draft=%s: want NAME:DRAFTS:RIGHT: %w", s, err)
		}
		h := p.get(name).handle
		m.Drafts = append(m.Drafts, wire.Draft{Handle: h, Tokens: drafts})
		right[h] = were
	}
	return right, nil
}

// repeat plays an iteration many times. Its options hold for each, but an end only for the last.
func (p *parser) repeat(from int64, times, each string, args []string, o options) error {
	n, err := strconv.Atoi(times)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(each)
	if err != nil {
		return err
	}
	end := o["end"]
	delete(o, "end")
	for k := range n {
		if k == n-1 && end != "" {
			o["end"] = end
		}
		at := from + int64(k)*int64(d)
		if err := p.iter(at, at+int64(d)-50_000, args, o); err != nil {
			return err
		}
	}
	return nil
}

// span reads "8ms" or "8..61ms" as monotonic times.
func span(s string) (from, to int64, err error) {
	a, b, two := strings.Cut(s, "..")
	if two && !strings.ContainsAny(a, "smh") {
		a += strings.TrimLeft(b, "0123456789.")
	}
	d, err := time.ParseDuration(a)
	if err != nil {
		return 0, 0, fmt.Errorf("time %q: %w", s, err)
	}
	from, to = Boot+int64(d), Boot+int64(d)
	if two {
		if d, err = time.ParseDuration(b); err != nil {
			return 0, 0, fmt.Errorf("time %q: %w", s, err)
		}
		to = Boot + int64(d)
	}
	return from, to, nil
}
