package look

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/whylate/whylate/logline"
)

// LogReport is what one log holds.
type LogReport struct {
	Name     string            `json:"name"`
	Producer string            `json:"producer"`
	Version  string            `json:"version,omitempty"` // of the newest start
	Model    string            `json:"model,omitempty"`
	Settings map[string]string `json:"settings,omitempty"` // of the newest start, as the engine printed them; secrets, long and nested ones are left out
	Lines    int               `json:"lines"`              // physical
	Entries  int               `json:"entries"`            // records: fewer where a runtime cut lines, more where processes wrote into each other
	Kinds    map[string]Kind   `json:"kinds"`              // of records; "other" is a line without a meaning here
	Text     string            `json:"text"`               // that in words, with what is not known of its times
	Rows     []Row             `json:"rows"`               // records, in their order
	LeftOut  int               `json:"rows_left_out"`      // records between the first rows and the last ones that are in no row
}

// Kind is how often one kind of record came, and in which lines first and last.
type Kind struct {
	Count int `json:"count"`
	First int `json:"first"`
	Last  int `json:"last"`
}

// Row is one record of a log.
type Row struct {
	Line     int            `json:"line"`                // physical, from 1
	LastLine int            `json:"last_line,omitempty"` // where a runtime cut it, and it goes on to another line
	Time     string         `json:"time,omitempty"`      // RFC 3339; without "Z" if its zone is not known; without what is not known of the date
	Inferred bool           `json:"year_inferred,omitempty"`
	Level    string         `json:"level,omitempty"`
	Source   string         `json:"source,omitempty"` // the code that wrote it
	Tags     []string       `json:"tags,omitempty"`   // who wrote it, "name=value", outermost first
	Kind     string         `json:"kind"`
	Fields   map[string]any `json:"fields,omitempty"` // what the line told: shares of 1, rates per second; what it lacked is absent
	Hints    []string       `json:"hints,omitempty"`
	Skipped  int64          `json:"skipped_bytes,omitempty"`
	Cut      bool           `json:"cut,omitempty"` // its rest never came
}

// rows keep the first records and the last ones; lines without a meaning only among the first.
type rows struct {
	first, last []entry
	oldest      int // of last, which is a ring
	all         int
}

const mostRows = 1000 // of the first, and of the last

func (r *rows) take(e *entry) {
	r.all++
	switch {
	case len(r.first) < mostRows:
		r.first = append(r.first, *e)
	case e.Kind == "other":
	case len(r.last) < mostRows:
		r.last = append(r.last, *e)
	default:
		r.last[r.oldest] = *e
		r.oldest = (r.oldest + 1) % mostRows
	}
}

func (r *rows) report() (list []Row, leftOut int) {
	list = []Row{}
	for _, es := range [][]entry{r.first, r.last[r.oldest:], r.last[:r.oldest]} {
		for i := range es {
			list = append(list, row(&es[i]))
		}
	}
	return list, r.all - len(list)
}

func row(e *entry) Row {
	r := Row{Line: e.First, Time: stamped(e.Time), Inferred: e.Time.Date == logline.YearGuessed, Level: e.Level, Source: e.Source, Kind: e.Kind, Fields: fields(e.Record), Skipped: e.Skipped, Cut: e.Cut}
	if e.Last != e.First {
		r.LastLine = e.Last
	}
	for _, t := range e.Tags {
		r.Tags = append(r.Tags, t.Name+"="+t.Value)
	}
	for _, h := range e.Hints {
		r.Hints = append(r.Hints, h.Text)
	}
	return r
}

func stamped(t logline.Time) string {
	layout := "2006-01-02T15:04:05.999999999"
	switch t.Date {
	case logline.NoTime:
		return ""
	case logline.YearUnknown:
		layout = layout[len("2006-"):]
	case logline.DateUnknown:
		layout = layout[len("2006-01-02T"):]
	}
	if t.Zone != logline.ZoneUnknown {
		return t.At.UTC().Format(layout + "Z")
	}
	return t.At.Format(layout)
}

// fields are what a record tells, by the names of its fields in snake case.
func fields(record any) map[string]any {
	told := map[string]any{}
	tell(told, reflect.ValueOf(record))
	return told
}

