package sglang

import (
	"strings"

	"github.com/whylate/whylate/logline"
)

// Shares are of 1, rates per second; what a line lacks is absent, never zero.

// Batch is what the lines of both kinds of batch share.
type Batch struct {
	Iteration logline.Opt[int] // the scheduler's forward count, where it is switched on
	Running   logline.Opt[int] // requests that decode
	Queue     logline.Opt[int] // requests in the waiting queue alone: see Waiting
	Pools     []Pool           // of memory: one, or several of a hybrid model
	Graph     logline.Opt[bool]
	GraphKind string               // cuda, npu, musa, cpu
	Rate      logline.Opt[float64] // tokens per second, mean since the last such line, idle time included
	Occupancy logline.Opt[float64] // share of the time in which the device ran
	TFLOPS    logline.Opt[float64] // estimate of one device
	logline.Rest
}

// Pool is one kind of the memory that requests need.
type Pool struct {
	Name  string               // "token", "page": the only one; "full", "swa": full and sliding-window attention; "mamba": states; "gpu", "cpu"
	Used  logline.Opt[int]     // tokens, or states
	Usage logline.Opt[float64] // share
}

// Limiting is the fullest pool, which lets nobody in when it is full, however empty the others are.
func (b Batch) Limiting() (p Pool, ok bool) {
	for _, other := range b.Pools {
		if other.Usage.Known && (!ok || other.Usage.Value > p.Usage.Value) {
			p, ok = other, true
		}
	}
	return p, ok
}

func (b *Batch) pool(name string) *Pool {
	for i := range b.Pools {
		if b.Pools[i].Name == name {
			return &b.Pools[i]
		}
	}
	b.Pools = append(b.Pools, Pool{Name: name})
	return &b.Pools[len(b.Pools)-1]
}

// Prefill is a batch of prompts, or of their parts.
type Prefill struct {
	Batch
	Sequences  logline.Opt[int]     // new ones
	New        logline.Opt[int]     // tokens to compute
	Cached     logline.Opt[int]     // tokens from the cache
	HitRate    logline.Opt[float64] // of old versions: share over the server's life
	Pending    logline.Opt[int]     // prompt tokens that are still to be computed, of cut and of waiting requests
	Bootstrap  logline.Opt[int]     // requests that wait for the decode node's hand, on a prefill node
	Inflight   logline.Opt[int]     // requests whose KV is being sent
	Optimistic logline.Opt[int]     // requests computed before the decode node had room
	Images     logline.Opt[int]     // requests that wait for an encoder
}

// CachedShare is the share of this batch's prompt tokens that came from the cache.
func (p Prefill) CachedShare() logline.Opt[float64] {
	if !p.New.Known || !p.Cached.Known || p.New.Value+p.Cached.Value == 0 {
		return logline.Opt[float64]{}
	}
	return logline.Some(float64(p.Cached.Value) / float64(p.New.Value+p.Cached.Value))
}

// Waiting is how many requests wait to be computed: the queue and, on a prefill node, those that wait for the decode node.
func (p Prefill) Waiting() logline.Opt[int] { return sum(p.Queue, p.Bootstrap) }

// Decode is the line of every fortieth decode batch or so.
type Decode struct {
	Batch
	AcceptLength logline.Opt[float64] // tokens a step: the accepted drafts and the bonus token, so 1 means that no draft was accepted
	AcceptRate   logline.Opt[float64] // accepted of drafted tokens, a share
	CapLength    logline.Opt[float64]
	BlockLength  logline.Opt[float64]
	Preallocated logline.Opt[float64] // share of memory held for requests on their way, on a decode node
	Prealloc     logline.Opt[int]     // requests that wait for room on a decode node
	Transfer     logline.Opt[int]     // requests whose KV is being received
	Retracted    logline.Opt[int]     // requests that were thrown out, and wait to come back
	Largest      logline.Opt[int]     // longest request, old versions
	ReadGBs      logline.Opt[float64] // estimate of one device, 10⁹ bytes per second
	WriteGBs     logline.Opt[float64]
}

