package ledger

import (
	"fmt"
	"iter"
)

// All times in this package are Unix nanoseconds on the book's own line (see [Clock]); 0 means not known.
// All durations are nanoseconds.

// Clock says how a producer's times were put on the book's line.
type Clock struct {
	Domain      string // clock domain the producer wrote in, for example "monotonic/1a2b3c4d"
	Offset      int64  // added to the producer's time to give Unix nanoseconds
	Uncertainty int64  // half the width of the interval in which the true offset lies
}

// EngineID names one scheduler loop. A restart is a new incarnation: iteration numbers belong to it.
type EngineID struct {
	Deployment  string `json:"deployment"`
	Replica     string `json:"replica"`
	Rank        int    `json:"rank"` // data-parallel rank
	Incarnation string `json:"incarnation"`
}

// String is deployment/replica/rank@incarnation, with the deployment left out where it repeats the replica.
func (id EngineID) String() string {
	name := id.Replica
	if id.Deployment != "" && id.Deployment != id.Replica {
		name = id.Deployment + "/" + id.Replica
	}
	inc := id.Incarnation
	if len(inc) > 8 {
		inc = inc[:8]
	}
	return fmt.Sprintf("%s/%d@%s", name, id.Rank, inc)
}

// Engine is one scheduler loop and all that it is known to have done. Iterations lie densely: Iterations[k] has the
// number First+k; those whose records are missing are rows marked as such.
type Engine struct {
	ID           EngineID
	Name         string // "vllm"
	Version      string // of the engine
	Producer     string // who recorded it, with version: "whylate-vllm 0.1.0"
	Depth        int    // decisions that may be open at once: 1, or 2 with asynchronous scheduling
	Settings     map[string]any
	Capabilities map[string]bool
	Clock        Clock

	First   uint64 // number of Iterations[0]
	Base    Sums   // running sums before Iterations[0], not zero if earlier rows were let go
	BaseEnd int64  // end of the row before it, 0 if there was none
	Began   uint64 // first iteration that was ever recorded of it; 1 = it was recorded from its start
	// Firsts are the first iterations that carried a kind of work (account.Firsts), as known when earlier rows were let go.
	Firsts      map[string]uint64
	Iterations  []Iteration
	Sequences   []*Sequence   // in the order in which the scheduler took them up, then those still in the inbox
	Preemptions []*Preemption // in order
	Holdings    []Holding     // in order
	Evictions   []Eviction    // in order
	Gaps        []Gap
}

// Row returns the row of iteration n, or nil if the engine has none.
func (e *Engine) Row(n uint64) *Iteration {
	if n < e.First || n >= e.First+uint64(len(e.Iterations)) {
		return nil
	}
	return &e.Iterations[n-e.First]
}

// Last is the number of the newest iteration, 0 if there is none.
func (e *Engine) Last() uint64 {
	if len(e.Iterations) == 0 {
		return 0
	}
	return e.First + uint64(len(e.Iterations)) - 1
}

// Model is what it serves, under the name that clients and its own metrics use; of a probe that does not tell that, the name or the path by
// which it was loaded. "" = not known.
func (e *Engine) Model() string {
	for _, setting := range []string{"served_model", "model"} {
		if name, ok := e.Settings[setting].(string); ok && name != "" {
			return name
		}
	}
	return ""
}

// Setting returns a number among the engine's settings, or 0.
func (e *Engine) Setting(name string) float64 {
	switch v := e.Settings[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case interface{ Float64() (float64, error) }: // json.Number
		if f, err := v.Float64(); err == nil {
			return f
		}
	}
	return 0
}

// Known says which records of an iteration were seen.
type Known uint8

const (
	KnownDecision   Known = 1 // its decision
	KnownCompletion Known = 2 // its completion
	KnownMembers    Known = 4 // who was in it
	KnownAll              = KnownDecision | KnownCompletion | KnownMembers
)

