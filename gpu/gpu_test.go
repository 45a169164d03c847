package gpu

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/signals"
	"github.com/whylate/whylate/wire"
)

func value(s wire.Sample, name string) (float64, bool) {
	for _, v := range s.Values {
		if Names[v.Signal] == name {
			return v.Value, true
		}
	}
	return 0, false
}

func absent(s wire.Sample, name string) wire.AbsentReason {
	for _, a := range s.Absent {
		if Names[a.Signal] == name {
			return a.Why
		}
	}
	return 0
}

func TestWhatIsAskedForIsRegistered(t *testing.T) {
	for _, c := range measured {
		if len(signals.Named(SMI, SMI+":"+c)) == 0 {
			t.Errorf("nvidia-smi's column %s is no registered signal", c)
		}
	}
}

// The cells of the field case C47, and other forms that nvidia-smi is known to print.
func TestRow(t *testing.T) {
	columns := []string{"index", "uuid", "utilization.gpu", "memory.used", "power.draw", "clocks_throttle_reasons.active", "temperature.memory", "pstate", "mig.mode.current"}
	for _, c := range []struct {
		line   string
		values map[string]float64
		absent map[string]wire.AbsentReason
		state  wire.DeviceState
	}{
		{"1, GPU-b, 97, 71022, 512.40, 0x0000000000000004, 72, P0, Disabled",
			map[string]float64{"hw.gpu.utilization": 0.97, "hw.gpu.memory.usage": 71022 << 20, "gpu.power": 512.4, "gpu.clock_events": 4, "gpu.memory_temperature": 72, "gpu.performance_state": 0}, nil, wire.DeviceAnswers},
		{"1, GPU-b, 97 %, 71022 MiB, 512.40 W, Not Active, 72, P8, [N/A]", map[string]float64{"hw.gpu.utilization": 0.97, "gpu.power": 512.4, "gpu.clock_events": 0, "gpu.performance_state": 8}, nil, wire.DeviceAnswers},
		{"0, GPU-a, [Unknown Error], [N/A], [Not Supported], [N/A], ERR!, , [N/A]", nil, map[string]wire.AbsentReason{"hw.gpu.utilization": wire.AbsentReadError, "hw.gpu.memory.usage": wire.AbsentNotSupported,
			"gpu.power": wire.AbsentNotSupported, "gpu.clock_events": wire.AbsentNotSupported, "gpu.memory_temperature": wire.AbsentReadError, "gpu.performance_state": wire.AbsentNotSupported}, wire.DeviceAnswers},
		{"2, GPU-c, 131072 %, 412 MiB, 61.02 W, Not Active, N/A, P0, Disabled", map[string]float64{"gpu.power": 61.02}, map[string]wire.AbsentReason{"hw.gpu.utilization": wire.AbsentCorrupt}, wire.DeviceAnswers},
		{"3, GPU-d, [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset], [GPU requires reset]", nil,
			map[string]wire.AbsentReason{"gpu.power": wire.AbsentReadError}, wire.DeviceLost},
		{"0, GPU-a, [N/A], 100, 2147483634, [Insufficient Permissions], 9223372036854775794, P0, Enabled", nil, map[string]wire.AbsentReason{"hw.gpu.utilization": wire.AbsentShared,
			"gpu.power": wire.AbsentBlank, "gpu.clock_events": wire.AbsentNotPermitted, "gpu.memory_temperature": wire.AbsentBlank}, wire.DeviceAnswers},
	} {
		r, err := Row(c.line, columns, 5, time.Second)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if r.State != c.state || r.Time != 5 || r.Every != 1e9 || r.Body != SMI {
			t.Errorf("%s: %+v", c.line, r)
		}
		for name, want := range c.values {
			if got, ok := value(r.Sample, name); !ok || math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s: %s is %v (%v), not %v", c.line, name, got, ok, want)
			}
		}
		for name, want := range c.absent {
			if got := absent(r.Sample, name); got != want {
				t.Errorf("%s: %s is absent for reason %d, not %d", c.line, name, got, want)
			}
		}
		if len(r.Values)+len(r.Absent) != 6 {
			t.Errorf("%s: %d values, %d without", c.line, len(r.Values), len(r.Absent))
		}
	}
	for _, bad := range []string{"", "0", "1, GPU-b, 97", "x, y, z, 1, 2, 3, 4, 5, 6"} {
		if _, err := Row(bad, columns, 0, time.Second); err == nil {
			t.Errorf("%q is a row", bad)
		}
	}
}

