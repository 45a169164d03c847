// Package api is what whylate answers: the result types and the interface that gives them. The command line asks a [Service] and
// cannot tell whether it reads files in its own process or talks to a server.
package api

import (
	"context"
	"io"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
)

// Service answers the named questions. It may be asked by many at once. Unknown and ambiguous requests are *query.NotFound and
// *query.Ambiguous; a bad argument is an *[InvalidArgument]; the other refusals are in errors.go.
type Service interface {
	// Requests lists requests with the sums of their accounts.
	Requests(context.Context, RequestsQuery) (*RequestList, error)
	// Explain explains one request, or the first one that the selector gives.
	Explain(context.Context, ExplainQuery) (*diagnose.Explanation, error)
	// Iterations lists iterations of one engine.
	Iterations(context.Context, IterationsQuery) (*IterationList, error)
	// Iteration shows one iteration with its members and who waited for it.
	Iteration(context.Context, IterationQuery) (*IterationDetail, error)
	// Odd lists the iterations far above what their work explains, of all engines.
	Odd(context.Context) (*OddList, error)
	// Overview says what there is: engines, sources, gaps.
	Overview(context.Context) (*Overview, error)
	// Engines says what each engine is doing now.
	Engines(context.Context) (*EngineList, error)
	// Devices says what each GPU that is sampled does now.
	Devices(context.Context) (*DeviceList, error)
	// Changes lists what changed about the engines: restarts, versions, settings, ranks.
	Changes(context.Context, ChangesQuery) (*ChangeList, error)
	// Watch tells what happens from now on, or from after the event with the id since. The channel is closed when the context
	// ends or the service stops. Who reads too slowly misses events and is told how many (EventLost); nobody waits for him. A
	// service whose records do not grow refuses with an *[Unsupported].
	Watch(ctx context.Context, since string) (<-chan Event, error)
}

// Importer is a [Service] that takes captures in.
type Importer interface {
	// Import reads one capture file (docs/formats/stream.md), file of OTLP traces, or zip of a run bundle (docs/formats/bundle.md) to its
	// end. Records that are there already are counted and change nothing, so an import may be repeated. It returns when what it took is kept.
	Import(context.Context, ImportQuery, io.Reader) (*ImportResult, error)
}

// Teller is a [Service] that is told changes from outside.
type Teller interface {
	// Tell keeps a change and returns it as it is kept, when it is durable. At 0 is now; one whose ID is known is not kept twice.
	Tell(context.Context, Change) (*Change, error)
}

// InvalidArgument is a question that cannot be asked so: what is wrong with which argument, and what to do.
type InvalidArgument struct{ Argument, Value, Problem string }

func (e *InvalidArgument) Error() string { return e.Argument + " " + e.Value + ": " + e.Problem }

// RequestsQuery selects requests.
type RequestsQuery struct {
	Sort string        // ttft, tpot, e2e or a part, the worst first; "" = by arrival, the newest first
	At   time.Time     // there at this moment; zero = any
	Over time.Duration // E2E above this
	From time.Time     // arrived at or after this; zero = any
	To   time.Time     // arrived before this; zero = any
	// Class is the class as the client named it, or the first digits of its label; Tenant and Route are first digits of labels
	// (ledger.Label); "" = any.
	Class, Tenant, Route string
	Limit                int    // 0 = all
	Page                 string // Next of the list before; "" = the first page
}

// ExplainQuery names a request by any id it has, or selects one.
type ExplainQuery struct {
	ID string
	RequestsQuery
}

// RequestList is a list of requests and the statement of all that matched.
type RequestList struct {
	Matched    int               `json:"matched"` // before the limit
	Requests   []RequestRow      `json:"requests"`
	Statement  account.Statement `json:"statement"`       // of all that matched
	Calls      *CallStatement    `json:"calls,omitempty"` // of the listed ones that spans alone tell of; none if there is none
	ClientOnly int               `json:"client_only"`
	Next       string            `json:"next_page,omitempty"` // names the page that follows; "" = this is the last
}

// CallStatement says of how many requests the calls of a list (level L1) speak: tracers keep a sample.
type CallStatement struct {
	Calls       int     `json:"calls"`                    // that are listed
	Known       bool    `json:"denominator_known"`        // each says with what probability it was kept
	Estimate    float64 `json:"stand_for,omitempty"`      // sum of their weights
	Error       float64 `json:"standard_error,omitempty"` // of that
	Denominator string  `json:"denominator"`              // in words
	E2E         int64   `json:"mean_e2e_ns"`              // of those listed, unweighted
}

