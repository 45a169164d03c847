package nvml

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/wire"
)

// fake builds NVML's double; the flags go to the compiler.
func fake(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no C compiler (cc): the double of NVML cannot be built, and in CI it must be")
		}
		t.Skip("no C compiler (cc): the double of NVML cannot be built")
	}
	path := filepath.Join(t.TempDir(), Name)
	if out, err := exec.Command(cc, append(flags, "-shared", "-fPIC", "-O1", "-w", "-o", path, "testdata/fake.c")...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// program is whylate-gpu as it is shipped: built without cgo.
func program(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var folder string

var built = sync.OnceValues(func() (string, error) {
	path := filepath.Join(folder, gpu.Helper)
	build := exec.Command("go", "build", "-o", path, "github.com/whylate/whylate/cmd/whylate-gpu")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	folder, _ = os.MkdirTemp("", "whylate-gpu")
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// said is what the program printed, by device.
type said struct {
	status  int
	words   string
	devices map[string]gpu.Device
	samples map[string][]wire.Sample
}

func ask(t *testing.T, program, how string, limit time.Duration, args ...string) said {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "FAKE_NVML="+how)
	var out, words bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &words
	cmd.Run()
	s := said{status: cmd.ProcessState.ExitCode(), words: words.String(), devices: map[string]gpu.Device{}, samples: map[string][]wire.Sample{}}
	for line := range bytes.Lines(out.Bytes()) {
		var sample wire.Sample
		l := gpu.Line{Sample: &sample}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if l.Device != nil {
			s.devices[l.UUID] = *l.Device
		}
		s.samples[l.UUID] = append(s.samples[l.UUID], sample)
	}
	return s
}

func uuid(n int) string { return "GPU-0000000" + string(rune('0'+n)) + "-2222-3333-4444-555555555555" }

func value(s wire.Sample, name string) (float64, time.Duration, bool) {
	for _, v := range s.Values {
		if gpu.Names[v.Signal] == name {
			return v.Value, time.Duration(v.Window) * time.Microsecond, true
		}
	}
	return 0, 0, false
}

func absent(s wire.Sample, name string) wire.AbsentReason {
	for _, a := range s.Absent {
		if gpu.Names[a.Signal] == name {
			return a.Why
		}
	}
	return 0
}

func wants(t *testing.T, s wire.Sample, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if got, _, ok := value(s, name); !ok || math.Abs(got-v) > 1e-9*math.Abs(v) {
			t.Errorf("%s is %v (%v), not %v", name, got, ok, v)
		}
	}
}

func TestEveryFigureOfANewDriver(t *testing.T) {
	p, lib := program(t), fake(t)
	s := ask(t, p, "", time.Minute, "--library", lib, "--once")
	if s.status != ExitOK || len(s.samples) != 2 {
		t.Fatalf("status %d, %d devices: %s", s.status, len(s.samples), s.words)
	}
	want := gpu.Device{UUID: uuid(1), Index: 1, Name: "NVIDIA H100 80GB HBM3", PCI: "00000000:1C:00.0", Driver: "580.65.06"}
	if d := s.devices[uuid(1)]; !d.Same(want) {
		t.Errorf("%+v", d)
	}
	x := s.samples[uuid(0)][0]
	if x.State != wire.DeviceAnswers || x.Every != 1e9 || x.Took < 40e6 || x.Time == 0 {
		t.Errorf("%+v", x)
	}
	wants(t, x, map[string]float64{
		"hw.gpu.utilization": 0.97, "gpu.memory_busy": 0.41, "hw.gpu.memory.limit": 85520809984, "hw.gpu.memory.usage": 73971964672, "gpu.memory_free": 11048845312, "gpu.memory_reserved": 5e8,
		"gpu.power": 510, "gpu.power_instant": 530, "gpu.power_limit": 700, "gpu.energy": 918273645, "gpu.temperature": 62, "gpu.memory_temperature": 72, "gpu.temperature_margin": 25,
		"gpu.clock.sm": 1245e6, "gpu.clock.sm_max": 1980e6, "gpu.clock.memory": 2619e6, "gpu.clock.memory_max": 2619e6, "gpu.clock_events": 4, "gpu.performance_state": 0,
		"gpu.throttled.power": 2.5, "gpu.throttled.thermal": 1, "gpu.throttled.thermal_hardware": 0, "gpu.throttled.power_brake": 0, "gpu.xid": 0,
		"gpu.ecc.corrected": 17, "gpu.ecc.uncorrected": 1, "gpu.pages_retired": 3, "gpu.rows_remapped": 1, "gpu.row_remap_pending": 1, "gpu.row_remap_failed": 0,
		"gpu.pcie.link_generation": 4, "gpu.pcie.link_generation_max": 5, "gpu.pcie.link_width": 8, "gpu.pcie.link_width_max": 16, "gpu.pcie.tx": 125e6, "gpu.pcie.rx": 250e6, "gpu.pcie.replays": 3,
		"gpu.nvlink.sent": 1024e6, "gpu.nvlink.received": 2048e6, "gpu.nvlink.links_active": 5,
	})
	if len(x.Values) != len(gpu.Names) || len(x.Absent) != 0 {
		t.Errorf("%d of %d signals have a value, %d have none: %+v", len(x.Values), len(gpu.Names), len(x.Absent), x.Absent)
	}
	if _, over, _ := value(x, "hw.gpu.utilization"); over != 166667*time.Microsecond {
		t.Errorf("utilisation is over %v", over)
	}
	if _, over, _ := value(x, "gpu.power"); over != time.Second {
		t.Errorf("power is over %v", over)
	}
	if want := []wire.SampleProcess{{PID: 4242, Busy: 0.65, Used: 73000000000}}; !slices.Equal(x.Processes, want) {
		t.Errorf("%+v", x.Processes)
	}
}

func TestAnOldDriverLacksFunctions(t *testing.T) {
	p, lib := program(t), fake(t, "-DOLD")
	s := ask(t, p, "", time.Minute, "--library", lib, "--once")
	if s.status != ExitOK || len(s.samples) != 2 {
		t.Fatalf("status %d: %s", s.status, s.words)
	}
	x := s.samples[uuid(0)][0]
	wants(t, x, map[string]float64{"hw.gpu.memory.usage": 74471964672, "gpu.temperature": 61, "gpu.power": 512.4, "gpu.clock_events": 4, "gpu.throttled.thermal": 183.4})
	for name, why := range map[string]wire.AbsentReason{
		"gpu.memory_reserved": wire.AbsentOldDriver, "gpu.temperature_margin": wire.AbsentOldDriver, "gpu.power_instant": wire.AbsentNotSupported, "gpu.throttled.power_brake": wire.AbsentNotSupported,
		"gpu.rows_remapped": wire.AbsentOldDriver,
	} {
		if got := absent(x, name); got != why {
			t.Errorf("%s is absent for reason %d, not %d", name, got, why)
		}
	}
	if len(x.Processes) != 1 || x.Processes[0].Used != 74000000000 || x.Processes[0].Instance != 0 {
		t.Errorf("%+v", x.Processes)
	}
	if _, _, ok := value(x, "gpu.xid"); ok {
		t.Error("no error can come: there are no events")
	}
}

func TestWhatIsNoValueIsNone(t *testing.T) {
	p, lib := program(t), fake(t)
	x := ask(t, p, "blank,corrupt,no-ecc,no-permission", time.Minute, "--library", lib, "--once").samples[uuid(0)][0]
	for name, why := range map[string]wire.AbsentReason{"gpu.energy": wire.AbsentBlank, "gpu.performance_state": wire.AbsentCorrupt, "hw.gpu.utilization": wire.AbsentCorrupt,
		"gpu.ecc.corrected": wire.AbsentNotSupported, "gpu.pcie.tx": wire.AbsentNotPermitted} {
		if got := absent(x, name); got != why {
			t.Errorf("%s is absent for reason %d, not %d", name, got, why)
		}
		if v, _, ok := value(x, name); ok {
			t.Errorf("%s is %v", name, v)
		}
	}
	if x.Processes[0].Used != math.MaxUint64 {
		t.Errorf("%+v", x.Processes)
	}
	wants(t, x, map[string]float64{"gpu.memory_busy": 0.12, "gpu.temperature": 62})
}

func TestADividedGPU(t *testing.T) {
	p, lib := program(t), fake(t)
	s := ask(t, p, "mig", time.Minute, "--library", lib, "--once")
	if len(s.samples) != 4 {
		t.Fatalf("%d devices, 2 GPUs and 2 instances were there", len(s.samples))
	}
	whole, part := s.samples[uuid(0)][0], s.samples["MIG-00000000-0000-0000-0000-000000000001"][0]
	if absent(whole, "hw.gpu.utilization") != wire.AbsentShared || absent(part, "hw.gpu.utilization") != wire.AbsentShared || len(whole.Processes) != 0 {
		t.Errorf("a divided GPU has no utilisation, nor have its instances: %+v %+v", whole.Absent, part.Absent)
	}
	d := s.devices["MIG-00000000-0000-0000-0000-000000000001"]
	if d.Parent != uuid(0) || d.Profile != "3g.40gb" || d.Instance != 2 || !s.devices[uuid(0)].Divided || s.devices[uuid(1)].Divided {
		t.Errorf("%+v", d)
	}
	if len(part.Processes) != 1 || part.Processes[0].PID != 4243 || part.Processes[0].Instance != 3 {
		t.Errorf("%+v", part.Processes)
	}
	if _, _, ok := value(part, "gpu.power"); ok {
		t.Error("the board's power is told once, of the board")
	}
}

func TestASharedGPU(t *testing.T) {
	p, lib := program(t), fake(t)
	x := ask(t, p, "shared", time.Minute, "--library", lib, "--once").samples[uuid(0)][0]
	if want := []wire.SampleProcess{{PID: 4242, Busy: 0.65, Used: 73000000000}, {PID: 4243, Busy: 0.3, Used: 1000000000}}; !slices.Equal(x.Processes, want) {
		t.Errorf("%+v", x.Processes)
	}
}

func TestALostGPU(t *testing.T) {
	p, lib := program(t), fake(t)
	s := ask(t, p, "lost=1", time.Minute, "--library", lib, "--once")
	if x := s.samples[uuid(1)][0]; x.State != wire.DeviceLost || !strings.Contains(x.Why, "fallen off the bus") || !strings.Contains(x.Why, "reboot") || len(x.Values) != 1 {
		t.Errorf("%+v", x)
	}
	if x := s.samples[uuid(0)][0]; x.State != wire.DeviceAnswers {
		t.Errorf("the other: %+v", x)
	}
}

// One GPU hangs inside the driver: it is said not to answer, by its own goroutine alone, and the other is read on.
func TestAHungGPUDoesNotHoldUpTheOthers(t *testing.T) {
	p, lib := program(t), fake(t)
	s := ask(t, p, "hang=1", 2*time.Second, "--library", lib, "--every", "100ms", "--patience", "500ms")
	if n := len(s.samples[uuid(0)]); n < 5 {
		t.Errorf("the GPU that answers was read %d times", n)
	}
	if len(s.samples[uuid(1)]) == 0 {
		t.Fatal("nothing is said of the GPU that hangs")
	}
	for _, x := range s.samples[uuid(1)] {
		if x.State != wire.DeviceSilent || x.Since == 0 || !strings.Contains(x.Why, "hangs") {
			t.Fatalf("%+v", x)
		}
	}
}

func TestADriversErrorIsToldOnce(t *testing.T) {
	p, lib := program(t), fake(t)
	s := ask(t, p, "xid=79", time.Second, "--library", lib, "--every", "100ms")
	var told []wire.SampleXID
	for _, x := range s.samples[uuid(1)] {
		told = append(told, x.XIDs...)
	}
	if len(told) != 1 || told[0].Number != 79 || told[0].At == 0 {
		t.Errorf("%+v", told)
	}
	wants(t, s.samples[uuid(1)][len(s.samples[uuid(1)])-1], map[string]float64{"gpu.xid": 79})
	wants(t, s.samples[uuid(0)][len(s.samples[uuid(0)])-1], map[string]float64{"gpu.xid": 0})
}

func TestWithoutADriver(t *testing.T) {
	p := program(t)
	for _, c := range []struct{ how, words string }{{"init=9", "load it"}, {"init=18", "different versions"}, {"gpus=0", "no GPU"}, {"init=4", "not permitted"}} {
		s := ask(t, p, c.how, time.Minute, "--library", fake(t), "--once")
		if s.status != ExitUnusable || !strings.Contains(s.words, c.words) {
			t.Errorf("%s: status %d, %s", c.how, s.status, s.words)
		}
	}
	s := ask(t, p, "", time.Minute, "--library", filepath.Join(t.TempDir(), "none.so"), "--once")
	if s.status != ExitUnusable || !strings.Contains(s.words, "NVIDIA_DRIVER_CAPABILITIES=utility") {
		t.Errorf("status %d, %s", s.status, s.words)
	}
	if s := ask(t, p, "", time.Minute, "--every", "often"); s.status != ExitUsage {
		t.Errorf("status %d", s.status)
	}
}

func TestBuildsForBothArchitecturesWithoutCgo(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		build := exec.Command("go", "build", "-o", filepath.Join(t.TempDir(), arch), "github.com/whylate/whylate/cmd/whylate-gpu")
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := build.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", arch, err, out)
		}
	}
}
