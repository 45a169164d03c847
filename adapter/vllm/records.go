package vllm

import (
	"strings"

	"github.com/whylate/whylate/logline"
)

// Shares are of 1, rates per second; what a line lacks is absent, never zero.

// Stats is the console's status line, by default one every 10 s, and none while nothing runs.
type Stats struct {
	Engine     logline.Opt[int] // its number; V0 and early V1 tell none, nor does a sum of several
	Aggregated int              // 0, or the number of engines that the line is the sum of; KVUsage is then their mean, and hides who is full

	PromptRate     logline.Opt[float64] // prompt tokens that were computed, per second: neither cached ones nor a preempted request's second time
	GenerationRate logline.Opt[float64] // tokens per second

	Running     logline.Opt[int] // requests
	Waiting     logline.Opt[int] // requests, deferred ones among them; V0 calls them pending
	Deferred    logline.Opt[int] // of Waiting: those that wait for something else than room, such as remote KV; printed only above 0
	Swapped     logline.Opt[int] // requests, V0
	Preemptions logline.Opt[int] // in the interval. That it is absent says nothing: some versions reset it before they print it
	Corrupted   logline.Opt[int] // requests

	FetchWaiting, Fetching, Fetched logline.Opt[int] // requests whose KV is to be fetched, is, and has been

	Device       string               // whose memory KVUsage is of: GPU, CPU …
	KVUsage      logline.Opt[float64] // share of the KV cache in use, at the interval's end
	SwapUsage    logline.Opt[float64] // share of V0's swap space in the CPU's memory
	PrefixHits   logline.Opt[float64] // share of prompt tokens from the prefix cache, over about the last 1,000 requests
	ExternalHits logline.Opt[float64] // the same of a connector's cache
	MMHits       logline.Opt[float64] // the same of multimodal inputs

	logline.Rest
}

// ForRoom is how many requests wait for room to run: those that wait without the deferred ones.
func (s Stats) ForRoom() logline.Opt[int] {
	if !s.Waiting.Known {
		return s.Waiting
	}
	return logline.Some(max(0, s.Waiting.Value-s.Deferred.Or(0)))
}

// devices are those that a line may name beside the CPU.
var devices = []string{"GPU", "XPU", "TPU", "HPU", "NPU", "MUSA", "MLU"}

var statsKeys = func() logline.Keys[Stats] {
	keys := logline.Keys[Stats]{
		"Avg prompt throughput":          logline.Float(func(s *Stats) *logline.Opt[float64] { return &s.PromptRate }),
		"Avg generation throughput":      logline.Float(func(s *Stats) *logline.Opt[float64] { return &s.GenerationRate }),
		"Running":                        logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Running }),
		"Waiting":                        logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Waiting }),
		"Deferred":                       logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Deferred }),
		"Swapped":                        logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Swapped }),
		"Preemptions":                    logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Preemptions }),
		"Corrupted":                      logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Corrupted }),
		"KV fetch":                       fetches,
		"CPU KV cache usage":             logline.Share(func(s *Stats) *logline.Opt[float64] { return &s.SwapUsage }),
		"Prefix cache hit rate":          logline.Share(func(s *Stats) *logline.Opt[float64] { return &s.PrefixHits }),
		"External prefix cache hit rate": logline.Share(func(s *Stats) *logline.Opt[float64] { return &s.ExternalHits }),
		"MM cache hit rate":              logline.Share(func(s *Stats) *logline.Opt[float64] { return &s.MMHits }),
	}
	for _, device := range devices {
		share := logline.Share(func(s *Stats) *logline.Opt[float64] { return &s.KVUsage })
		keys[device+" KV cache usage"] = func(s *Stats, value string) bool {
			s.Device = device
			return share(s, value)
		}
	}
	for other, name := range map[string]string{
		"Pending": "Waiting", "Reqs Running": "Running", "Reqs Waiting": "Waiting", // V0, and the front end in Rust
		"Avg prompt tput": "Avg prompt throughput", "Avg generation tput": "Avg generation throughput",
	} {
		keys[other] = keys[name]
	}
	return keys
}()

func stats(subject, text string) Record {
	var s Stats
	s.Engine, s.Aggregated = engine(subject)
	s.Rest = logline.Fill(&s, statsKeys, text, logline.Colon)
	if s.SwapUsage.Known && !s.KVUsage.Known && !s.Swapped.Known { // V1 on a CPU: there is no other cache
		s.Device, s.KVUsage, s.SwapUsage = "CPU", s.SwapUsage, logline.Opt[float64]{}
	}
	return s
}

