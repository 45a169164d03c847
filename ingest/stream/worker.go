package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode"

	"github.com/whylate/whylate/wire"
)

// work hands on what was read, in order, until nothing more comes.
func (c *connection) work(ctx context.Context) {
	for {
		group := c.take()
		if group == nil {
			return
		}
		switch w := group[0]; w.kind {
		case kindOpen:
			c.openFeed(ctx, w.feed)
		case kindClose:
			c.s.disclaim(c, w.feed.source.Name)
		default:
			c.deliver(ctx, group)
		}
	}
}

// take waits for work: one opening or closing, or as much data as comes in a row, up to groupBytes. What is left of a connection
// that another has replaced is dropped: it comes again there.
func (c *connection) take() []*work {
	for {
		c.mu.Lock()
		if c.ended && c.refusal != nil && (c.refusal.Code == CodeReplaced || c.refusal.Code == CodeEnding) {
			for _, w := range c.queue {
				c.giveBack(w.bytes)
			}
			c.queue = nil
		}
		if len(c.queue) > 0 {
			n, bytes := 1, c.queue[0].bytes
			for c.queue[0].data() && n < len(c.queue) && c.queue[n].data() && bytes < groupBytes {
				bytes += c.queue[n].bytes
				n++
			}
			group := c.queue[:n:n]
			c.queue = slices.Clone(c.queue[n:])
			c.mu.Unlock()
			return group
		}
		ended := c.ended
		c.mu.Unlock()
		if ended {
			return nil
		}
		<-c.more
	}
}

// openFeed says how far a source is durable, or why it is refused.
func (c *connection) openFeed(ctx context.Context, f *feed) {
	refusal := c.checkSource(f)
	if refusal == nil {
		refusal = c.s.claim(ctx, c, f.source.Name)
	}
	if refusal == nil && c.s.Durable != nil {
		durable, err := c.s.Durable(ctx, f.source)
		if err != nil {
			c.s.disclaim(c, f.source.Name)
			refusal = &Refusal{Code: CodeStore, What: fmt.Sprintf("how far %s is durable: %v", f.source.Name, err), Remedy: "look at the server's log", RetryMS: 5_000}
		}
		f.durable = durable
	}
	if refusal != nil {
		f.refused = true
		c.refuseSource(f.number, refusal)
		return
	}
	c.reply(appendMessage(nil, message{kind: kindOpened, source: f.number, payload: appendMark(nil, Mark{f.number, f.durable})}))
}

// checkSource refuses a source whose opening cannot be right.
func (c *connection) checkSource(f *feed) *Refusal {
	s := f.source
	refuse := func(code Code, what, remedy string, retry int64) *Refusal {
		return &Refusal{Code: code, What: what, Remedy: remedy, RetryMS: retry}
	}
	switch {
	case f.refused:
		return refuse(CodeSource, fmt.Sprintf("what is said of source %d is no JSON, or too much of it", f.number), "compare the sender with docs/formats/agent.md", 0)
	case s.Name == "" || len(s.Name) > maxName || slices.ContainsFunc([]rune(s.Name), unicode.IsControl):
		return refuse(CodeSource, fmt.Sprintf("the name %.40q of source %d", s.Name, f.number), fmt.Sprintf("a name has 1 to %d bytes, all of them printable", maxName), 0)
	}
	if ahead := time.Unix(0, s.Opened).Sub(c.s.Now()); ahead > c.s.settings.MaxAhead {
		r := c.future("source "+s.Name+" was opened", ahead)
		return r
	}
	if s.Hello != nil {
		if _, err := wire.ParseHello(s.Hello); errors.Is(err, wire.ErrNewerMajor) {
			return refuse(CodeVersion, err.Error(), "upgrade the server", 60_000)
		}
	}
	return nil
}

// refuseSource answers that a source is not accepted; the connection lives on.
func (c *connection) refuseSource(number uint16, r *Refusal) {
	c.s.refuse(c, r)
	c.reply(appendMessage(nil, message{kind: kindRefused, source: number, payload: toJSON(r)}))
}

// deliver hands data on, and acknowledges it when it is durable.
func (c *connection) deliver(ctx context.Context, group []*work) {
	var bytes int64
	reached := map[*feed]uint64{}
	var batches []Batch
	var frames, gaps, duplicates uint64
	for _, w := range group {
		bytes += w.bytes
		if w.feed.refused {
			continue
		}
		last, seen := reached[w.feed]
		if !seen {
			last = w.feed.durable
		}
		before := last
		b := Batch{Agent: c.agent, Source: w.feed.source}
		if w.gap != nil {
			b.Gap, last = fresh(w.gap, last)
			gaps++
		} else {
			b.Frames, last = newer(w.frames, last)
			frames += uint64(len(b.Frames))
			duplicates += uint64(len(w.frames) - len(b.Frames))
		}
		reached[w.feed] = max(last, before)
		if b.Gap != nil || len(b.Frames) > 0 {
			batches = append(batches, b)
		} else if w.gap != nil {
			gaps--
			duplicates++
		}
	}
	if len(batches) > 0 {
		if err := c.s.Accept(ctx, batches); err != nil {
			c.refuseData(group, bytes, err)
			return
		}
	}
	c.mu.Lock()
	c.giveBack(bytes)
	c.mu.Unlock()
	c.frames.Add(frames)
	c.s.tally.add(func(t *Stats) {
		t.Frames += frames
		t.Gaps += gaps
		t.Duplicates += duplicates
	})
	var marks []byte
	for f, sequence := range reached {
		f.durable = sequence
		marks = appendMark(marks, Mark{f.number, sequence})
	}
	c.reply(appendMessage(nil, message{kind: kindAck, number: group[len(group)-1].number, payload: marks}))
}

// newer leaves out the frames that do not go on behind last, and returns the last of the others.
func newer(frames []wire.Frame, last uint64) ([]wire.Frame, uint64) {
	ordered, top := true, last
	for _, f := range frames {
		ordered = ordered && f.Sequence > top
		top = max(top, f.Sequence)
	}
	if ordered {
		return frames, top
	}
	var kept []wire.Frame
	for _, f := range frames {
		if f.Sequence > last {
			kept, last = append(kept, f), f.Sequence
		}
	}
	return kept, last
}

// fresh cuts off a gap what is durable, or nil if that is all of it, and returns how far it reaches.
func fresh(g *wire.Gap, last uint64) (*wire.Gap, uint64) {
	switch {
	case g.To == 0:
		return g, last // of bytes, not of sequences
	case g.To <= last || g.From > g.To:
		return nil, last
	}
	cut := *g
	if cut.From <= last && cut.Count > 0 {
		cut.From = last + 1
		cut.Count = min(cut.Count, cut.To-cut.From+1)
	}
	return &cut, cut.To
}

// refuseData answers data that could not be made durable.
func (c *connection) refuseData(group []*work, bytes int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.giveBack(bytes)
	if !errors.Is(err, ErrOverloaded) {
		c.fail(&Refusal{Code: CodeStore, What: "the server cannot keep what it is sent: " + err.Error(), Remedy: "look at its disk and its log; the agent keeps the data and tries again", RetryMS: 5_000})
		return
	}
	c.expected = group[0].number
	c.queue = slices.DeleteFunc(c.queue, func(w *work) bool {
		if w.data() {
			c.giveBack(w.bytes)
		}
		return w.data()
	})
	c.busy()
}