// Iteration is one pass of the scheduler: a decision before launch and a completion after execution.
//
// Its tile is the time from the end of the iteration before it to its own end: first Gap (nothing was running on the
// engine), then Duration. Tiles of one engine touch and never overlap, also with two decisions in flight, so any interval
// between two ends is a difference of two rows of running sums.
type Iteration struct {
	Number     uint64
	Alias      uint64 // the engine's own index, 0 if it has none
	Decided    int64  // the scheduler was entered
	Launched   int64  // the scheduler returned
	Completed  int64  // the engine began to take up the output
	Start      int64  // the later of Decided and the previous End
	End        int64  // the output was taken up; where the completion is missing, the next thing that is known
	Tokens     uint32 // scheduled
	Members    uint32
	Running    uint32 // length of the running list
	Waiting    uint32
	FreeBlocks uint32
	Emitted    uint32
	Discarded  uint32 // tokens computed and thrown away
	Known      Known
	Stop       SkipReason // what ended admission; SkipNone if nobody was left waiting
	Head       *Sequence  // at whom admission stopped
	Need       uint32     // KV blocks that the head needed, 0 if not known
	Execution  *Execution // what its ranks said of it, nil if they were not seen
	Sums       Sums       // running sums up to and including this iteration
}

// GraphMode is how a batch was launched. The numbers are those of the wire (message 21).
type GraphMode uint8

const (
	GraphUnknown   GraphMode = 0
	GraphNone      GraphMode = 1
	GraphPiecewise GraphMode = 2
	GraphFull      GraphMode = 3
)

var graphNames = [...]string{"unknown", "none", "piecewise", "full"}

// String is the mode's name.
func (g GraphMode) String() string {
	if int(g) < len(graphNames) {
		return graphNames[g]
	}
	return fmt.Sprintf("unknown(%d)", uint8(g))
}

// MarshalText writes the name.
func (g GraphMode) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// Execution is the steps of an iteration's batch put together: a batch is as slow as its slowest rank. What nobody measured is 0.
type Execution struct {
	Ranks   uint32 // that were seen
	Slowest uint32 // the rank with the longest Host
	Host    int64  // longest time from entry to return
	Device  int64  // longest time of the device's own work
	Wait    int64  // longest wait in collectives
	Peak    uint64 // most memory that a rank had ever allocated, in bytes
	Padded  uint32 // tokens with padding
	Graph   GraphMode
	Eager   bool // there are graphs, and some rank ran without
}

// Add takes in what other ranks said of the same batch.
func (x *Execution) Add(o Execution) {
	if x.Ranks == 0 || o.Host > x.Host {
		x.Slowest, x.Host = o.Slowest, o.Host
	}
	x.Ranks += o.Ranks
	x.Device, x.Wait = max(x.Device, o.Device), max(x.Wait, o.Wait)
	x.Peak, x.Padded = max(x.Peak, o.Peak), max(x.Padded, o.Padded)
	if x.Graph == GraphUnknown || o.Graph != GraphUnknown && o.Graph < x.Graph {
		x.Graph = o.Graph
	}
	x.Eager = x.Eager || o.Eager
}

// Duration is the time the iteration itself took, in nanoseconds.
func (it *Iteration) Duration() int64 { return it.End - it.Start }

// Complete reports whether decision, completion and membership were all seen.
func (it *Iteration) Complete() bool { return it.Known == KnownAll }

// Sums are an engine's running sums (DESIGN §8). The time parts add up to End of the row minus End of an earlier row.
type Sums struct {
	Gap     int64 // between iterations, and iterations without tokens
	Busy    int64 // durations of iterations that are wholly known
	Unknown int64 // tiles of which a record is missing
	Work    Work  // of the iterations in Busy
}

// Sub is the difference of two rows.
func (s Sums) Sub(earlier Sums) Sums {
	return Sums{s.Gap - earlier.Gap, s.Busy - earlier.Busy, s.Unknown - earlier.Unknown, s.Work.Sub(earlier.Work)}
}

// Features of the iteration-time model (DESIGN §8): what makes an iteration longer. Each has a coefficient in time per unit.
const (
	WorkIterations     = iota // 1 for an iteration with tokens: its fixed cost
	WorkPrefillTokens         // prompt tokens computed, recompute included
	WorkPrefillContext        // Σ chunk × (context + chunk/2): attention work of prefill
	WorkDecodeSeqs            // sequences in decode
	WorkDecodeContext         // Σ context of the sequences in decode
	WorkLogprobRows           // sampled rows with logprobs
	WorkPromptLogprobs        // prompt tokens with prompt_logprobs
	WorkPenaltyRows           // sampled rows with penalties
	WorkGrammarRows           // sampled rows with a grammar mask
	WorkPrefillSeqs           // sequences that compute a chunk of their prompt: what a chunk costs whatever its length
	NumWork
)

