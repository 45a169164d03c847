package store

import (
	"fmt"
	"io"
	"reflect"
	"strings"
)

// Retention is a class of how long a table is kept.
type Retention string

// The classes, see [Policy].
const (
	KeepDetail   Retention = "detail"   // hours to days
	KeepRequests Retention = "requests" // weeks
)

// Table is one sealed table.
type Table struct {
	Name    string // of its file, without .parquet
	Doc     string
	Sorted  string // by which its rows are sorted
	Keep    Retention
	Row     any // a zero row: its struct tags describe the columns
	Private bool
}

// Tables are all sealed tables.
var Tables = []Table{
	{Name: "engines", Doc: "Stretches of iterations of engines, with what is needed to read them.", Sorted: "engine, first_iteration", Keep: KeepRequests, Row: EngineRow{}},
	{Name: "iterations", Doc: "One row for each pass of a scheduler, dense in `iteration`.", Sorted: "engine, iteration", Keep: KeepDetail, Row: IterationRow{}},
	{Name: "sequences", Doc: "Streams of tokens. Guests (`guest`) are counted in another period.", Sorted: "first_iteration", Keep: KeepRequests, Row: SequenceRow{}},
	{Name: "stints", Doc: "Who was a member of which iterations.", Sorted: "sequence_row, first_iteration", Keep: KeepDetail, Row: StintRow{}},
	{Name: "skips", Doc: "Who waited in which iterations, and why.", Sorted: "sequence_row, first_iteration", Keep: KeepDetail, Row: SkipRow{}},
	{Name: "preemptions", Doc: "Running sequences that lost their KV blocks.", Sorted: "iteration", Keep: KeepDetail, Row: PreemptionRow{}},
	{Name: "holdings", Doc: "Who held the KV pool while admission was stopped for it.", Sorted: "iteration", Keep: KeepDetail, Row: HoldingRow{}},
	{Name: "executions", Doc: "How the ranks executed the iterations' batches, where they were seen. Empty before format 3.", Sorted: "iteration", Keep: KeepDetail, Row: ExecutionRow{}},
	{Name: "evictions", Doc: "Blocks of the prefix cache that were given up for others. Empty before format 3.", Sorted: "iteration", Keep: KeepDetail, Row: EvictionRow{}},
	{Name: "requests", Doc: "One row for each request, with the sums of its account.", Sorted: "from_unix_ns in each stretch", Keep: KeepRequests, Row: RequestRow{}},
	{Name: "calls", Doc: "One row for each model call that spans told of. Empty before format 4.", Sorted: "request_row", Keep: KeepRequests, Row: CallRow{}},
	{Name: "call_parts", Doc: "Where the time of calls went. Empty before format 4.", Sorted: "call_row", Keep: KeepRequests, Row: CallPartRow{}},
	{Name: "call_spans", Doc: "The views of calls. Empty before format 4.", Sorted: "call_row", Keep: KeepDetail, Row: CallSpanRow{}},
	{Name: "clients", Doc: "The clients' own views of their attempts.", Sorted: "request_row", Keep: KeepRequests, Row: ClientRow{}},
	{Name: "gaps", Doc: "What is known to be missing. Absent is not zero.", Sorted: "at_unix_ns", Keep: KeepRequests, Row: GapRow{}},
	{Name: "ids", Doc: "The index by which a request is found under any of its ids. It is not exported.", Sorted: "id", Keep: KeepRequests, Row: IDRow{}, Private: true},
}

// Column is one column of a table.
type Column struct {
	Name string
	Type string // SQL type
	Unit string // "" = none
	Doc  string
}

// Columns are the table's columns in order.
func (t Table) Columns() []Column {
	r := reflect.TypeOf(t.Row)
	out := make([]Column, 0, r.NumField())
	for i := range r.NumField() {
		f := r.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("parquet"), ",")
		out = append(out, Column{Name: name, Type: sqlType(f.Type), Unit: f.Tag.Get("unit"), Doc: f.Tag.Get("doc")})
	}
	return out
}

func sqlType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int32:
		return "INTEGER"
	case reflect.Int64:
		return "BIGINT"
	case reflect.Float32:
		return "FLOAT"
	case reflect.Bool:
		return "BOOLEAN"
	case reflect.String:
		return "VARCHAR"
	case reflect.Slice:
		return sqlType(t.Elem()) + "[]"
	}
	panic(fmt.Sprintf("a column of type %v", t))
}

// WriteTables writes the description of the tables as Markdown: docs/tables.md, and beside every export.
func WriteTables(w io.Writer) error {
	var b strings.Builder
	b.WriteString(`# The tables of a sealed period

*Made from store/rows.go by ` + "`go test ./store -update`" + `; do not edit.*

A sealed period is a directory of Parquet files, one a table (docs/adr/0005-store.md); ` + "`whylate store export`" + ` writes the same tables for
every period, as ` + "`TABLE/PERIOD.parquet`" + `. A column named …_unix_ns is a time in Unix nanoseconds, 0 = not known. A column in unit *row* is a row number, from 0, in
another table *of the same period*, −1 = none. Retention: *detail* is kept for hours to days, *requests* for weeks; both are set in the configuration.
`)
	for _, t := range Tables {
		fmt.Fprintf(&b, "\n## %s\n%s Sorted by %s. Retention: %s.\n\n| column | type | unit | meaning |\n|---|---|---|---|\n", t.Name, t.Doc, t.Sorted, t.Keep)
		for _, c := range t.Columns() {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", c.Name, c.Type, c.Unit, c.Doc)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