// Drafts is how many tokens were drafted a step: (length − 1) / rate.
func (d Decode) Drafts() logline.Opt[float64] {
	if !d.AcceptLength.Known || d.AcceptRate.Or(0) <= 0 {
		return logline.Opt[float64]{}
	}
	return logline.Some((d.AcceptLength.Value - 1) / d.AcceptRate.Value)
}

// Waiting is how many requests wait. On a decode node of disaggregated serving they are not in the queue: they wait for room, for their KV,
// or to come back.
func (d Decode) Waiting() logline.Opt[int] { return sum(d.Queue, d.Prealloc, d.Transfer, d.Retracted) }

// Disaggregated says whether the line is of a decode node.
func (d Decode) Disaggregated() bool { return d.Prealloc.Known || d.Transfer.Known }

// Stalled says whether requests run and no token came.
func (d Decode) Stalled() bool { return d.Running.Or(0) > 0 && d.Rate.Known && d.Rate.Value == 0 }

// sum adds what is known; it is absent if nothing is.
func sum(of ...logline.Opt[int]) (n logline.Opt[int]) {
	for _, v := range of {
		if v.Known {
			n = logline.Some(n.Value + v.Value)
		}
	}
	return n
}

// batchKeys are the names that lines of both kinds have.
func batchKeys[T any](batch func(*T) *Batch) logline.Keys[T] {
	count := func(field func(*Batch) *logline.Opt[int]) func(*T, string) bool {
		return logline.Int(func(t *T) *logline.Opt[int] { return field(batch(t)) })
	}
	float := func(field func(*Batch) *logline.Opt[float64]) func(*T, string) bool {
		return logline.Float(func(t *T) *logline.Opt[float64] { return field(batch(t)) })
	}
	keys := logline.Keys[T]{
		"#running-req":  count(func(b *Batch) *logline.Opt[int] { return &b.Running }),
		"#queue-req":    count(func(b *Batch) *logline.Opt[int] { return &b.Queue }),
		"fwd occupancy": logline.Share(func(t *T) *logline.Opt[float64] { return &batch(t).Occupancy }),
	}
	for _, name := range []string{"gen throughput (token/s)", "input throughput (token/s)"} {
		keys[name] = float(func(b *Batch) *logline.Opt[float64] { return &b.Rate })
	}
	for _, name := range []string{"est. prefill TFLOPS/s (per GPU)", "est. decode TFLOPS/s (per GPU)"} {
		keys[name] = float(func(b *Batch) *logline.Opt[float64] { return &b.TFLOPS })
	}
	for _, pool := range []string{"token", "page", "full", "swa", "mamba", "gpu", "cpu"} {
		used, usage := "#"+pool+" token", pool+" token usage"
		switch pool {
		case "token":
			used, usage = "#token", "token usage"
		case "page":
			usage = "page usage"
		case "mamba":
			used, usage = "mamba num", "mamba usage"
		}
		keys[used] = count(func(b *Batch) *logline.Opt[int] { return &b.pool(pool).Used })
		keys[usage] = float(func(b *Batch) *logline.Opt[float64] { return &b.pool(pool).Usage })
	}
	for _, kind := range []string{"cuda", "npu", "musa", "cpu", "hip", "xpu"} {
		flag := logline.Flag(func(t *T) *logline.Opt[bool] { return &batch(t).Graph })
		keys[kind+" graph"] = func(t *T, value string) bool {
			batch(t).GraphKind = kind
			return flag(t, value)
		}
	}
	return keys
}

