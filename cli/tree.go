package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/export"
	"github.com/whylate/whylate/signals"
)

// branch is one part of a request's time, with what measures it.
type branch struct {
	Part    account.Part `json:"part"`
	Spans   string       `json:"spans"`     // from – to
	Span    string       `json:"span_name"` // as which it leaves ('whylate export otlp')
	Signals []leaf       `json:"signals"`
}

// leaf is a signal that tells of a part.
type leaf struct {
	Signal   string   `json:"signal"`
	Unit     string   `json:"unit"`
	Question string   `json:"question"`
	From     []string `json:"from"` // native names in use
}

// wayOfARequest is the way of a request, each part with the metrics that tell of it.
func wayOfARequest() (list []branch) {
	for _, n := range export.Tree() {
		b := branch{Part: n.Part, Spans: n.Bounds, Span: n.Span, Signals: []leaf{}}
		for _, sig := range signals.All() {
			if sig.Part != string(n.Part) {
				continue
			}
			l := leaf{Signal: sig.Name, Unit: sig.Unit, Question: sig.Question, From: []string{}}
			for _, native := range sig.From {
				if native.Until == "" && !slices.Contains(l.From, native.Name) {
					l.From = append(l.From, native.Name)
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