// WorkNames are the features' names in answers, in order.
var WorkNames = [NumWork]string{"iterations", "prefill tokens", "prefill attention", "decode sequences", "decode context",
	"logprob rows", "prompt-logprob tokens", "penalty rows", "grammar rows", "prefill sequences"}

// Work is an amount of each feature.
type Work [NumWork]float64

// Sub is w − o.
func (w Work) Sub(o Work) Work {
	for i := range w {
		w[i] -= o[i]
	}
	return w
}

// Add is w + o.
func (w Work) Add(o Work) Work {
	for i := range w {
		w[i] += o[i]
	}
	return w
}

// Dot is the time that the work takes under the given coefficients.
func (w Work) Dot(c Work) float64 {
	var t float64
	for i := range w {
		t += w[i] * c[i]
	}
	return t
}

// Phase of a stint.
type Phase uint8

const (
	Prefill   Phase = 1 // prompt tokens, computed for the first time
	Decode    Phase = 2
	Recompute Phase = 3 // tokens computed again after a preemption
)

// String is the phase's name.
func (p Phase) String() string {
	switch p {
	case Prefill:
		return "prefill"
	case Decode:
		return "decode"
	case Recompute:
		return "recompute"
	}
	return "none"
}

// MarshalText writes the name.
func (p Phase) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// Stint is an unbroken run of iterations First … Last in which a sequence was scheduled in one phase.
type Stint struct {
	Seq    *Sequence
	Phase  Phase
	First  uint64
	Last   uint64
	Before uint32   // tokens computed before the first iteration
	Tokens []uint32 // scheduled per iteration; nil means 1 each
	Final  bool     // its last iteration reached the end of the tokens then known, and so emitted one
	// Drafts and Rejected are per iteration like Tokens: how many of the tokens were speculative, and how many of those the
	// model did not agree with, so that they are not among the tokens computed. Nil, or cut short, where there were none.
	Drafts   []uint16
	Rejected []uint16
}

// DraftsIn returns the speculative tokens of iteration n of the stint, and how many of them were rejected.
func (s *Stint) DraftsIn(n uint64) (drafts, rejected uint32) {
	if k := n - s.First; k < uint64(len(s.Drafts)) {
		drafts = uint32(s.Drafts[k])
		if k < uint64(len(s.Rejected)) {
			rejected = uint32(s.Rejected[k])
		}
	}
	return drafts, rejected
}

// ComputedBefore returns the tokens that were computed before iteration n of the stint. Rejected drafts are not among them.
func (s *Stint) ComputedBefore(n uint64) uint64 {
	if s.Tokens == nil {
		return uint64(s.Before) + n - s.First
	}
	computed := uint64(s.Before)
	for i := s.First; i < n; i++ {
		_, rejected := s.DraftsIn(i)
		computed += uint64(s.TokensIn(i) - rejected)
	}
	return computed
}

// TokensIn returns the tokens that the stint was given in iteration n of it.
func (s *Stint) TokensIn(n uint64) uint32 {
	if s.Tokens == nil {
		return 1
	}
	if k := n - s.First; k < uint64(len(s.Tokens)) {
		return s.Tokens[k]
	}
	return 0
}

// Overlapping yields the stints of e that touch iterations from … to. It looks at each sequence once, not at each token.
func (e *Engine) Overlapping(from, to uint64) iter.Seq[*Stint] {
	return func(yield func(*Stint) bool) {
		for _, q := range e.Sequences {
			if q.Join == 0 || q.Join > to || q.Leave < from {
				continue
			}
			for k := range q.Stints {
				if s := &q.Stints[k]; s.First <= to && s.Last >= from && !yield(s) {
					return
				}
			}
		}
	}
}

// Sum returns the tokens of all iterations of the stint.
func (s *Stint) Sum() uint64 {
	if s.Tokens == nil {
		return s.Last - s.First + 1
	}
	var n uint64
	for _, t := range s.Tokens {
		n += uint64(t)
	}
	return n
}

// Skip is an unbroken run of iterations First … Last in which a live sequence was not scheduled, for one reason.
type Skip struct {
	First  uint64
	Last   uint64
	Reason SkipReason
	Code   uint8     // with SkipOther: the producer's code
	Head   *Sequence // with SkipHeadOfLine: who stood at the head
	Away   bool      // it had been preempted and had not come back
}