// RequestRow is one request in a list.
type RequestRow struct {
	Level       int                 `json:"level,omitempty"`  // 1 = spans alone tell of it (L1); none = front end and scheduler do
	Weight      float64             `json:"weight,omitempty"` // of level 1: how many requests it stands for; 0 = denominator unknown
	Name        string              `json:"name"`
	IDs         []string            `json:"ids"`
	Class       string              `json:"class,omitempty"`
	Labels      ledger.Labels       `json:"labels,omitzero"` // keyed hashes, where the front end was told to make them
	Received    int64               `json:"received_unix_ns"`
	State       account.State       `json:"state"`
	Status      int                 `json:"status,omitempty"`
	End         ledger.End          `json:"end"`
	Reason      ledger.FinishReason `json:"finish_reason"`
	E2E         int64               `json:"e2e_ns"`
	TTFT        int64               `json:"ttft_ns"`
	TPOT        int64               `json:"tpot_ns"`
	Sequences   int                 `json:"sequences"`
	Prompt      uint32              `json:"prompt_tokens"`
	Output      uint32              `json:"output_tokens"`
	Preemptions int                 `json:"preemptions"`
	Largest     account.Part        `json:"largest_part,omitempty"` // none if no time has passed
	Share       float64             `json:"largest_share"`
	Sorted      int64               `json:"sorted_ns,omitempty"` // what the list is sorted by; 0 if by arrival
}

// IterationsQuery selects iterations. Engine is a prefix of the engine's id; "" is right when there is only one.
type IterationsQuery struct {
	Engine  string
	From    uint64 // 0 = first
	To      uint64 // 0 = last
	Request string // only those of this request's life: any id
	Limit   int
}

// IterationQuery names one iteration.
type IterationQuery struct {
	Engine string
	Number uint64
}

// IterationList is a list of iterations of one engine.
type IterationList struct {
	Engine     string          `json:"engine"`
	Model      *diagnose.Model `json:"model,omitempty"`
	Matched    int             `json:"matched"`
	Iterations []IterationRow  `json:"iterations"`
	Next       uint64          `json:"next_iteration,omitempty"` // the first that matches and is not listed; 0 = all are listed
}

// IterationRow is one iteration in a list.
type IterationRow struct {
	Number    uint64            `json:"number"`
	Alias     uint64            `json:"engine_index,omitempty"`
	Decided   int64             `json:"decided_unix_ns"`
	Gap       int64             `json:"gap_ns"` // nothing ran before it
	Duration  int64             `json:"duration_ns"`
	Expected  int64             `json:"expected_ns,omitempty"` // by the model; 0 = no model
	Tokens    uint32            `json:"tokens"`
	Prefill   uint32            `json:"prefill_tokens"`
	Members   uint32            `json:"members"`
	Running   uint32            `json:"running"`
	Waiting   uint32            `json:"waiting"`
	Free      uint32            `json:"free_blocks"`
	Emitted   uint32            `json:"emitted"`
	Discarded uint32            `json:"discarded"`
	Evicted   uint32            `json:"evicted_blocks,omitempty"` // told at this iteration: those of up to 16 decisions come together
	Stop      ledger.SkipReason `json:"stop"`
	Head      string            `json:"head,omitempty"`
	Need      uint32            `json:"head_needs_blocks,omitempty"`
	Complete  bool              `json:"complete"` // decision, membership and completion were all recorded
	InFlight  bool              `json:"in_flight,omitempty"`
	Of        string            `json:"of_request,omitempty"` // what the asked-for request did in it
}

// IterationDetail is one iteration with everybody in it.
type IterationDetail struct {
	Engine      string        `json:"engine"`
	Row         IterationRow  `json:"iteration"`
	Members     []MemberRow   `json:"members"`
	New         []NewRow      `json:"new,omitempty"`
	Waiters     []WaiterRow   `json:"waiters,omitempty"`
	Preemptions []PreemptRow  `json:"preemptions,omitempty"`
	Holders     []HolderRow   `json:"holders,omitempty"`
	Execution   *ExecutionRow `json:"execution,omitempty"` // none where no rank was seen
	Evictions   []EvictionRow `json:"evictions,omitempty"` // told at this iteration: those of up to 16 decisions come together
	Odd         bool          `json:"odd"`
	Statement   string        `json:"statement"` // one sentence
	Gaps        []ledger.Gap  `json:"gaps,omitempty"`
	Took        time.Duration `json:"-"`
}

// MemberRow is one member of an iteration.
type MemberRow struct {
	Request  string       `json:"request"`
	Sequence string       `json:"sequence"`
	Phase    ledger.Phase `json:"phase"`
	Tokens   uint32       `json:"tokens"`
	Drafts   uint32       `json:"drafted_tokens,omitempty"`  // of the tokens, speculative ones
	Rejected uint32       `json:"rejected_tokens,omitempty"` // of those, the ones that the model did not agree with
	Before   uint32       `json:"computed_before"`
	Joined   bool         `json:"joined"`
	Share    int64        `json:"share_ns"`    // of the measured time; shares sum to it
	Marginal int64        `json:"marginal_ns"` // with it minus without it; these do not sum
	Special  []string     `json:"special,omitempty"`
}

