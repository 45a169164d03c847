package export

import (
	"cmp"
	"slices"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/whylate/whylate/ledger"
)

// mostEvents bounds the events of one span; what is above it is counted as dropped.
const mostEvents = 128

// Names of events. first_token is what engines that trace call it.
const (
	eventFirstToken  = "first_token"
	eventFirstByte   = "whylate.first_byte"
	eventHungUp      = "whylate.client_disconnected"
	eventStint       = "whylate.stint"
	eventRecompute   = "whylate.recompute"
	eventPreemption  = "whylate.preemption"
	attrIteration    = "whylate.iteration"
	attrFirst        = "whylate.iteration.first"
	attrLast         = "whylate.iteration.last"
	attrEngine       = "whylate.engine"
	attrIncarnation  = "whylate.engine.incarnation"
	attrPhase        = "whylate.phase"
	attrTokens       = "whylate.tokens"
	attrLostTokens   = "whylate.lost_tokens"
	attrLostBlocks   = "whylate.lost_blocks"
	attrReset        = "whylate.administrative_reset"
	attrStintEndTime = "whylate.end_unix_ns"
)

// event adds an event to a span, in order of calls.
func event(s *tracepb.Span, name string, t int64, at attributes) {
	if s == nil {
		return
	}
	if len(s.Events) >= mostEvents {
		s.DroppedEventsCount++
		return
	}
	s.Events = append(s.Events, &tracepb.Span_Event{Name: name, TimeUnixNano: uint64(t), Attributes: at})
}

// within is the last of touching spans that begins at t or before.
func within(spans []*tracepb.Span, t int64) *tracepb.Span {
	for i := len(spans) - 1; i >= 0; i-- {
		if spans[i].StartTimeUnixNano <= uint64(max(t, 0)) {
			return spans[i]
		}
	}
	if len(spans) == 0 {
		return nil
	}
	return spans[0]
}

// moments are the events of the request as a whole.
func (b *builder) moments() {
	if t := b.firstToken(); t != 0 {
		var at attributes
		at.some(attrIteration, int64(b.a.Lead.FirstEmit))
		event(cmp.Or(within(b.parts, t-1), b.root), eventFirstToken, t, at) // it ends the part that it was waited for in
	}
	if t := b.r.FirstByte; t != 0 {
		event(b.root, eventFirstByte, t, nil)
	}
	if t := b.r.Disconnect; t != 0 {
		event(b.root, eventHungUp, t, nil)
	}
}

// life tells the stints of a sequence, iteration ranges that its engine's records and 'whylate iterations' know, and its preemptions: each in
// the span that it falls into.
func (b *builder) life(q *ledger.Sequence, into []*tracepb.Span) {
	if q.Engine == nil || len(into) == 0 {
		return
	}
	for k := range q.Stints {
		s := &q.Stints[k]
		row := q.Engine.Row(s.First)
		if row == nil {
			continue
		}
		var at attributes
		at.text(attrEngine, q.Engine.ID.String())
		at.text(attrIncarnation, q.Engine.ID.Incarnation)
		at.number(attrFirst, int64(s.First))
		at.number(attrLast, int64(s.Last))
		at.text(attrPhase, s.Phase.String())
		at.number(attrTokens, int64(s.Sum()))
		if last := q.Engine.Row(s.Last); last != nil {
			at.some(attrStintEndTime, last.End)
		}
		name := eventStint
		if s.Phase == ledger.Recompute {
			name = eventRecompute
		}
		event(within(into, row.Start), name, row.Start, at)
	}
	for _, p := range q.Preemptions {
		var at attributes
		at.number(attrIteration, int64(p.Iteration))
		at.number(attrLostTokens, int64(p.Lost))
		at.number(attrLostBlocks, int64(p.Blocks))
		if p.Reset {
			at.flag(attrReset, true)
		}
		event(within(into, p.At), eventPreemption, p.At, at)
	}
	for _, s := range into {
		slices.SortStableFunc(s.Events, func(x, y *tracepb.Span_Event) int { return cmp.Compare(x.TimeUnixNano, y.TimeUnixNano) })
	}
}