// Preemption is a running sequence losing its blocks.
type Preemption struct {
	Iteration  uint64 // the decision in which, or before which, it happened
	At         int64
	Victim     *Sequence
	Preemptor  *Sequence // nil: administrative, or not known
	Lost       uint32    // computed tokens thrown away
	Output     uint32    // tokens emitted until then
	FreeBlocks uint32    // before
	Blocks     uint32    // held by the victim
	Reset      bool      // an administrative reset of the cache, not memory
}

// Holding is a report of who held the KV pool while admission was stopped for it.
type Holding struct {
	Iteration uint64
	Head      *Sequence
	Need      uint32
	Free      uint32
	Holders   []Holder // the largest first
}

// Holder is one sequence's share of the KV pool.
type Holder struct {
	Seq    *Sequence
	Blocks uint32
	Weight float32 // blocks, a shared one counted 1/references
}

// Eviction is blocks of the prefix cache that were given up for others.
type Eviction struct {
	Iteration uint64    // up to which the producer had counted them
	At        int64     // decided
	Seq       *Sequence // who had used them last, nil if that is not known
	Blocks    uint32
}

// Sequence is one stream of tokens of an attempt.
type Sequence struct {
	ID       string // the engine's internal id
	External string // the engine's id towards the client
	Parent   string // internal id of the parent of n > 1, "" if none
	Index    uint32 // child index of n > 1
	Request  *Request
	Engine   *Engine

	Prompt         uint32 // tokens
	Max            uint32 // output tokens at most
	Output         uint32 // tokens emitted by the engine so far
	Cached         uint32 // prompt tokens served from cache at first admission
	N              uint16 // sequences of the parent; 1 = alone
	Logprobs       int16  // −1 none
	PromptLogprobs int16  // −1 none
	Priority       int32
	Features       Feature

	Submitted  int64 // the front end handed it to the engine
	Arrived    int64 // it reached the engine process
	Queued     int64 // the scheduler took it up
	FirstToken int64 // end of the iteration that emitted its first token
	LastToken  int64 // end of the iteration that emitted its last token so far
	Finished   int64 // the engine's end
	Answered   int64 // the front end's end
	Delivered  int64 // its last output was handed to the waiting stream
	Reason     FinishReason
	StopString bool // ended by a stop string, which only the front end sees
	Hashes     int  // full prompt blocks whose hashes were recorded
	// BlockHashes are those hashes, of the first Hashes blocks without a hole, where whoever reads asks for them; else nil.
	BlockHashes []uint64

	Join           uint64 // first iteration it was a member of, 0 = never
	Leave          uint64 // last one so far
	FirstEmit      uint64 // iteration that emitted the first token
	LastEmit       uint64 // iteration that emitted the last token so far
	FirstUncertain bool   // FirstToken is the next thing known: the completion is missing
	Stints         []Stint
	Skips          []Skip
	Preemptions    []*Preemption // of this sequence, in order
}

// Live reports whether the sequence has been queued and has not finished.
func (s *Sequence) Live() bool { return s.Queued != 0 && s.Finished == 0 }

// Drafted returns the speculative tokens of the sequence of which it is known what became of them, and how many of those were
// rejected. Those after its last token came to nothing: nobody looked at them.
func (s *Sequence) Drafted() (drafts, rejected uint64) {
	for i := range s.Stints {
		st := &s.Stints[i]
		for n := st.First; n < st.First+uint64(len(st.Drafts)) && n <= s.LastEmit; n++ {
			if row := s.Engine.Row(n); row != nil && row.Known&KnownCompletion != 0 {
				d, r := st.DraftsIn(n)
				drafts, rejected = drafts+uint64(d), rejected+uint64(r)
			}
		}
	}
	return drafts, rejected
}

// Request is one HTTP request as the front end saw it, with the sequences it made. A sequence whose front end was not
// seen has a request of its own with Received = 0.
type Request struct {
	RequestID   string // the client's X-Request-Id
	ResponseID  string // id in the response body, where the client recorded it
	TraceID     string // from traceparent
	TraceParent string
	Path        string
	Class       string // the workload's class, where the client recorded it
	Labels      Labels // as the front end saw them
	Received    int64
	FirstByte   int64
	LastByte    int64
	Disconnect  int64 // the front end saw the client go
	Status      int
	End         End
	Chunks      uint32
	Bytes       uint64
	SendWait    int64 // ns spent inside send: a slow client
	FrontClock  Clock
	Sequences   []*Sequence
	Clients     []Client // the clients' own views, one an attempt
}

