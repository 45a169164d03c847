package look

import (
	"bufio"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/logline"
)

// Log is what was kept of an engine's log while its lines went by: sums, what is newest, what each rule watches for, and some rows.
type Log struct {
	Name     string // of its input
	Target   string
	Producer string

	called  string           // what sentences about it begin with: its name, if there are others
	lines   int              // physical ones
	entries int              // what they hold: a line as a rule
	kinds   map[string]*span // by the kind of record
	errors  span             // lines of level ERROR and CRITICAL
	order   order
	times   times
	started started
	starts  starts
	load    load
	rows    rows
	watches []watch
}

// entry is a line of a log, whoever's: a record of vllm or of sglang.
type entry struct {
	logline.Mark
	Record any
	Kind   string // of the record, by its type's name
	Writer string // the engine whose line it is, as far as its prefix and number tell; ranks of tensor and pipeline parallelism are one
	Hints  []sglang.Hint
}

// watch is what a rule keeps of a log while its lines go by.
type watch interface {
	take(e *entry)
	facts(l *Log) []Fact
}

func newLog(in Input, producer string) *Log {
	l := &Log{Name: in.Name, Target: in.Target, Producer: producer, kinds: map[string]*span{}}
	for _, r := range logRules {
		l.watches = append(l.watches, r.watch())
	}
	return l
}

func (l *Log) take(e *entry) {
	e.Kind, e.Writer = strings.ToLower(reflect.TypeOf(e.Record).Name()), writer(e)
	if l.kinds[e.Kind] == nil {
		l.kinds[e.Kind] = &span{}
	}
	l.kinds[e.Kind].add(e.Mark)
	if e.Level == "ERROR" || e.Level == "CRITICAL" {
		l.errors.add(e.Mark)
	}
	l.lines, l.entries = max(l.lines, e.Last), l.entries+1
	l.order.take(e)
	l.times.take(e)
	l.started.take(e)
	l.starts.take(e)
	l.load.take(e)
	l.rows.take(e)
	for _, w := range l.watches {
		w.take(e)
	}
}

// writer is an entry's Writer.
func writer(e *entry) string {
	number := 0
	switch r := e.Record.(type) {
	case vllm.Stats:
		if number = r.Engine.Or(0); r.Aggregated > 0 {
			number = -1
		}
	case vllm.Speculation:
		number = r.Engine.Or(0)
	}
	from, rank := e.Tags.Get("from"), e.Tags.Get("DP")
	if from == "" && rank == "" && number == 0 {
		return "" // nearly always
	}
	return from + " " + rank + " " + strconv.Itoa(number)
}

// writers are whether one engine wrote the lines that a rule saw, or several: then first and last are no course of anything.
type writers struct {
	first   string
	seen    bool
	several bool
}

func (w *writers) take(e *entry) {
	if !w.seen {
		w.first, w.seen = e.Writer, true
	}
	w.several = w.several || e.Writer != w.first
}

// facts are what its rules found; alone says that there is no other log.
func (l *Log) facts(alone bool) (facts []Fact) {
	l.called = "log: "
	if !alone {
		l.called = l.title() + ": "
	}
	for i, w := range l.watches {
		for _, f := range w.facts(l) {
			f.ID, f.About = logRules[i].id, l.Name
			facts = append(facts, f)
		}
	}
	return facts
}

// log takes an input that is an engine's log, line by line, if it is one. Of a text of both engines only vLLM's lines are understood.
func (r *reader) log(in Input, src *Source, b *bufio.Reader) bool {
	head, _ := b.Peek(sniffed)
	if otherwise(head) {
		return false
	}
	begin := strings.Split(string(head), "\n")
	ofVLLM, ofSGLang := vllm.SniffLog(begin), sglang.SniffLog(begin)
	o := logline.Options{Zone: r.options.Zone, Near: in.Modified}
	switch {
	case ofVLLM:
		l := newLog(in, "vllm")
		l.times.begin(begin, &o)
		follow(r, l, src, vllm.ReadLog(b, o), nil)
	case ofSGLang:
		l := newLog(in, "sglang")
		l.times.begin(begin, &o)
		var hints sglang.Hints
		follow(r, l, src, sglang.ReadLog(b, o), hints.Next)
	default:
		return false
	}
	if ofVLLM && ofSGLang {
		src.Problems = append(src.Problems, "it holds lines of vLLM and of SGLang: only vLLM's are read; split it")
	}
	return true
}

// sniffed is how much of a text is looked at for an engine's lines: starts are long.
const sniffed = 256 << 10

// otherwise reports whether a text is known not to be a log: of metrics, since what their HELP says may be words of a log, or an answer of
// Prometheus, which is large and would be searched in vain.
func otherwise(head []byte) bool {
	text := "\n" + string(head)
	return strings.Contains(text, "\n# HELP ") || strings.Contains(text, "\n# TYPE ") || strings.HasPrefix(text, "\n{\"status\":")
}

func follow[R any](r *reader, l *Log, src *Source, entries iter.Seq2[logline.Entry[R], error], hints func(logline.Entry[R]) []sglang.Hint) {
	src.Kind = "log"
	for e, err := range entries {
		if err != nil {
			src.Problems = append(src.Problems, err.Error())
			break
		}
		of := entry{Mark: e.Mark, Record: e.Record}
		if hints != nil {
			of.Hints = hints(e)
		}
		l.take(&of)
	}
	r.scene.Logs = append(r.scene.Logs, l)
}

// span is how often something came, and where first and last.
type span struct {
	n           int
	first, last logline.Mark
}

func (s *span) add(m logline.Mark) {
	if s.n == 0 {
		s.first = m
	}
	s.n, s.last = s.n+1, m
}

// String is "in line 9 (09:00:04)", or "in 12 lines, 9 (09:00:04) to 300 (10:07:00)".
func (s span) String() string {
	if s.n == 1 {
		return "in line " + at(s.first, false)
	}
	return fmt.Sprintf("in %s lines, %s to %s", count(float64(s.n)), at(s.first, s.days()), at(s.last, s.days()))
}

// days says whether a span goes over several days.
func (s span) days() bool {
	return s.first.Time.At.UTC().Truncate(24*time.Hour) != s.last.Time.At.UTC().Truncate(24*time.Hour)
}

// at is "9 (09:00:04)": a line's number, and its time where it has one; with its day and what is known of its zone if so wanted.
func at(m logline.Mark, day bool) string {
	if m.Time.Date == logline.NoTime {
		return count(float64(m.First))
	}
	return count(float64(m.First)) + " (" + when(m.Time, day) + ")"
}

// when is a time as the log tells it, in UTC where its zone is known.
func when(t logline.Time, day bool) string {
	layout := time.TimeOnly
	switch {
	case !day || t.Date == logline.DateUnknown:
	case t.Date == logline.YearUnknown:
		layout = "01-02 15:04:05"
	default:
		layout = time.DateTime
	}
	switch {
	case t.Zone == logline.ZoneUnknown:
		return t.At.Format(layout)
	case day:
		layout += " UTC"
	}
	return t.At.UTC().Format(layout)
}
