package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/whylate/whylate/experiment"
)

// follow reads the stream of a response into r.
func (c *client) follow(ctx context.Context, hangUp context.CancelCauseFunc, body io.Reader, j *job, r *Result) {
	events := newEventReader(body, c.Clock, c.MaxLine)
	var said answer
	err := said.read(events, r, j.request.CancelChunks)
	said.report(r)
	switch nothing := len(r.Chunks) == 0 && said.finished == 0; {
	case err == errHungUp:
		c.end(r, Cancelled, "", events.at)
	case errors.Is(err, errTooLong):
		c.end(r, HTTPError, err.Error(), events.at)
	case err != nil && !said.whole(r.Sequences):
		c.broken(ctx, r, "the stream broke: "+err.Error())
	case said.fault != "":
		c.end(r, HTTPError, said.fault, events.at)
	case !said.whole(r.Sequences):
		c.end(r, ConnectionError, fmt.Sprintf("the stream ended after %d chunks without [DONE]", len(r.Chunks)), events.at)
	case nothing:
		c.end(r, HTTPError, "the stream said [DONE] without any output", events.at)
	default:
		c.end(r, Complete, "", events.at)
	}
	if said.done { // read on to the end of the body, so that the connection can serve another request
		go c.hangUpAt(ctx, c.Clock.Now()+int64(tailLimit), hangUp, errTimeout)
		io.CopyN(io.Discard, body, tailBytes)
	}
}

// read takes events until the stream is done, ends, breaks, or has brought as many chunks as the client waits for.
func (a *answer) read(events *eventReader, r *Result, most int) error {
	var now int64
	output := func(sequence int) { r.Chunks = append(r.Chunks, Chunk{At: now, Sequence: sequence}) }
	for !a.done {
		e, err := events.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		now = e.at
		a.take(e, output)
		if most > 0 && len(r.Chunks) >= most {
			return errHungUp
		}
	}
	return nil
}

// readWhole reads an answer that is not streamed. When its first token was made nobody can tell from outside, so First and
// Chunks stay empty.
func (c *client) readWhole(ctx context.Context, body io.Reader, r *Result) {
	text, err := io.ReadAll(io.LimitReader(body, int64(c.MaxLine)+1))
	now := c.Clock.Now()
	switch {
	case err != nil:
		c.broken(ctx, r, "the answer broke: "+err.Error())
		return
	case len(text) > c.MaxLine:
		c.end(r, HTTPError, fmt.Sprintf("the answer is %v of %d bytes", errTooLong, c.MaxLine), now)
		return
	}
	var said answer
	said.take(event{data: text}, func(int) {})
	said.report(r)
	switch {
	case said.fault != "":
		c.end(r, HTTPError, said.fault, now)
	case !said.whole(r.Sequences):
		c.end(r, HTTPError, fmt.Sprintf("the answer has %d of %d sequences", said.finished, r.Sequences), now)
	default:
		c.end(r, Complete, "", now)
	}
}

// report puts what was said into r.
func (a *answer) report(r *Result) {
	r.ResponseID = cut(a.id, experiment.MaxName)
	if len(r.Chunks) > 0 {
		r.First = r.Chunks[0].At
	}
	r.OutputTokens = a.counted
	if u := a.usage; u != nil {
		r.PromptTokens, r.OutputTokens, r.UsageReported = u.PromptTokens, u.CompletionTokens, true
	}
}

// broken ends an attempt whose exchange was cut off. The reason may be the client's own.
func (c *client) broken(ctx context.Context, r *Result, fault string) {
	now := c.Clock.Now()
	switch cause := context.Cause(ctx); {
	case cause == nil:
		c.end(r, ConnectionError, fault, now)
	case errors.Is(cause, errHungUp):
		c.end(r, Cancelled, "", now)
	case errors.Is(cause, errTimeout):
		c.end(r, TimedOut, fmt.Sprintf("%v of %v", errTimeout, c.Timeout), now)
	default:
		c.end(r, Cancelled, "the replay was stopped: "+cause.Error(), now)
	}
}

func (c *client) end(r *Result, outcome Outcome, fault string, at int64) {
	r.Outcome, r.End, r.Error = outcome, at, cut(fault, errorLength)
}

// cut shortens s to at most n bytes, at the border of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
