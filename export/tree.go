package export

import "github.com/whylate/whylate/account"

// Node is a part of a request's time: what bounds it, and the span that it leaves as, a child of the request's own.
type Node struct {
	Part   account.Part
	Bounds string // from – to
	Span   string
}

// tree is the way of a request, in order (DESIGN §7). It is the only description of it: 'explain --tree' and docs/export.md are held to it.
var tree = []Node{
	{account.Gateway, "client accepted – front end received", "whylate.gateway"},
	{account.Frontend, "front end received – reached the engine process", "whylate.frontend"},
	{account.Inbox, "reached the engine process – taken up by the scheduler: in no engine's own metric", "whylate.inbox"},
	{account.Queue, "queued – first scheduled", "whylate.queue"},
	{account.Prefill, "first scheduled – first token", "whylate.prefill"},
	{account.Decode, "first token – last token", "whylate.decode"},
	{account.Transfer, "KV hand-over between legs", "whylate.transfer"},
	{account.Stream, "token emitted – flushed to the client", "whylate.stream"},
}

// Tree lists the parts of a request's time in order.
func Tree() []Node { return append([]Node(nil), tree...) }

// unexplainedSpan is time between parts that no record covers.
const unexplainedSpan = "whylate.unexplained"

func spanName(p account.Part) string {
	for _, n := range tree {
		if n.Part == p {
			return n.Span
		}
	}
	return unexplainedSpan
}
