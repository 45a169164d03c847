package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/signals"
)

// branch is one part of a request's time, with what measures it.
type branch struct {
	Part    account.Part `json:"part"`
	Spans   string       `json:"spans"` // from – to
	Signals []leaf       `json:"signals"`
}

// leaf is a signal that tells of a part.
type leaf struct {
	Signal   string   `json:"signal"`
	Unit     string   `json:"unit"`
	Question string   `json:"question"`
	From     []string `json:"from"` // native names in use
}

// spans are the parts' bounds, in order (DESIGN §7).
var spans = []struct {
	part account.Part
	of   string
}{
	{account.Gateway, "client accepted – front end received"}, {account.Frontend, "front end received – reached the engine process"},
	{account.Inbox, "reached the engine process – taken up by the scheduler: in no engine's own metric"}, {account.Queue, "queued – first scheduled"},
	{account.Prefill, "first scheduled – first token"}, {account.Decode, "first token – last token"}, {account.Transfer, "KV hand-over between legs"},
	{account.Stream, "token emitted – flushed to the client"},
}

// wayOfARequest is the way of a request, each part with the metrics that tell of it.
func wayOfARequest() (list []branch) {
	for _, s := range spans {
		b := branch{Part: s.part, Spans: s.of, Signals: []leaf{}}
		for _, sig := range signals.All() {
			if sig.Part != string(s.part) {
				continue
			}
			l := leaf{Signal: sig.Name, Unit: sig.Unit, Question: sig.Question, From: []string{}}
			for _, n := range sig.From {
				if n.Until == "" && !slices.Contains(l.From, n.Name) {
					l.From = append(l.From, n.Name)
				}
			}
			b.Signals = append(b.Signals, l)
		}
		list = append(list, b)
	}
	return list
}

func (e *env) printTree(list []branch) {
	for _, b := range list {
		fmt.Fprintf(e.out, "%-9s %s\n", e.bold(string(b.Part)), b.Spans)
		if len(b.Signals) == 0 {
			fmt.Fprintln(e.out, wrap("no metric tells of it; the probe does", "          ", width))
		}
		for _, l := range b.Signals {
			fmt.Fprintln(e.out, wrap(fmt.Sprintf("%s (%s): %s", l.Signal, l.Unit, l.Question), "          ", width))
			fmt.Fprintln(e.out, wrap(strings.Join(l.From, ", "), "            ", width))
		}
	}
}
