package store

import (
	"slices"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/ledger"
)

// RowOfCall is a call as a row of requests, with the sums of its account like any other.
func RowOfCall(k Call) RequestRow {
	r := RequestRow{Level: 1, From: k.Start, Received: k.Start, State: string(account.Finished), RequestID: k.RequestID, ResponseID: k.ResponseID, TraceID: k.Trace.String()}
	if k.E2E.Known {
		r.E2E = k.E2E.NS
	}
	for _, f := range k.First {
		if f.Standing == genai.Measured {
			r.TTFT, r.TTFTEnds = f.NS, f.To
			break
		}
	}
	if k.Input.Known {
		r.Prompt = int32(k.Input.N)
	}
	if k.Cached.Known {
		r.Cached = int32(k.Cached.N)
	}
	if k.Output.Known {
		r.Output, r.TailOutput = int32(k.Output.N), int32(k.Output.N)
		took := r.E2E
		if k.Server.Known { // the first token is counted from there, not from the client
			took = k.Server.NS
		}
		if n := k.Output.N; n > 1 && r.TTFT > 0 && took > r.TTFT && k.Sequences == 1 {
			r.TPOT = (took - r.TTFT) / (n - 1)
		}
	}
	switch k.Outcome {
	case genai.Complete:
		r.End = int32(ledger.EndComplete)
	case genai.Aborted:
		r.End = int32(ledger.EndDisconnect)
	case genai.Errored:
		r.End = int32(ledger.EndError)
	}
	if len(k.Layers) > 0 {
		code, _ := k.Layers[0].Span.Number(genai.HTTPStatus)
		r.Status = int32(code)
	}
	parts := PartColumns(&r)
	for _, l := range k.Lines {
		if i := slices.Index(account.Parts, l.Part); i >= 0 {
			*parts[i] += l.NS
			if l.Standing != genai.Unknown {
				r.Seen |= 1 << i
			}
		}
	}
	if r.Seen |= 1 << slices.Index(account.Parts, account.Unexplained); k.As != Own { // a list passes over what has no part
		r.Seen = 0
	}
	r.Threshold = -1
	if k.Threshold.Known {
		r.Threshold = int64(k.Threshold.T)
	}
	return r
}

// SampledAt is the rejection threshold with which a call of level 1 was kept.
func (r *RequestRow) SampledAt() genai.Threshold {
	if r.Level != 1 || r.Threshold < 0 {
		return genai.Threshold{}
	}
	return genai.Threshold{T: uint64(r.Threshold), Known: true}
}

// PartColumns are the columns of the nine parts, in the order of account.Parts.
func PartColumns(r *RequestRow) []*int64 {
	return []*int64{&r.Gateway, &r.Frontend, &r.Inbox, &r.Queue, &r.Prefill, &r.Decode, &r.Transfer, &r.Stream, &r.Unexplained}
}
