package look

import (
	"fmt"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// logSpeculation: what drafts are worth, and how their length is to be read.
type logSpeculation struct {
	lines       span
	of          writers
	first, last drafts
	rated       drafts // the last one whose rate is known
}

type drafts struct {
	length, rate      logline.Opt[float64]
	accepted, drafted logline.Opt[int]
	step              logline.Opt[float64] // tokens drafted a step
}

func (s *logSpeculation) take(e *entry) {
	var d drafts
	switch r := e.Record.(type) {
	case vllm.Speculation:
		d = drafts{length: r.MeanLength, rate: r.Rate, accepted: r.Accepted, drafted: r.Drafted}
	case sglang.Decode:
		d = drafts{length: r.AcceptLength, rate: r.AcceptRate, step: r.Drafts()}
	}
	if !d.length.Known && !d.rate.Known {
		return
	}
	s.of.take(e)
	if s.lines.n == 0 || s.of.several {
		s.first = d
	}
	s.lines.add(e.Mark)
	if s.last = d; d.rate.Known {
		s.rated = d
	}
}

func (s *logSpeculation) facts(l *Log) []Fact {
	if s.lines.n == 0 {
		return nil
	}
	text, then := fmt.Sprintf("%sspeculation %s", l.called, s.lines), ": "
	if a, b := s.first.length, s.last.length; a.Known && b.Known {
		then = "; "
		text += ": accept length " + changed(a.Value, b.Value, func(v float64) string { return fmt.Sprintf("%.2f", v) }) + " tokens a step, which includes the bonus token (1 means that no draft was accepted) and is no rate"
	}
	switch r := s.rated; {
	case !r.rate.Known:
		text += then + "the acceptance rate is not told"
	case r.drafted.Or(0) > 0 && r.accepted.Known:
		text += then + "acceptance rate " + s.rates() + " = " + count(float64(r.accepted.Value)) + " / " + count(float64(r.drafted.Value)) + " drafted tokens"
	case r.step.Known && r.length.Known:
		text += then + fmt.Sprintf("acceptance rate %s = (%.2f − 1) / %.3g drafts", s.rates(), r.length.Value, r.step.Value)
	default:
		text += then + "acceptance rate " + s.rates()
	}
	return []Fact{{Weight: Notice, Path: "token", Text: text + "."}}
}

func (s *logSpeculation) rates() string {
	if s.first.rate.Known {
		return changed(s.first.rate.Value, s.rated.rate.Value, share)
	}
	return share(s.rated.rate.Value)
}

// changed is "3.08 → 1.36", or one number where both are the same.
func changed(a, b float64, text func(float64) string) string {
	if text(a) == text(b) {
		return text(b)
	}
	return text(a) + " → " + text(b)
}