// fetches reads "3 waiting to start, 2 in progress, 1 completed waiting".
func fetches(s *Stats, value string) bool {
	of := logline.Keys[Stats]{
		"waiting to start":  logline.Int(func(s *Stats) *logline.Opt[int] { return &s.FetchWaiting }),
		"in progress":       logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Fetching }),
		"completed waiting": logline.Int(func(s *Stats) *logline.Opt[int] { return &s.Fetched }),
	}
	rest := logline.Fill(s, of, value, logline.Counts)
	return len(rest.Extra) == 0 && rest.Withheld == 0
}

// HitRate is V0's own line of its prefix cache, shares of blocks.
type HitRate struct {
	GPU, CPU logline.Opt[float64]
	logline.Rest
}

var hitKeys = logline.Keys[HitRate]{
	"GPU": logline.Share(func(h *HitRate) *logline.Opt[float64] { return &h.GPU }),
	"CPU": logline.Share(func(h *HitRate) *logline.Opt[float64] { return &h.CPU }),
}

func hitRate(_, text string) Record {
	var h HitRate
	h.Rest = logline.Fill(&h, hitKeys, after(text, "rate: "), logline.Colon)
	return h
}

// Preemption is V0's warning. It is written for every 50th or so: Total says how many there were. V1 writes none, whatever happens.
type Preemption struct {
	Request string           // the sequence group
	Mode    string           // RECOMPUTE or SWAP
	Total   logline.Opt[int] // since the engine's start
}

func preemption(subject, text string) Record {
	words := strings.Fields(subject)
	_, mode, _ := strings.Cut(text, "PreemptionMode.")
	mode, _, _ = strings.Cut(mode, " ")
	if len(words) == 0 || mode != "RECOMPUTE" && mode != "SWAP" {
		return nil
	}
	p := Preemption{Mode: logline.Name(mode), Request: logline.Name(words[len(words)-1])}
	if _, n, ok := strings.Cut(text, "total_num_cumulative_preemption="); ok {
		p.Total = firstInt(n)
	}
	return p
}

// Speculation is what drafts were worth in an interval.
type Speculation struct {
	Engine       logline.Opt[int]
	MeanLength   logline.Opt[float64] // tokens a step: the accepted drafts and the bonus token, so 1 means that no draft was accepted
	Rate         logline.Opt[float64] // accepted of drafted tokens, a share; not MeanLength in other words
	Accepted     logline.Opt[int]     // tokens
	Drafted      logline.Opt[int]     // tokens
	Emitted      logline.Opt[int]     // tokens, V0
	DraftLength  logline.Opt[int]     // tokens of a draft, V0
	AcceptedRate logline.Opt[float64] // tokens per second
	DraftedRate  logline.Opt[float64] // tokens per second
	Efficiency   logline.Opt[float64] // V0: emitted tokens of those that all drafts accepted would have given, a share
	Positions    []float64            // share of drafts accepted at the first, second … position
	logline.Rest
}

// Steps is how many verifying steps the interval had: each accepted MeanLength − 1 drafts.
func (s Speculation) Steps() logline.Opt[float64] {
	if !s.Accepted.Known || s.MeanLength.Or(0) <= 1 {
		return logline.Opt[float64]{}
	}
	return logline.Some(float64(s.Accepted.Value) / (s.MeanLength.Value - 1))
}

var speculationKeys = logline.Keys[Speculation]{
	"Mean acceptance length":          logline.Float(func(s *Speculation) *logline.Opt[float64] { return &s.MeanLength }),
	"Accepted throughput":             logline.Float(func(s *Speculation) *logline.Opt[float64] { return &s.AcceptedRate }),
	"Drafted throughput":              logline.Float(func(s *Speculation) *logline.Opt[float64] { return &s.DraftedRate }),
	"Accepted":                        logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Accepted }),
	"Drafted":                         logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Drafted }),
	"Per-position acceptance rate":    positions,
	"Avg Draft acceptance rate":       acceptance,
	"Draft acceptance rate":           acceptance,
	"System efficiency":               logline.Float(func(s *Speculation) *logline.Opt[float64] { return &s.Efficiency }),
	"Number of speculative tokens":    logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.DraftLength }),
	"Number of accepted tokens":       logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Accepted }),
	"Number of draft tokens":          logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Drafted }),
	"Number of draft tokens tokens":   logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Drafted }),
	"Number of emitted tokens":        logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Emitted }),
	"Number of emitted tokens tokens": logline.Int(func(s *Speculation) *logline.Opt[int] { return &s.Emitted }),
}