func FuzzRow(f *testing.F) {
	columns := append(append([]string{}, whose...), measured...)
	f.Add("0, GPU-a, NVIDIA H100, 00000000:1B:00.0, 580.65, [N/A]" + strings.Repeat(", [N/A]", len(measured)))
	f.Add("0, GPU-a, NVIDIA H100, 00000000:1B:00.0, 580.65, Enabled" + strings.Repeat(", 0x00000000000000ff", len(measured)))
	f.Add("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
	f.Add("0, GPU-a" + strings.Repeat(", nan", len(columns)-2))
	f.Fuzz(func(t *testing.T, line string) {
		process(line)
		r, err := Row(line, columns, 1, time.Second)
		if err != nil {
			return
		}
		seen := map[uint16]bool{}
		for _, v := range r.Values {
			limits := signals.Lookup(Names[v.Signal]).Range
			if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) || limits != nil && (v.Value < limits.Least || v.Value > limits.Most) || seen[v.Signal] {
				t.Fatalf("%+v", v)
			}
			seen[v.Signal] = true
		}
		for _, a := range r.Absent {
			if seen[a.Signal] || a.Why == 0 {
				t.Fatalf("%+v", a)
			}
			seen[a.Signal] = true
		}
		if _, err := wire.Append(nil, 1, &r.Sample); err != nil {
			t.Fatal(err)
		}
	})
}

// script writes a program for the shell.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// sample runs a sampler until enough came, and waits for its end.
func sample(t *testing.T, set Settings, enough func([]Reading) bool) []Reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var all []Reading
	Sample(ctx, set, func(r Reading) {
		if all = append(all, r); enough(all) {
			cancel()
		}
	})
	if !enough(all) {
		t.Fatalf("not enough came: %+v", all)
	}
	return all
}

// An nvidia-smi that does not know all columns is asked for fewer; the processes come from a call of their own.
const smi = `
case "$*" in
*query-compute-apps*) echo "GPU-a, 4242, 71000"; echo "GPU-a, 4243, [N/A]"; exit 0 ;;
*clocks_event_reasons.active*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2 ;;
*power.draw.average*) echo 'Field "power.draw.average" is not a valid field to query.'; exit 2 ;;
esac
n=$(echo "$1" | tr -cd , | wc -c)
row() { printf '%s, %s, NVIDIA A100, 00000000:1B:00.0, 535.10, Disabled' "$1" "$2"; i=6; while [ $i -le $n ]; do printf ', %s' "$3"; i=$((i+1)); done; echo; }
while :; do row 0 GPU-a 7; row 1 GPU-b '[Not Supported]'; sleep 0.2; done
`

func TestThroughSMI(t *testing.T) {
	all := sample(t, Settings{Every: 200 * time.Millisecond, Body: SMI, SMI: script(t, "nvidia-smi", smi)}, func(rs []Reading) bool {
		return len(rs) > 6 && len(rs[len(rs)-2].Processes)+len(rs[len(rs)-1].Processes) > 0
	})
	for _, r := range all {
		switch r.Device.UUID {
		case "GPU-a":
			if v, ok := value(r.Sample, "gpu.clock_events"); !ok || v != 7 {
				t.Fatalf("the older name is asked for: %+v", r)
			}
			if len(r.Processes) > 0 && (len(r.Processes) != 2 || r.Processes[0] != (wire.SampleProcess{PID: 4242, Busy: -1, Used: 71000 << 20}) || r.Processes[1].Used != math.MaxUint64) {
				t.Fatalf("%+v", r.Processes)
			}
		case "GPU-b":
			if len(r.Values) != 0 || absent(r.Sample, "gpu.power") != wire.AbsentNotSupported {
				t.Fatalf("%+v", r)
			}
		default:
			t.Fatalf("%+v", r)
		}
		if len(r.Device.Notes) != 2 || !strings.Contains(strings.Join(r.Device.Notes, " "), "power.draw.average") {
			t.Fatalf("%q", r.Device.Notes)
		}
	}
}

