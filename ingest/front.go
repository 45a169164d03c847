package ingest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// delivery is the batch of sequences whose output was last handed to the streams. Batches mostly repeat, so a sequence
// is touched only when the batch changes.
type delivery struct {
	handles []uint32
	at      int64
}

// waiting is a sequence that has reached an engine's process; its scheduler may take it up later, or never.
type waiting struct {
	seq    *ledger.Sequence
	engine ledger.EngineID
}

// clientView is a client's record that waits to be joined to a request.
type clientView struct {
	requestID, traceID, traceParent, responseID, class string
	view                                               ledger.Client
}

func (a *Assembler) received(s *source, m *wire.Received) error {
	if s.http[m.HTTP] != nil {
		return fmt.Errorf("field http: %d was received before", m.HTTP)
	}
	r := &ledger.Request{RequestID: m.RequestID, TraceParent: m.Traceparent, TraceID: traceID(m.Traceparent), Path: m.Path,
		Received: s.clock.at(m.Time), FrontClock: s.clock.Clock}
	s.http[m.HTTP] = r
	a.addRequest(r)
	return nil
}

func (a *Assembler) submitted(s *source, m *wire.Submitted) error {
	q := a.sequence(s, m.ID)
	q.External, q.Parent, q.Index = m.External, m.Parent, m.Index
	q.Submitted = s.clock.at(m.Time)
	if q.Prompt == 0 {
		q.Prompt = m.Prompt
	}
	s.handles[m.Handle] = q
	if r := s.http[m.HTTP]; r != nil {
		a.move(q, r)
	}
	return nil
}

// exchange finds the HTTP request of a later record. One whose beginning was lost is made anew, so that its end is not lost too.
func (a *Assembler) exchange(s *source, http uint32) *ledger.Request {
	r := s.http[http]
	if r == nil {
		r = &ledger.Request{FrontClock: s.clock.Clock}
		s.http[http] = r
		a.addRequest(r)
	}
	return r
}

func (a *Assembler) labels(s *source, m *wire.Labels) error {
	l := &a.exchange(s, m.HTTP).Labels
	*l = ledger.Labels{Tenant: cmp.Or(ledger.Label(m.Tenant), l.Tenant), Class: cmp.Or(ledger.Label(m.Class), l.Class), Route: cmp.Or(ledger.Label(m.Route), l.Route)}
	return nil
}

func (a *Assembler) firstByte(s *source, m *wire.FirstByte) error {
	r := a.exchange(s, m.HTTP)
	r.FirstByte, r.Status = s.clock.at(m.Time), int(m.Status)
	return nil
}

func (a *Assembler) lastByte(s *source, m *wire.LastByte) error {
	r := a.exchange(s, m.HTTP)
	t := s.clock.at(m.Time)
	if t < r.Received {
		return fmt.Errorf("field time: the last byte lies %d ns before its request was received", r.Received-t)
	}
	r.LastByte, r.Status = t, int(m.Status)
	r.End = ledger.End(m.End + 1)
	r.Chunks, r.Bytes, r.SendWait, r.Disconnect = m.Chunks, m.Bytes, int64(m.Wait), s.clock.at(m.Disconnect)
	return nil
}

func (a *Assembler) answered(s *source, m *wire.Answered) error {
	q := s.handles[m.Handle]
	if q == nil {
		return unknownHandle(m.Handle)
	}
	q.Answered = s.clock.at(m.Time)
	q.StopString = m.By == wire.ByStopString
	// The front end's reason is the true one: a stop string looks like an abort to the scheduler.
	if m.Reason != ledger.FinishUnknown {
		q.Reason = m.Reason
	}
	return nil
}

func (a *Assembler) delivered(s *source, m *wire.Delivered) error {
	b := &s.batch
	if !m.Same {
		b.flush(s)
		b.handles = append(b.handles[:0], m.Handles...)
	}
	b.at = s.clock.at(m.Time)
	return nil
}

// flush writes the time of the last hand-over to the sequences of the batch.
func (b *delivery) flush(s *source) {
	for _, h := range b.handles {
		if q := s.handles[h]; q != nil {
			q.Delivered = b.at
		}
	}
}

func (a *Assembler) arrived(s *source, m *wire.Arrived) error {
	q := a.sequence(s, m.ID)
	if t := s.clock.at(m.Time); q.Arrived == 0 || t < q.Arrived { // the later chunks of a streaming session arrive, too
		q.Arrived = t
	}
	if q.Queued == 0 {
		a.inInbox = append(a.inInbox, waiting{q, s.id})
	}
	if m.External != "" {
		q.External = m.External
	}
	return nil
}

func (a *Assembler) client(s *source, m *wire.Client) {
	at := s.clock.at
	a.clients = append(a.clients, clientView{
		requestID: m.RequestID, traceParent: m.Traceparent, traceID: traceID(m.Traceparent), responseID: m.ResponseID, class: m.Class,
		view: ledger.Client{Planned: at(m.Planned), Sent: at(m.Time), First: at(m.First), Ended: at(m.End), Status: int(m.Status),
			Outcome: ledger.Outcome(m.Outcome), Attempt: int(m.Attempt), Prompt: m.Prompt, Output: m.Output,
			Gaps: slices.Clone(m.Gaps), Error: m.Error, Clock: s.clock.Clock},
	})
}

// joinClients hands each client's view to the request it speaks of: by trace id, which is new for every attempt, else by
// X-Request-Id. A view of a request that has not been seen stays.
func (a *Assembler) joinClients() {
	slices.SortStableFunc(a.clients, func(x, y clientView) int { return cmp.Compare(x.view.Sent, y.view.Sent) })
	a.clients = slices.DeleteFunc(a.clients, func(c clientView) bool {
		r := a.byTrace[c.traceID]
		if r == nil && c.requestID != "" {
			// Attempts under one id arrive in the order in which they were sent.
			for _, candidate := range a.byRequest[c.requestID] {
				if len(candidate.Clients) == 0 && (candidate.TraceID == "" || c.traceID == "") {
					r = candidate
					break
				}
			}
		}
		if r == nil {
			return false
		}
		c.join(r)
		return true
	})
}

// join hands the view to its request.
func (c *clientView) join(r *ledger.Request) {
	r.ResponseID = cmp.Or(r.ResponseID, c.responseID)
	r.Class = cmp.Or(r.Class, c.class)
	r.Clients = append(r.Clients, c.view)
}

// traceID is the second field of a W3C traceparent, or "".
func traceID(traceparent string) string {
	parts := strings.Split(traceparent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 {
		return ""
	}
	return parts[1]
}

func unknownHandle(h uint32) error {
	return fmt.Errorf("field handle: %d was never introduced (its first record is missing)", h)
}