// End says how an HTTP exchange ended.
type End uint8

const (
	EndUnknown    End = 0
	EndComplete   End = 1
	EndDisconnect End = 2
	EndError      End = 3
)

// String is the name used in answers.
func (e End) String() string {
	return [...]string{"unknown", "complete", "client disconnected", "application error"}[min(e, 3)]
}

// MarshalText writes the name.
func (e End) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// Client is one attempt as its client saw it, in the client's clock put on the book's line.
type Client struct {
	Planned int64
	Sent    int64
	First   int64 // first chunk
	Ended   int64
	Status  int
	Outcome Outcome
	Attempt int
	Prompt  uint32
	Output  uint32
	Gaps    []uint32 // µs between chunks; the first counts from Sent
	Error   string
	Clock   Clock
}

// Outcome of a client's attempt. The numbers are those of the wire (message 16).
type Outcome uint8

const (
	OutcomeComplete   Outcome = 0
	OutcomeHTTPError  Outcome = 1
	OutcomeConnection Outcome = 2
	OutcomeCancelled  Outcome = 3
	OutcomeTimeout    Outcome = 4
)

var outcomeNames = [...]string{"complete", "HTTP error", "connection error", "cancelled by the client", "timed out"}

// String is the name used in answers.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return fmt.Sprintf("unknown(%d)", uint8(o))
}

// MarshalText writes the name.
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// Gap is what is known to be missing. Absent is not zero; silence is not health.
type Gap struct {
	Producer string `json:"producer"`         // who: ring, stream or file
	Engine   string `json:"engine,omitempty"` // whose records
	From     uint64 `json:"from,omitempty"`   // first missing sequence number, where known
	To       uint64 `json:"to,omitempty"`     // last one
	Count    uint64 `json:"count"`            // records; 0 = not known
	At       int64  `json:"at_unix_ns"`       // when, 0 = not known
	Why      string `json:"why"`
	Remedy   string `json:"remedy,omitempty"`
}

// String is one line for a person.
func (g Gap) String() string {
	n := "records"
	if g.Count > 0 {
		n = fmt.Sprintf("%d records", g.Count)
	}
	s := fmt.Sprintf("%s: %s missing: %s", g.Producer, n, g.Why)
	if g.Remedy != "" {
		s += "; " + g.Remedy
	}
	return s
}

// Completed is the number of the newest iteration with an end, 0 if there is none. Later rows are in flight.
func (e *Engine) Completed() uint64 {
	for k := len(e.Iterations) - 1; k >= 0; k-- {
		if e.Iterations[k].End != 0 {
			return e.Iterations[k].Number
		}
	}
	return 0
}

// InFlight returns the oldest iteration that was decided and is not done, or nil.
func (e *Engine) InFlight() *Iteration { return e.Row(e.Completed() + 1) }

// Between is the difference of the running sums over iterations from … to, both included and both complete.
func (e *Engine) Between(from, to uint64) Sums {
	s := e.Row(to).Sums
	if prev := e.Row(from - 1); prev != nil {
		return s.Sub(prev.Sums)
	}
	return s.Sub(e.Base)
}

// TileStart is where the tile of iteration n begins: the end of the iteration before it, or its own start if it is the first.
func (e *Engine) TileStart(n uint64) int64 {
	if prev := e.Row(n - 1); prev != nil && prev.End != 0 {
		return prev.End
	}
	if n == e.First && e.BaseEnd != 0 {
		return e.BaseEnd
	}
	if it := e.Row(n); it != nil {
		return it.Start
	}
	return 0
}

// FirstSeen is the first time that anybody saw the request, 0 if nobody said when.
func (r *Request) FirstSeen() int64 {
	t := r.Received
	for _, q := range r.Sequences {
		for _, s := range []int64{q.Submitted, q.Arrived, q.Queued} {
			if s != 0 && (t == 0 || s < t) {
				t = s
			}
		}
	}
	if t == 0 && len(r.Clients) > 0 {
		t = r.Clients[0].Sent
	}
	return t
}