var prefillKeys = func() logline.Keys[Prefill] {
	keys := batchKeys(func(p *Prefill) *Batch { return &p.Batch })
	for name, field := range map[string]func(*Prefill) *logline.Opt[int]{
		"#new-seq":          func(p *Prefill) *logline.Opt[int] { return &p.Sequences },
		"#new-token":        func(p *Prefill) *logline.Opt[int] { return &p.New },
		"#cached-token":     func(p *Prefill) *logline.Opt[int] { return &p.Cached },
		"#pending-token":    func(p *Prefill) *logline.Opt[int] { return &p.Pending },
		"#bootstrap-req":    func(p *Prefill) *logline.Opt[int] { return &p.Bootstrap },
		"#inflight-req":     func(p *Prefill) *logline.Opt[int] { return &p.Inflight },
		"#optimistic-req":   func(p *Prefill) *logline.Opt[int] { return &p.Optimistic },
		"waiting-image-req": func(p *Prefill) *logline.Opt[int] { return &p.Images },
	} {
		keys[name] = logline.Int(field)
	}
	for other, name := range map[string]string{"#unbootstrapped-req": "#bootstrap-req", "#prealloc-req": "#bootstrap-req", "#transferring-req": "#inflight-req"} {
		keys[other] = keys[name] // until 2026-06
	}
	keys["cache hit rate"] = logline.Share(func(p *Prefill) *logline.Opt[float64] { return &p.HitRate })
	return keys
}()

var decodeKeys = func() logline.Keys[Decode] {
	keys := batchKeys(func(d *Decode) *Batch { return &d.Batch })
	for name, field := range map[string]func(*Decode) *logline.Opt[int]{
		"#prealloc-req":  func(d *Decode) *logline.Opt[int] { return &d.Prealloc },
		"#transfer-req":  func(d *Decode) *logline.Opt[int] { return &d.Transfer },
		"#retracted-req": func(d *Decode) *logline.Opt[int] { return &d.Retracted },
		"largest-len":    func(d *Decode) *logline.Opt[int] { return &d.Largest },
	} {
		keys[name] = logline.Int(field)
	}
	for name, field := range map[string]func(*Decode) *logline.Opt[float64]{
		"accept len":                   func(d *Decode) *logline.Opt[float64] { return &d.AcceptLength },
		"accept rate":                  func(d *Decode) *logline.Opt[float64] { return &d.AcceptRate },
		"cap len":                      func(d *Decode) *logline.Opt[float64] { return &d.CapLength },
		"block accept len":             func(d *Decode) *logline.Opt[float64] { return &d.BlockLength },
		"pre-allocated usage":          func(d *Decode) *logline.Opt[float64] { return &d.Preallocated },
		"est. read BW (GB/s per GPU)":  func(d *Decode) *logline.Opt[float64] { return &d.ReadGBs },
		"est. write BW (GB/s per GPU)": func(d *Decode) *logline.Opt[float64] { return &d.WriteGBs },
	} {
		keys[name] = logline.Float(field)
	}
	return keys
}()

func prefill(text string) Record {
	var p Prefill
	list := p.begin(text)
	p.Rest = logline.Fill(&p, prefillKeys, list, logline.Colon)
	return p
}

func decode(text string) Record {
	var d Decode
	list := d.begin(text)
	d.Rest = logline.Fill(&d, decodeKeys, list, logline.Colon)
	return d
}

// begin reads the iteration, " [18211]", and takes off what stands between the name and the list: a full stop, later a comma.
func (b *Batch) begin(text string) (list string) {
	if inner, ok := strings.CutPrefix(text, " ["); ok {
		number, rest, _ := strings.Cut(inner, "]")
		if n, left, ok := logline.Number(number); ok && left == "" {
			b.Iteration = logline.Some(int(n))
			text = rest
		}
	}
	return strings.TrimLeft(text, "., ")
}

// Retraction is requests thrown out for want of memory. They go back to the queue and are computed again: they did not fail, and the same
// request may be among the next ones too.
type Retraction struct {
	Requests  logline.Opt[int]
	Aborted   logline.Opt[int] // requests that were given up
	Gained    logline.Opt[int] // tokens of memory
	States    logline.Opt[int] // states of memory
	RatioFrom logline.Opt[float64]
	RatioTo   logline.Opt[float64] // share of a request's possible output that is held free for it: what it was, and is from here on
	logline.Rest
}