// NewRow is something that the iteration was the first to carry, or that joined in it.
type NewRow struct {
	What  string   `json:"what"`
	First bool     `json:"first"`
	By    []string `json:"by"`
}

// WaiterRow is a request that waited while the iteration ran.
type WaiterRow struct {
	Request string       `json:"request"`
	NS      int64        `json:"ns"`
	Where   account.Part `json:"where"`
}

// PreemptRow is a preemption that happened in the iteration's decision.
type PreemptRow struct {
	Victim    string `json:"victim"`
	Preemptor string `json:"preemptor,omitempty"`
	Lost      uint32 `json:"tokens_lost"`
	Blocks    uint32 `json:"blocks"`
	Free      uint32 `json:"free_blocks_before"`
}

// HolderRow is a share of the KV pool.
type HolderRow struct {
	Request string  `json:"request"`
	Blocks  uint32  `json:"blocks"`
	Weight  float32 `json:"blocks_shared_counted_once"`
}

// ExecutionRow is what the ranks said of executing the iteration's batch, put together: it is as slow as its slowest rank.
type ExecutionRow struct {
	Ranks   uint32           `json:"ranks"` // that were seen
	Slowest uint32           `json:"slowest_rank"`
	Host    int64            `json:"host_ns"`                      // longest time of a rank from entry to return
	Device  int64            `json:"device_ns,omitempty"`          // longest time of a device's own work; 0 = not measured
	Wait    int64            `json:"collective_wait_ns,omitempty"` // longest wait in collectives
	Graph   ledger.GraphMode `json:"graph_mode"`
	Eager   bool             `json:"eager_fallback"` // there are graphs, and some rank ran without
	Padded  uint32           `json:"padded_tokens,omitempty"`
	Peak    uint64           `json:"peak_memory_bytes,omitempty"` // most memory that a rank had ever allocated; 0 = not measured
}

// EvictionRow is blocks of the prefix cache that were given up for others.
type EvictionRow struct {
	LastUser string `json:"last_user,omitempty"` // the request that had used them last; none if that is not known
	Blocks   uint32 `json:"blocks"`
}

// OddList lists odd iterations, the largest excess first.
type OddList struct {
	Odd []OddRow `json:"odd"`
}

// OddRow is an odd iteration.
type OddRow struct {
	Engine   string   `json:"engine"`
	Number   uint64   `json:"number"`
	Decided  int64    `json:"decided_unix_ns"`
	Duration int64    `json:"duration_ns"`
	Expected int64    `json:"expected_ns"`
	Members  uint32   `json:"members"`
	Waited   int      `json:"waited"` // requests that waited for it
	New      []NewRow `json:"new,omitempty"`
}

// Overview says what an answer can rest on.
type Overview struct {
	From     int64           `json:"from_unix_ns"`
	To       int64           `json:"to_unix_ns"`
	Requests int             `json:"requests"`
	Engines  []EngineRow     `json:"engines"`
	Sources  []ledger.Source `json:"sources"`
	Gaps     []ledger.Gap    `json:"gaps,omitempty"`
	Notices  []string        `json:"notices,omitempty"`
	Storage  *Storage        `json:"storage,omitempty"` // of a server; a recording has none
	Faults   []Fault         `json:"faults,omitempty"`  // what goes wrong inside the server
}

// Storage is the room that a server has, and how long it will do.
type Storage struct {
	Dir    string `json:"dir"`
	Total  int64  `json:"total_bytes"` // of the file system
	Free   int64  `json:"free_bytes"`
	Log    int64  `json:"log_bytes"`
	Sealed int64  `json:"sealed_bytes"`
	PerDay int64  `json:"growth_bytes_per_day"` // of what is sealed; 0 = not known yet
	FullIn int64  `json:"full_in_ns"`           // 0 = not known, or not within the retention
}

// Fault is one kind of thing that goes wrong inside a server.
type Fault struct {
	What  string `json:"what"`
	Count uint64 `json:"count"`
	Last  string `json:"last"` // the newest error
	At    int64  `json:"at_unix_ns"`
	// Remedy is what to do about it; "" = the server's log says more.
	Remedy string `json:"remedy,omitempty"`
}

// EngineRow is one engine incarnation.
type EngineRow struct {
	ID          string          `json:"id"`
	Engine      string          `json:"engine"` // name and version
	Producer    string          `json:"producer"`
	Iterations  int             `json:"iterations"`
	Sequences   int             `json:"sequences"`
	Preemptions int             `json:"preemptions"`
	Settings    map[string]any  `json:"settings"`
	Sees        map[string]bool `json:"capabilities"`
	Model       *diagnose.Model `json:"model,omitempty"`
}

// GapList is what is known to be missing, in the order in which it was noticed.
type GapList struct {
	Matched int          `json:"matched"` // before the limit
	Gaps    []ledger.Gap `json:"gaps"`
}

// SourceList is the rings, streams and files that the answers rest on.
type SourceList struct {
	Sources []ledger.Source `json:"sources"`
}
