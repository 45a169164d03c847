package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
)

// refusedShown is how many refusals the table shows; JSON has all.
const refusedShown = 20

// printArriving shows what arrives at a server.
func (e *env) printArriving(l *api.SignalList) {
	if len(l.Arrives)+len(l.Unused)+len(l.Records) == 0 {
		fmt.Fprintf(e.out, "Nothing has arrived in the last %s; 'whylate doctor' says why that may be.\n", time.Duration(l.Window))
	}
	if len(l.Arrives) > 0 {
		t := e.table("SIGNAL", "UNIT", "FROM", "NATIVE", "CAME BY", "TARGETS", "SERIES", "AGE", "EVERY", "")
		for _, a := range l.Arrives {
			note := a.Doubt
			if a.Unknown > 0 {
				note = cmp.Or(note, fmt.Sprintf("%d samples are no values", a.Unknown))
			}
			t.row(a.Signal, a.Unit, a.Producer, a.Native, cmp.Or(strings.Join(a.Came, ", "), "-"), fmt.Sprint(a.Targets), fmt.Sprint(a.Series), age(l.Now, a.Newest), rounded(a.Every), note)
		}
		t.end()
	}
	if len(l.Records) > 0 {
		fmt.Fprintln(e.out, "\nRecords beside series")
		t := e.table("CAME BY", "ENGINE", "RECORDS", "AGE")
		for _, r := range l.Records {
			what := "iterations in memory"
			if r.Came == "spans" {
				what = "spans since the start"
			}
			t.row(r.Came, cmp.Or(r.Name, "-"), fmt.Sprintf("%d %s", r.Count, what), age(l.Now, r.Newest))
		}
		t.end()
	}
	e.printMissing(&l.Inventory)
	if n := len(l.Unused); n > 0 {
		fmt.Fprintf(e.out, "\nArrives without a use (%d metrics; the most series first; the room on disk is estimated)\n", n)
		t := e.table("METRIC", "CAME BY", "SERIES", "SAMPLES/S", "DISK A DAY")
		for _, u := range l.Unused[:min(n, unusedShown)] {
			persecond, room := "-", "-"
			if u.PerSecond > 0 {
				persecond, room = fmt.Sprintf("%.2f", u.PerSecond), size(u.BytesPerDay)
			}
			t.row(u.Family, cmp.Or(strings.Join(u.Came, ", "), "-"), fmt.Sprint(u.Series), persecond, room)
		}
		t.end()
	}
	if n := len(l.Refused); n > 0 {
		fmt.Fprintln(e.out, "\nNot let in as it was (the most frequent first)")
		t := e.table("METRIC", "LABEL", "SAMPLES", "SUCH AS", "WHY")
		for _, r := range l.Refused[:min(n, refusedShown)] {
			t.row(cmp.Or(r.Metric, "-"), cmp.Or(r.Label, "-"), fmt.Sprint(r.Count), cmp.Or(r.Example, "-"), r.Why)
		}
		t.end()
	}
}

// age is how long ago something came.
func age(now, at int64) string {
	if at == 0 {
		return "-"
	}
	return rounded(max(now-at, 1))
}

func rounded(ns int64) string {
	if ns == 0 {
		return "-"
	}
	d := time.Duration(ns)
	if d >= time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