func tell(told map[string]any, v reflect.Value) {
	for i := range v.NumField() {
		f, t := v.Field(i), v.Type().Field(i)
		switch x := f.Interface().(type) {
		case interface{ Get() (any, bool) }:
			if value, ok := x.Get(); ok {
				told[snake(t.Name)] = rounded(value)
			}
		case []logline.Extra:
			if len(x) > 0 {
				extra := map[string]string{}
				for _, e := range x {
					extra[e.Key] = e.Value
				}
				told["extra"] = extra
			}
		case []logline.Setting:
			if len(x) > 0 {
				settings := map[string]string{}
				for _, s := range x {
					if !s.Withheld {
						settings[s.Name] = s.Value
					}
				}
				told["settings"] = settings
			}
		default:
			switch {
			case t.Anonymous:
				tell(told, f)
			case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
				list := []map[string]any{}
				for j := range f.Len() {
					list = append(list, fields(f.Index(j).Interface()))
				}
				if len(list) > 0 {
					told[snake(t.Name)] = list
				}
			case !f.IsZero():
				told[snake(t.Name)] = x
			}
		}
	}
}

// rounded is a value without what became of it on its way from per cent: 0.412, not 0.41200000000000003.
func rounded(value any) any {
	if f, ok := value.(float64); ok {
		value, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', 12, 64), 64)
	}
	return value
}

var units = strings.NewReplacer("GiB", "Gib", "MiB", "Mib", "GBs", "Gbs")

// snake is a name of Go as JSON has it: KVUsage is kv_usage.
func snake(name string) string {
	name = units.Replace(name)
	upper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	var b strings.Builder
	for i := range len(name) {
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(name) && !upper(i+1)) {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ToLower(b.String())
}

// kindWords are what kinds of records are called; those that are not here are called by their name.
var kindWords = map[string][2]string{
	"stats": {"stat record", "stat records"}, "preemption": {"preemption warning", "preemption warnings"}, "hitrate": {"hit-rate line", "hit-rate lines"},
	"speculation": {"speculation line", "speculation lines"}, "transfer": {"transfer line", "transfer lines"}, "compile": {"compilation warning", "compilation warnings"}, "death": {"line of an engine's end", "lines of an engine's end"}, "failure": {"failed transfer", "failed transfers"},
	"iteration": {"iteration", "iterations"}, "start": {"line of a start", "lines of starts"}, "access": {"web server line", "web server lines"}, "other": {"other", "other"},
	"decode": {"decode batch", "decode batches"}, "prefill": {"prefill batch", "prefill batches"}, "retraction": {"retraction", "retractions"}, "request": {"finished request", "finished requests"},
}

func (l *Log) report() LogReport {
	r := LogReport{Name: l.Name, Producer: l.Producer, Version: l.started.version, Model: l.started.model, Settings: l.started.settings, Lines: l.lines, Entries: l.entries, Kinds: map[string]Kind{}, Text: l.text()}
	for k, s := range l.kinds {
		r.Kinds[k] = Kind{s.n, s.first.First, s.last.Last}
	}
	r.Rows, r.LeftOut = l.rows.report()
	return r
}

// text is what a log holds, in a few lines.
func (l *Log) text() string {
	kinds := sortedKeys(l.kinds)
	slices.SortStableFunc(kinds, func(a, b string) int {
		if (a == "other") != (b == "other") {
			return map[bool]int{true: 1, false: -1}[a == "other"]
		}
		return l.kinds[b].n - l.kinds[a].n
	})
	var held []string
	for _, k := range kinds {
		words, ok := kindWords[k]
		if !ok {
			words = [2]string{k, k}
		}
		n := l.kinds[k].n
		word := words[1]
		if n == 1 {
			word = words[0]
		}
		held = append(held, count(float64(n))+" "+word)
	}
	said := append([]string{fmt.Sprintf("%s: %s, %s (%s)", l.title(), several(l.lines, "line", "lines"), several(l.entries, "record", "records"), strings.Join(held, ", "))}, l.order.text()...)
	if l.errors.n > 0 {
		said = append(said, "level ERROR or above "+l.errors.String())
	}
	said = append(said, l.started.text()...)
	return strings.Join(said, "; ") + ". " + l.times.text()
}

// several is plural for numbers that may be large.
func several(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(float64(n)) + " " + more
}