// acceptance is in per cent in V1, and a share in V0.
func acceptance(s *Speculation, value string) bool {
	field := func(s *Speculation) *logline.Opt[float64] { return &s.Rate }
	if strings.Contains(value, "%") {
		return logline.Share(field)(s, value)
	}
	return logline.Float(field)(s, value)
}

const maxPositions = 64

func positions(s *Speculation, value string) bool {
	for piece := range strings.SplitSeq(value, ", ") {
		var p logline.Opt[float64]
		if len(s.Positions) == maxPositions || !logline.Float(func(*Speculation) *logline.Opt[float64] { return &p })(s, piece) {
			return false
		}
		if p.Known {
			s.Positions = append(s.Positions, p.Value)
		}
	}
	return true
}

func speculation(subject, text string) Record {
	var s Speculation
	s.Engine, _ = engine(subject)
	s.Rest = logline.Fill(&s, speculationKeys, after(text, "metrics: "), logline.Colon)
	return s
}

// Diffusion is the same line of models that denoise a canvas of tokens.
type Diffusion struct {
	Rate           logline.Opt[float64] // committed tokens per second
	StepsPerCanvas logline.Opt[float64]
	TokensPerStep  logline.Opt[float64]
	Committed      logline.Opt[int] // tokens
	Steps          logline.Opt[int]
	Positions      logline.Opt[int] // evaluated
	logline.Rest
}

var diffusionKeys = logline.Keys[Diffusion]{
	"Committed token throughput":               logline.Float(func(d *Diffusion) *logline.Opt[float64] { return &d.Rate }),
	"Mean denoising steps per canvas":          logline.Float(func(d *Diffusion) *logline.Opt[float64] { return &d.StepsPerCanvas }),
	"Mean tokens committed per denoising step": logline.Float(func(d *Diffusion) *logline.Opt[float64] { return &d.TokensPerStep }),
	"Committed":                  logline.Int(func(d *Diffusion) *logline.Opt[int] { return &d.Committed }),
	"Denoising steps":            logline.Int(func(d *Diffusion) *logline.Opt[int] { return &d.Steps }),
	"Canvas positions evaluated": logline.Int(func(d *Diffusion) *logline.Opt[int] { return &d.Positions }),
}

func diffusion(_, text string) Record {
	var d Diffusion
	d.Rest = logline.Fill(&d, diffusionKeys, after(text, "metrics: "), logline.Colon)
	return d
}

// Transfer is what a connector moved in an interval. Every connector has its own keys: those of NIXL and Mooncake have fields.
type Transfer struct {
	Transfers      logline.Opt[int] // that succeeded
	Failed         logline.Opt[int]
	FailedReceives logline.Opt[int]
	Expired        logline.Opt[int]     // requests whose KV was not fetched in time
	MeanMs, P90Ms  logline.Opt[float64] // of a transfer
	PostMeanMs     logline.Opt[float64] // of posting one
	PostP90Ms      logline.Opt[float64]
	MeanMiB        logline.Opt[float64] // of a transfer; the line says MB and means 2²⁰ bytes
	MiBPerSecond   logline.Opt[float64] // while transfers ran
	Descriptors    logline.Opt[float64] // of a transfer, mean
	logline.Rest
}

var transferKeys = logline.Keys[Transfer]{
	"Num successful transfers":  logline.Int(func(t *Transfer) *logline.Opt[int] { return &t.Transfers }),
	"Num failed transfers":      logline.Int(func(t *Transfer) *logline.Opt[int] { return &t.Failed }),
	"Num failed recvs":          logline.Int(func(t *Transfer) *logline.Opt[int] { return &t.FailedReceives }),
	"Num KV expired reqs":       logline.Int(func(t *Transfer) *logline.Opt[int] { return &t.Expired }),
	"Avg xfer time (ms)":        logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.MeanMs }),
	"P90 xfer time (ms)":        logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.P90Ms }),
	"Avg post time (ms)":        logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.PostMeanMs }),
	"P90 post time (ms)":        logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.PostP90Ms }),
	"Avg MB per transfer":       logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.MeanMiB }),
	"Throughput (MB/s)":         logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.MiBPerSecond }),
	"Avg number of descriptors": logline.Float(func(t *Transfer) *logline.Opt[float64] { return &t.Descriptors }),
}

func transfer(_, text string) Record {
	var t Transfer
	t.Rest = logline.Fill(&t, transferKeys, after(text, "metrics: "), logline.Equals)
	return t
}

// Compute is the estimate of --enable-mfu-metrics, of one device.
type Compute struct {
	Engine logline.Opt[int]
	TFLOPS logline.Opt[float64] // 10¹² operations per second
	GBs    logline.Opt[float64] // 10⁹ bytes per second, read and written
}

