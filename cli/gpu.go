package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/ledger"
)

func (e *env) gpu() *cobra.Command {
	src, out := source{e: e}, output{}
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Show what the GPUs do: busy, memory, heat, clocks and what holds them down, errors, whose processes",
		Long: `Show each GPU that is sampled as it was read last: utilisation, memory, power, heat, clocks; what held its clocks down, in words; errors of
its driver (XIDs) with what they mean and what to do; the processes on it, and whose engine they are. Each line says how often the GPU is
read: no claim about it is finer than that. docs/gpu.md says what each figure means, and what it does not.

GPUs are sampled by the agent, or by a server on the same host, where gpu.sample is true.`,
		Example: `  whylate gpu
  whylate gpu --from incident.wlc -o json`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			svc, err := src.open()
			if err != nil {
				return err
			}
			l, err := svc.Devices(cmd.Context())
			if err != nil {
				return err
			}
			return out.print(e, l, func() { e.printDevices(l) })
		},
	}
	src.flags(cmd)
	out.flags(cmd)
	return cmd
}

func (e *env) printDevices(l *api.DeviceList) {
	gpus := 0
	for _, d := range l.Devices {
		if d.UUID != "" && d.Parent == "" {
			gpus++
		}
	}
	fmt.Fprintf(e.out, "%s · %d GPUs\n\n", diagnose.Clock(l.Now), gpus)
	if len(l.Devices) == 0 {
		fmt.Fprintln(e.out, wrap("No GPU was sampled. Set gpu.sample to true at the agents, or at the server where it reads this host's rings itself; docs/gpu.md says what else it takes.", "", width))
		return
	}
	t := e.table("GPU", "STATE", "BUSY", "MEMORY", "POWER", "HEAT", "SM CLOCK", "READ EVERY", "NEWEST", "HELD DOWN BY")
	for i := range l.Devices {
		d := device{&l.Devices[i]}
		t.row(d.called(), d.State.String(), d.one("hw.gpu.utilization", 0.01, "%"), d.of("hw.gpu.memory.usage", "hw.gpu.memory.limit", 1<<30, "GiB"), d.of("gpu.power", "gpu.power_limit", 1, "W"),
			d.one("gpu.temperature", 1, "°C"), d.of("gpu.clock.sm", "gpu.clock.sm_max", 1e6, "MHz"), diagnose.Span(d.Every), diagnose.Span(d.Age)+" ago", d.held())
	}
	t.end()
	for i := range l.Devices {
		e.printDevice(device{&l.Devices[i]})
	}
}

// device is a GPU on its way to the screen.
type device struct{ *api.DeviceState }

// called is a device's name: short, and with its host.
func (d device) called() string {
	host := exposition.Printable(d.Host, 40)
	switch {
	case d.UUID == "":
		return host + " driver"
	case d.Parent != "":
		return fmt.Sprintf("%s GPU %d %s", host, d.Index, exposition.Printable(d.Profile, 20))
	}
	return fmt.Sprintf("%s GPU %d", host, d.Index)
}

// newest is a signal's reading, nil where it never had a value or has none now.
func (d device) newest(signal string) *api.DeviceReading {
	i := slices.IndexFunc(d.Readings, func(r api.DeviceReading) bool { return r.Signal == signal })
	if i < 0 || d.Readings[i].At == 0 || d.Readings[i].Absent != "" {
		return nil
	}
	return &d.Readings[i]
}

// one is a value in some unit; "?" is none.
func (d device) one(signal string, unit float64, name string) string {
	if r := d.newest(signal); r != nil {
		return fmt.Sprintf("%.0f %s", r.Value/unit, name)
	}
	return "?"
}

// of is a value and its limit.
func (d device) of(signal, limit string, unit float64, name string) string {
	r, most := d.newest(signal), d.newest(limit)
	if r == nil || most == nil {
		return d.one(signal, unit, name)
	}
	return fmt.Sprintf("%.0f of %.0f %s", r.Value/unit, most.Value/unit, name)
}

// held is what holds the clocks down now.
func (d device) held() string {
	switch {
	case d.Parent != "":
		return "as the whole GPU"
	case d.State != ledger.DeviceAnswers || d.Unheld:
		return "?"
	}
	var now []string
	for _, h := range d.Holds {
		if h.Since != 0 {
			now = append(now, h.Reason)
		}
	}
	if len(now) == 0 {
		return "-"
	}
	return strings.Join(now, " + ")
}

// printDevice says what is to be said of a device beyond its row.
func (e *env) printDevice(d device) {
	var lines []string
	say := func(format string, a ...any) { lines = append(lines, fmt.Sprintf(format, a...)) }
	if d.State != ledger.DeviceAnswers {
		say("%s since %s: %s", d.State, diagnose.Clock(d.Since), exposition.Printable(d.Why, 400))
	}
	if d.Age > 3*d.Every+int64(5*time.Second) {
		say("nothing was heard of it for %s: its sampler ended, or cannot reach the server", diagnose.Span(d.Age))
	}
	for _, h := range d.Holds {
		if h.Fault {
			say("%s in %d of its samples (%.0f %%, a sample every %s), last at %s; look at %s", h.Reason, h.Samples, 100*h.Share, diagnose.Span(d.Every), diagnose.Clock(h.Last), h.Do)
		}
	}
	for _, x := range d.Errors {
		say("XID %d at %s: %s. %s", x.XID, diagnose.Clock(x.At), x.Means, x.Do)
	}
	for _, p := range d.Processes {
		text := fmt.Sprintf("process %d", p.PID)
		if p.Engine != "" {
			text += " of " + p.Engine
		}
		if p.Used >= 0 {
			text += fmt.Sprintf(", %.1f GiB", float64(p.Used)/(1<<30))
		}
		if p.Busy >= 0 {
			text += fmt.Sprintf(", busy %.0f %%", 100*p.Busy)
		}
		say("%s", text)
	}
	if r := d.newest("hw.gpu.utilization"); r != nil && r.Over > 0 {
		say("busy is over the device's last %s", diagnose.Span(r.Over))
	}
	for _, n := range d.Notes {
		say("%s", exposition.Printable(n, 400))
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(e.out, "\n%s %s\n", e.bold(d.called()), e.dim(strings.TrimSpace(d.Name+" "+d.UUID)))
	for _, l := range lines {
		fmt.Fprintln(e.out, wrap(l, "  ", width))
	}
}
