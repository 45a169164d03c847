package diagnose

import (
	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Explanation is the full answer to "why was this request slow?".
type Explanation struct {
	Request     Request          `json:"request"`
	Headline    string           `json:"headline"` // one sentence
	Account     *account.Account `json:"account"`
	Findings    []Finding        `json:"findings"` // the largest first; empty means nobody is to blame
	Client      *ClientView      `json:"client,omitempty"`
	InFlight    *InFlight        `json:"in_flight,omitempty"`
	Calls       []Call           `json:"calls,omitempty"`       // what spans tell of it (L1), where they tell something
	Evaluations []Evaluation     `json:"evaluations,omitempty"` // how its answer was judged, the oldest first
	Notes       []string         `json:"notes,omitempty"`       // what must be said beside it
	Basis       Basis            `json:"basis"`
}

// Request says which request it is.
type Request struct {
	Name        string              `json:"name"`
	IDs         []string            `json:"ids"`
	Class       string              `json:"class,omitempty"`
	Labels      ledger.Labels       `json:"labels,omitzero"` // keyed hashes, where the front end was told to make them
	Path        string              `json:"path,omitempty"`
	Engine      string              `json:"engine,omitempty"`
	Status      int                 `json:"status,omitempty"`
	End         ledger.End          `json:"end"`
	Reason      ledger.FinishReason `json:"finish_reason"`
	Sequences   int                 `json:"sequences"`
	Prompt      uint32              `json:"prompt_tokens"`
	Cached      uint32              `json:"cached_tokens"`
	Output      uint32              `json:"output_tokens"`
	Received    int64               `json:"received_unix_ns"`
	FirstIter   uint64              `json:"first_iteration,omitempty"`
	LastIter    uint64              `json:"last_iteration,omitempty"`
	Iterations  uint64              `json:"iterations"` // it was a member of
	Preemptions int                 `json:"preemptions"`
	Speculation *Speculation        `json:"speculation,omitempty"` // none where nothing was drafted
}

// Speculation is what became of a request's speculative tokens.
type Speculation struct {
	Drafted  uint64  `json:"drafted_tokens"` // those of which it is known what became of them
	Accepted uint64  `json:"accepted_tokens"`
	Rejected uint64  `json:"rejected_tokens"`
	Rate     float64 `json:"acceptance_rate"` // accepted / drafted
}

// Finding is one thing that made the request late.
type Finding struct {
	ID         string       `json:"id"` // stable name of the kind of finding, see the constants
	Part       account.Part `json:"part"`
	Split      string       `json:"split,omitempty"`
	NS         int64        `json:"ns"`
	Share      float64      `json:"share"`    // of the request's E2E
	Modelled   bool         `json:"modelled"` // the milliseconds come from the iteration-time model
	Text       string       `json:"text"`
	Culprits   []Culprit    `json:"culprits,omitempty"`
	Iterations []uint64     `json:"iterations,omitempty"`
	See        string       `json:"see,omitempty"` // the command that shows the evidence
}

// Kinds of findings.
const (
	InboxBehindIteration = "inbox-behind-iteration" // it waited in the engine's inbox while an iteration ran
	QueueKVBlocks        = "queue-kv-blocks"        // it waited in the queue, KV blocks were the limit
	QueueSequenceLimit   = "queue-sequence-limit"
	QueueTokenBudget     = "queue-token-budget"
	QueueOther           = "queue-other"
	IterationInFlight    = "iteration-in-flight" // it waits for, or sits in, an iteration that is not done
	OddIteration         = "odd-iteration"       // it sat in an iteration far longer than its work explains
	OthersPrefill        = "others-prefill"      // others' prompts were computed in its iterations
	OthersDecode         = "others-decode"       // another request's decode made its iterations longer
	FrontendAnswer       = "frontend-answer"     // its iterations were slow while the front end made a dear answer of another request
	Preempted            = "preempted"           // it lost its blocks, waited, and was computed again
	Skipped              = "skipped"             // it was running and passed over
	Slowdown             = "slowdown"            // iterations were slower than their work explains
	HostGap              = "host-gap"            // nothing ran between its iterations
	FrontendSlow         = "frontend"            // the front end itself
	SlowClient           = "slow-client"         // the client did not take its bytes
	StreamTail           = "stream-tail"         // tokens were ready and not flushed
	Missing              = "records-missing"     // the time cannot be explained since records are missing
)

// Culprit is who is responsible for a finding, and for how much of it.
type Culprit struct {
	Kind string `json:"kind"` // request or iteration
	ID   string `json:"id"`
	Role string `json:"role"` // what it did: "brought", "held", "head of line", "prefill", "decode", "preemptor"
	// NS is what of the finding's time is its own. Of work: with it minus without it, by the model; that of all members does not add up
	// to an iteration. Of something that several held ("held"): its part of the wait, by what it held.
	NS     int64  `json:"ns,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// ClientView compares the client's own clock with the account.
type ClientView struct {
	E2E      int64          `json:"e2e_ns"`
	TTFT     int64          `json:"ttft_ns"`
	Late     int64          `json:"sent_late_ns"` // sent later than the workload planned
	Outside  int64          `json:"outside_ns"`   // client's E2E minus the account's: connection, network, client
	Attempts int            `json:"attempts"`
	Outcome  ledger.Outcome `json:"outcome"`
	Error    string         `json:"error,omitempty"`
}

// InFlight is the iteration that is running now, for a request that has not ended.
type InFlight struct {
	Iteration uint64   `json:"iteration"`
	Since     int64    `json:"decided_unix_ns"`
	For       int64    `json:"for_ns"`
	Expected  int64    `json:"expected_ns,omitempty"` // by the model; 0 = no model
	Members   []string `json:"members"`
}

// Basis says what the answer rests on.
type Basis struct {
	Level       string       `json:"level"`    // of DESIGN §3
	Coverage    float64      `json:"coverage"` // records seen / expected
	Uncertainty int64        `json:"clock_uncertainty_ns"`
	Model       *Model       `json:"model,omitempty"`
	Gaps        []ledger.Gap `json:"gaps,omitempty"`    // that touch the request's time
	Sharpen     string       `json:"sharpen"`           // the one source that would most sharpen the answer
	Untried     []string     `json:"untried,omitempty"` // modes of the engine in which no answer was ever held against a real run
}

// Model is the error of the iteration-time model that the modelled shares rest on.
type Model struct {
	Iterations int     `json:"iterations"`
	HeldOut    int     `json:"held_out"`
	Median     float64 `json:"median_abs_error"`
	P90        float64 `json:"p90_abs_error"`
}