// compute reads "MFU: 1.0 TF/s/GPU 2.0 GB/s/GPU".
func compute(subject, text string) Record {
	words := strings.Fields(text)
	if len(words) != 5 || !strings.HasPrefix(words[2], "TF/s/") || !strings.HasPrefix(words[4], "GB/s/") {
		return nil
	}
	var c Compute
	c.Engine, _ = engine(subject)
	logline.Float(func(c *Compute) *logline.Opt[float64] { return &c.TFLOPS })(&c, words[1])
	logline.Float(func(c *Compute) *logline.Opt[float64] { return &c.GBs })(&c, words[3])
	return c
}

// Iteration is one step of the engine, of --enable-logging-iteration-details.
type Iteration struct {
	Engine             logline.Opt[int] // from 0.26 on; before that the process's tag says who it was
	Index              int              // of the logged ones, from 0: not the scheduler's own number
	ContextRequests    logline.Opt[int] // without an output yet
	ContextTokens      logline.Opt[int]
	GenerationRequests logline.Opt[int]
	GenerationTokens   logline.Opt[int]     // what a preempted request computes again is among them
	ElapsedMs          logline.Opt[float64] // that the engine waited for the result: not the device's time, and near 0 where the host is slower
	Dummy              bool                 // of another data-parallel rank's sake
	Device             string
	KVUsage            logline.Opt[float64] // share, from 0.26 on
	EncoderInputs      logline.Opt[int]
	EncoderEmbeddings  logline.Opt[int]
	logline.Rest
}

var iterationKeys = func() logline.Keys[Iteration] {
	ms := logline.Float(func(i *Iteration) *logline.Opt[float64] { return &i.ElapsedMs })
	keys := logline.Keys[Iteration]{
		"context requests":    logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.ContextRequests }),
		"context tokens":      logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.ContextTokens }),
		"generation requests": logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.GenerationRequests }),
		"generation tokens":   logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.GenerationTokens }),
		"iteration elapsed time": func(i *Iteration, value string) bool {
			value, i.Dummy = strings.CutSuffix(value, " (dummy)")
			return ms(i, value)
		},
		"encoder inputs":            logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.EncoderInputs }),
		"encoder output embeddings": logline.Int(func(i *Iteration) *logline.Opt[int] { return &i.EncoderEmbeddings }),
	}
	for _, device := range append([]string{"CPU"}, devices...) {
		share := logline.Share(func(i *Iteration) *logline.Opt[float64] { return &i.KVUsage })
		keys[device+" KV cache usage"] = func(i *Iteration, value string) bool {
			i.Device = device
			return share(i, value)
		}
	}
	return keys
}()

func iteration(subject, text string) Record {
	number, list, ok := strings.Cut(strings.TrimPrefix(text, "Iteration("), "): ")
	index := firstInt(number)
	if !ok || !index.Known {
		return nil
	}
	i := Iteration{Index: index.Value}
	i.Engine, _ = engine(subject)
	i.Rest = logline.Fill(&i, iterationKeys, list, logline.Counts)
	return i
}

// Compile is the warning that a kernel was compiled or tuned while requests waited. Every rank writes its own.
type Compile struct {
	What   string // "Triton kernel JIT compilation"
	Kernel string
}

func compile(subject, text string) Record {
	if !strings.Contains(text, "latency spike") {
		return nil
	}
	name := after(text, "inference: ")
	if end := strings.IndexAny(name, " ("); end >= 0 {
		name = name[:end]
	}
	name = strings.TrimSuffix(name, ".")
	if words := strings.Fields(subject); name == "" || len(words) == 0 || len(words) > 4 || strings.Contains(subject, ":") {
		return nil
	}
	return Compile{What: strings.Clone(subject), Kernel: logline.Name(name)}
}

// Death is a line that an engine's end leaves: by the process that died, or for a request that died with it. What it dumps is not kept.
type Death struct{}

func death(_, _ string) Record { return Death{} }

// after is what follows a text, "" where that is not there.
func after(s, text string) string {
	_, rest, _ := strings.Cut(s, text)
	return rest
}

// firstInt is the whole number that a text begins with.
func firstInt(s string) (n logline.Opt[int]) {
	if v, _, ok := logline.Number(s); ok && v == float64(int(v)) {
		n = logline.Some(int(v))
	}
	return n
}

// lastInt is the whole number that a text ends with.
func lastInt(s string) logline.Opt[int] { return firstInt(s[strings.LastIndexAny(s, " :)]")+1:]) }

func firstFloat(s string) (n logline.Opt[float64]) {
	if v, _, ok := logline.Number(s); ok {
		n = logline.Some(v)
	}
	return n
}