var retractionKeys = logline.Keys[Retraction]{
	"#retracted_reqs":    logline.Int(func(r *Retraction) *logline.Opt[int] { return &r.Requests }),
	"#aborted_reqs":      logline.Int(func(r *Retraction) *logline.Opt[int] { return &r.Aborted }),
	"#new_tokens_gained": logline.Int(func(r *Retraction) *logline.Opt[int] { return &r.Gained }),
	"#mamba_num_gained":  logline.Int(func(r *Retraction) *logline.Opt[int] { return &r.States }),
	"#new_token_ratio": func(r *Retraction, value string) bool {
		from, to, ok := strings.Cut(value, " -> ")
		return ok && logline.Float(func(r *Retraction) *logline.Opt[float64] { return &r.RatioFrom })(r, from) &&
			logline.Float(func(r *Retraction) *logline.Opt[float64] { return &r.RatioTo })(r, to)
	},
}

func retraction(text string) Record {
	var r Retraction
	r.Rest = logline.Fill(&r, retractionKeys, "#retracted_reqs: "+text, logline.Colon)
	return r
}

// Request is the line of one finished request, of --enable-request-time-stats-logging. Times are in ms.
type Request struct {
	ID              string
	Type            string           // unified, prefill, decode
	Input           logline.Opt[int] // tokens
	Cached          logline.Opt[int] // tokens of Input
	Output          logline.Opt[int] // tokens
	Attempts        logline.Opt[int] // of a prefill node; retractions are not counted
	Queue, Forward  logline.Opt[float64]
	Bootstrap       logline.Opt[float64]
	Alloc, Transfer logline.Opt[float64]
	Entry           logline.Opt[float64] // Unix s at which it entered the queue
	GBs, MB         logline.Opt[float64] // of its transfer
	logline.Rest
}

var requestKeys = func() logline.Keys[Request] {
	keys := logline.Keys[Request]{
		"input_len":        logline.Int(func(r *Request) *logline.Opt[int] { return &r.Input }),
		"cached_input_len": logline.Int(func(r *Request) *logline.Opt[int] { return &r.Cached }),
		"output_len":       logline.Int(func(r *Request) *logline.Opt[int] { return &r.Output }),
		"attempts":         logline.Int(func(r *Request) *logline.Opt[int] { return &r.Attempts }),
		"rid":              logline.Word(func(r *Request) *string { return &r.ID }),
		"type":             logline.Word(func(r *Request) *string { return &r.Type }),
	}
	for name, field := range map[string]func(*Request) *logline.Opt[float64]{
		"queue_duration":           func(r *Request) *logline.Opt[float64] { return &r.Queue },
		"forward_duration":         func(r *Request) *logline.Opt[float64] { return &r.Forward },
		"bootstrap_duration":       func(r *Request) *logline.Opt[float64] { return &r.Bootstrap },
		"bootstrap_queue_duration": func(r *Request) *logline.Opt[float64] { return &r.Bootstrap },
		"alloc_wait_duration":      func(r *Request) *logline.Opt[float64] { return &r.Alloc },
		"prealloc_queue_duration":  func(r *Request) *logline.Opt[float64] { return &r.Alloc },
		"transfer_duration":        func(r *Request) *logline.Opt[float64] { return &r.Transfer },
		"transfer_speed":           func(r *Request) *logline.Opt[float64] { return &r.GBs },
		"transfer_total":           func(r *Request) *logline.Opt[float64] { return &r.MB },
		"entry_time":               func(r *Request) *logline.Opt[float64] { return &r.Entry },
	} {
		keys[name] = logline.Float(field)
	}
	return keys
}()

// request reads "rid=ab12, input_len=1000, …, type=unified): queue_duration=12.40ms, …".
func request(text string) Record {
	who, times, ok := strings.Cut(text, "): ")
	if !ok {
		return nil
	}
	var r Request
	r.Rest = logline.Fill(&r, requestKeys, who+", "+times, logline.Equals)
	return r
}

// Failure is a request whose KV did not get from the prefill node to the decode node.
type Failure struct {
	Side string // prefill or decode: who noticed
}
