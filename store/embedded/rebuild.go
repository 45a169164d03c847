package embedded

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
)

// mergeFirsts adds what a stretch says was first.
func mergeFirsts(into *map[string]uint64, text string) error {
	if text == "" {
		return nil
	}
	var m map[string]uint64
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		return fmt.Errorf("column firsts: %w", err)
	}
	if *into == nil {
		*into = map[string]uint64{}
	}
	for what, n := range m {
		if old, ok := (*into)[what]; !ok || n < old {
			(*into)[what] = n
		}
	}
	return nil
}

// engineOf makes an engine, without rows, of its row.
func engineOf(r *store.EngineRow) (*ledger.Engine, error) {
	e := &ledger.Engine{ID: ledger.EngineID{Deployment: r.Deployment, Replica: r.Replica, Rank: int(r.Rank), Incarnation: r.Incarnation},
		Name: r.Name, Version: r.Version, Producer: r.Producer, Depth: int(r.Depth),
		Clock: ledger.Clock{Domain: r.ClockDomain, Offset: r.ClockOffset, Uncertainty: r.ClockError}}
	if err := json.Unmarshal([]byte(r.Settings), &e.Settings); err != nil {
		return nil, fmt.Errorf("column settings: %w", err)
	}
	if err := json.Unmarshal([]byte(r.Capabilities), &e.Capabilities); err != nil {
		return nil, fmt.Errorf("column capabilities: %w", err)
	}
	return e, nil
}

// modelOf reads a stretch's model; nil if there was none.
func modelOf(r *store.EngineRow) (*account.Model, error) {
	if r.Model == "" {
		return nil, nil
	}
	var m account.Model
	if err := json.Unmarshal([]byte(r.Model), &m); err != nil {
		return nil, fmt.Errorf("column model: %w", err)
	}
	return &m, nil
}

// iterationOf makes an iteration of its row and the one before it, whose end and sums it goes on from. Its head is a row number in the
// period, −1 for none.
func iterationOf(r *store.IterationRow, end int64, sums ledger.Sums) ledger.Iteration {
	it := ledger.Iteration{Number: uint64(r.Iteration), Alias: uint64(r.Alias), Start: end + r.Gap, End: r.End, Tokens: uint32(r.Tokens), Members: uint32(r.Members),
		Running: uint32(r.Running), Waiting: uint32(r.Waiting), FreeBlocks: uint32(r.FreeBlocks), Emitted: uint32(r.Emitted), Discarded: uint32(r.Discarded),
		Known: ledger.Known(r.Known), Stop: ledger.SkipReason(r.Stop), Need: uint32(r.Need)}
	if it.Known&ledger.KnownDecision != 0 {
		it.Decided = it.Start - r.DecidedEarly
		it.Launched = it.Decided + r.Schedule
	}
	if it.Known&ledger.KnownCompletion != 0 {
		it.Completed = it.End - r.Output
	}
	sums.Gap += r.Gap + r.Idle
	sums.Unknown += r.Unknown
	sums.Busy += r.End - end - r.Gap - r.Idle - r.Unknown
	if r.Worked != 0 {
		prefill := int64(r.Tokens) - r.DecodeSeqs - r.MoreDecode
		sums.Work = sums.Work.Add(ledger.Work{
			ledger.WorkIterations: float64(r.Worked), ledger.WorkPrefillTokens: float64(prefill), ledger.WorkPrefillContext: float64(prefill*prefill+r.MorePrefill) / 2,
			ledger.WorkDecodeSeqs: float64(r.DecodeSeqs), ledger.WorkDecodeContext: float64(r.DecodeContext), ledger.WorkLogprobRows: float64(r.LogprobRows),
			ledger.WorkPromptLogprobs: float64(r.PromptLogprobs), ledger.WorkPenaltyRows: float64(r.PenaltyRows), ledger.WorkGrammarRows: float64(r.GrammarRows),
			ledger.WorkPrefillSeqs: float64(int64(r.Members) - r.DecodeSeqs)})
	}
	it.Sums = sums
	return it
}

func executionOf(r *store.ExecutionRow) *ledger.Execution {
	return &ledger.Execution{Ranks: uint32(r.Ranks), Slowest: uint32(r.Slowest), Host: r.Host, Device: r.Device, Wait: r.Wait, Peak: uint64(r.Peak), Padded: uint32(r.Padded),
		Graph: ledger.GraphMode(r.Graph), Eager: r.Eager}
}