// The helper comes first; where it is of no use, nvidia-smi is asked.
func TestFallsBack(t *testing.T) {
	helper := script(t, Helper, "echo 'libnvidia-ml.so.1: cannot open shared object file' >&2; exit 3")
	all := sample(t, Settings{Every: 100 * time.Millisecond, Helper: helper, SMI: script(t, "nvidia-smi", smi)}, func(rs []Reading) bool { return len(rs) > 0 })
	if all[0].Body != SMI {
		t.Errorf("%+v", all[0])
	}
}

func TestNoGPUIsAReading(t *testing.T) {
	helper := script(t, Helper, "echo 'libnvidia-ml.so.1: cannot open shared object file' >&2; exit 3")
	all := sample(t, Settings{Every: 100 * time.Millisecond, Again: time.Millisecond, Helper: helper, SMI: script(t, "nvidia-smi", `echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9`)},
		func(rs []Reading) bool { return len(rs) > 1 })
	r := all[0]
	if r.State != wire.DeviceNone || r.Device.UUID != "" {
		t.Fatalf("%+v", r)
	}
	for _, words := range []string{"no GPU seen", "nvml: libnvidia-ml.so.1", "nvidia-smi: NVIDIA-SMI has failed", "NVIDIA_DRIVER_CAPABILITIES=utility"} {
		if !strings.Contains(r.Why, words) {
			t.Errorf("%q does not say %q", r.Why, words)
		}
	}
}

// A program that stops answering is said so of all its devices, killed, and started again once it is gone; never two at once.
func TestAHungDriver(t *testing.T) {
	dir := t.TempDir()
	line := `{"uuid":"GPU-a","device":{"uuid":"GPU-a","name":"NVIDIA H100"},"sample":{"Every":100000000,"State":1}}`
	helper := script(t, Helper, fmt.Sprintf(`
[ -e %[1]s/running ] && touch %[1]s/twice
touch %[1]s/running
echo '%[2]s'
n=$(ls %[1]s/started* 2>/dev/null | wc -l); touch %[1]s/started$n
if [ "$n" = 0 ]; then rm %[1]s/running; exec sleep 1000; fi
while :; do echo '%[2]s'; sleep 0.1; done
`, dir, line))
	all := sample(t, Settings{Every: 100 * time.Millisecond, Patience: 400 * time.Millisecond, Helper: helper, Body: NVML}, func(rs []Reading) bool {
		silent := false
		for _, r := range rs {
			silent = silent || r.State == wire.DeviceSilent
		}
		return silent && rs[len(rs)-1].State == wire.DeviceAnswers
	})
	for _, r := range all {
		if r.Device.UUID != "GPU-a" || r.Device.Name != "NVIDIA H100" {
			t.Fatalf("%+v", r)
		}
		if r.State == wire.DeviceSilent && (r.Since == 0 || r.Time-r.Since < 4e8 || !strings.Contains(r.Why, "nvml has not answered")) {
			t.Fatalf("%+v", r)
		}
	}
	if exists(filepath.Join(dir, "twice")) {
		t.Error("two ran at once")
	}
}

// A driver that hangs before anything was read is told of the driver, not of a device.
func TestADriverThatHangsAtTheStart(t *testing.T) {
	all := sample(t, Settings{Every: 100 * time.Millisecond, Patience: 300 * time.Millisecond, Body: NVML, Helper: script(t, Helper, "exec sleep 1000")}, func(rs []Reading) bool { return len(rs) > 0 })
	if r := all[0]; r.State != wire.DeviceSilent || r.Device.UUID != "" {
		t.Fatalf("%+v", r)
	}
}

func TestTwoValuesOfOneSignal(t *testing.T) {
	d := NewDraft(NVML, 1, time.Second)
	d.None("field.185", wire.AbsentNotSupported, 3)
	d.Put("power.usage", 512400, 0)
	d.Put("field.185", 1, 0)
	d.Put("nonsense", 1, 0)
	if len(d.Values) != 1 || len(d.Absent) != 0 || d.Values[0].Value != 512.4 {
		t.Errorf("%+v", d.Sample)
	}
}
