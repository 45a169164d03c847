package overhead

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Write prints the report as a table for people.
func (r *Report) Write(w io.Writer) error {
	var out bytes.Buffer
	what, on := "probe on against off", "ON"
	if r.Sham {
		what, on = "sham, probe off against off: what is seen here is noise", "OFF AGAIN"
	}
	fmt.Fprintf(&out, "%s: %d pairs of runs\n", what, r.Pairs)
	if r.Pairs < r.PairsPlanned {
		fmt.Fprintf(&out, "stopped early: %d pairs were wanted\n", r.PairsPlanned)
	}
	fmt.Fprintf(&out, "servers  %s\nload     %s; order drawn with seed %d\n\n", clean(r.Servers), r.Load, r.Seed)

	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "MEASURE\tUNIT\tOFF\t%s\tDIFFERENCE\t95 %% INTERVAL\tRESOLVES\tVERDICT\n", on)
	absent := []string{}
	for _, c := range r.Measures {
		if c.Verdict == Absent {
			absent = append(absent, c.Title)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t", c.Title, c.Unit, value(c.Off), value(c.On))
		switch i, unit := c.interval(); {
		case i == nil:
			fmt.Fprint(table, "–\t–\t–\t")
		default:
			fmt.Fprintf(table, "%s %s\t%s … %s\t± %s %s\t", signed(i.Mean), unit, signed(i.Low), signed(i.High), short(i.Half()), unit)
		}
		fmt.Fprintln(table, c.Words)
	}
	table.Flush() // into a buffer, which takes everything
	fmt.Fprintln(&out)
	if len(absent) > 0 {
		fmt.Fprintf(&out, "not measured: %s\n", strings.Join(absent, ", "))
	}
	fmt.Fprintf(&out, "A run is the replicate: %d differences, Student's interval%s. Each interval is wrong once in 20 times, so one measure\n"+
		"of many may stand apart by chance. RESOLVES is half the interval: what is smaller is not told from noise, here and with so many pairs.\n", r.Pairs, r.checked())
	for _, n := range r.Notes {
		fmt.Fprintln(&out, clean(n))
	}
	_, err := w.Write(out.Bytes())
	return err
}

func (r *Report) checked() string {
	if r.Pairs > signFlips {
		return ""
	}
	return fmt.Sprintf(", checked by all %d ways to flip signs", 1<<r.Pairs)
}

// interval is the one that is shown, and its unit.
func (c *Comparison) interval() (*Interval, string) {
	if c.Percent != nil {
		return c.Percent, "%"
	}
	return c.Difference, c.Unit
}

func value(v *float64) string {
	if v == nil {
		return "–"
	}
	return short(*v)
}

// short is a number with three digits that count, as far as they are behind the point.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.1g", v)
}

// signed has its sign, a real minus.
func signed(v float64) string {
	s := short(math.Abs(v))
	switch {
	case s == "0":
		return s
	case v < 0:
		return "−" + s
	}
	return "+" + s
}

// clean keeps control characters of a command line away from a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '�'
		}
		return r
	}, s)
}