// sequenceOf makes a sequence, without stints and skips, of its row.
func sequenceOf(r *store.SequenceRow, q *ledger.Request) *ledger.Sequence {
	s := &ledger.Sequence{ID: r.ID, External: r.External, Parent: r.Parent, Index: uint32(r.Index), N: uint16(r.N), Request: q, Prompt: uint32(r.Prompt), Max: uint32(r.Max),
		Output: uint32(r.Output), Cached: uint32(r.Cached), Hashes: int(r.Hashes), Logprobs: int16(r.Logprobs), PromptLogprobs: int16(r.PromptLogprobs),
		Priority: r.Priority, Features: ledger.Feature(r.Features), Submitted: r.Submitted, Arrived: r.Arrived, Queued: r.Queued, FirstToken: r.FirstToken,
		LastToken: r.LastToken, Finished: r.Finished, Answered: r.Answered, Delivered: r.Delivered, Reason: ledger.FinishReason(r.Reason), StopString: r.StopString,
		Join: uint64(r.Join), Leave: uint64(r.Leave), FirstEmit: uint64(r.FirstEmit), LastEmit: uint64(r.LastEmit), FirstUncertain: r.FirstUncertain}
	if r.Templates && q != nil {
		s.ID, s.External, s.Parent = untemplate(r.ID, q.RequestID), untemplate(r.External, q.RequestID), untemplate(r.Parent, q.RequestID)
	}
	return s
}

func stintOf(r *store.StintRow, q *ledger.Sequence) ledger.Stint {
	return ledger.Stint{Seq: q, Phase: ledger.Phase(r.Phase), First: uint64(r.First), Last: uint64(r.First) + uint64(r.Iterations) - 1, Before: uint32(r.Before), Final: r.Final,
		Tokens: counts[uint32](r.Tokens), Drafts: counts[uint16](r.Drafts), Rejected: counts[uint16](r.Rejected)}
}

// counts is a list of a row as the ledger has it: nil where it is empty.
func counts[N uint16 | uint32](list []int32) []N {
	var out []N
	for _, n := range list {
		out = append(out, N(n))
	}
	return out
}

// requestOf makes a request, without sequences, of its row and its clients' rows.
func requestOf(r *store.RequestRow, clients []store.ClientRow) *ledger.Request {
	q := &ledger.Request{RequestID: r.RequestID, ResponseID: r.ResponseID, TraceID: r.TraceID, TraceParent: r.TraceParent, Path: r.Path, Class: r.Class,
		Received: r.Received, FirstByte: r.FirstByte, LastByte: r.LastByte, Disconnect: r.Disconnect, Status: int(r.Status), End: ledger.End(r.End),
		Chunks: uint32(r.Chunks), Bytes: uint64(r.Bytes), SendWait: r.SendWait, FrontClock: ledger.Clock{Domain: r.ClockDomain, Offset: r.ClockOffset, Uncertainty: r.ClockError}, Labels: r.Labels()}
	if r.Templates {
		q.ResponseID = untemplate(r.ResponseID, r.RequestID)
		if usable(r.TraceID) {
			q.TraceParent = untemplate(r.TraceParent, r.TraceID)
		}
	}
	for _, k := range clients {
		c := ledger.Client{Planned: k.Planned, Sent: k.Sent, First: k.First, Ended: k.Ended, Status: int(k.Status), Outcome: ledger.Outcome(k.Outcome), Attempt: int(k.Attempt),
			Prompt: uint32(k.Prompt), Output: uint32(k.Output), Error: k.Error, Clock: ledger.Clock{Domain: k.ClockDomain, Offset: k.ClockOffset, Uncertainty: k.ClockError}}
		for _, g := range k.Gaps {
			c.Gaps = append(c.Gaps, uint32(g))
		}
		q.Clients = append(q.Clients, c)
	}
	return q
}

// plain is a request row with its ids in full.
func plain(r store.RequestRow) store.RequestRow {
	q := requestOf(&r, nil)
	r.ResponseID, r.TraceParent, r.Templates = q.ResponseID, q.TraceParent, false
	return r
}

// gapsOf makes gap records of their rows.
func gapsOf(rows []store.GapRow, engine string) []ledger.Gap {
	var out []ledger.Gap
	for _, r := range rows {
		out = append(out, ledger.Gap{Producer: r.Producer, Engine: engine, From: uint64(r.First), To: uint64(r.Last), Count: uint64(r.Count), At: r.At, Why: r.Why, Remedy: r.Remedy})
	}
	return slices.Clip(out)
}
