package dcgm

import (
	"math"
	"os"
	"strings"
	"testing"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
)

func labels(pairs ...string) (ls exposition.Labels) {
	for i := 0; i < len(pairs); i += 2 {
		ls = append(ls, exposition.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ls
}

func TestBlanks(t *testing.T) {
	for _, c := range []struct {
		family string
		p      adapter.Point
		want   string
	}{
		{"DCGM_FI_DEV_SM_CLOCK", adapter.Point{Value: 2147483632}, "blank"},
		{"DCGM_FI_DEV_MEMORY_TEMP", adapter.Point{Value: 2147483634}, "not supported"},
		{"DCGM_FI_DEV_SM_CLOCK", adapter.Point{Value: 2147483640}, "blank, of an unknown kind"},
		{"DCGM_FI_DEV_GPU_TEMP", adapter.Point{Value: 9223372036854775792, Text: "9223372036854775792"}, "blank"},
		{"DCGM_FI_DEV_FB_USED", adapter.Point{Value: 9223372036854775794, Text: "9223372036854775794"}, "not supported"},
		{"DCGM_FI_DEV_XID_ERRORS", adapter.Point{Value: 9223372036854775793, Text: "9223372036854775793.000"}, "not found"},
		{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", adapter.Point{Value: 9223372036854775795, Text: "9223372036854775795"}, "not permitted"},
		{"DCGM_FI_DEV_FB_USED", adapter.Point{Value: 9223372036854776000, Text: "9223372036854776000"}, "blank, its reason lost in rounding"},
		{"DCGM_FI_DEV_FB_USED", adapter.Point{Value: 9223372036854776000, Text: "9.223372036854776e+18"}, "blank, its reason lost in rounding"},
		{"DCGM_FI_DEV_FB_USED", adapter.Point{Value: 9223372036854775807, Text: "9223372036854775807"}, "blank, its reason lost in rounding"},
		{"DCGM_FI_DEV_FB_USED", adapter.Point{Value: 9223372036854775807}, "blank, its reason lost in rounding"},
		{"DCGM_FI_PROF_SM_ACTIVE", adapter.Point{Value: 140737488355328}, "blank"},
		{"DCGM_FI_DEV_POWER_USAGE", adapter.Point{Value: 140737488355331}, "not permitted"},
		{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", adapter.Point{Value: 2147483632}, ""},
		{"DCGM_FI_DEV_GPU_UTIL", adapter.Point{Value: 97}, ""},
		{"nvidia-smi:power.draw", adapter.Point{Value: math.NaN(), Text: "[Not Supported]"}, "not supported"},
		{"nvidia-smi:power.draw", adapter.Point{Value: math.NaN(), Text: "ERR!"}, "read error (ERR!)"},
		{"nvidia-smi:power.draw", adapter.Point{Value: math.NaN(), Text: "[N/A]"}, "N/A"},
	} {
		tr := &adapter.Track{Family: c.family, Points: []adapter.Point{c.p}}
		if v, why := value(tr, c.p); why != c.want || why == "" && v != c.p.Value {
			t.Errorf("%s %v %s: %v, %q, not %q", c.family, c.p.Value, c.p.Text, v, why, c.want)
		}
	}
}

func TestCorruptIsNoValue(t *testing.T) {
	rs := Exporter.Read(&adapter.Track{Family: "DCGM_FI_DEV_GPU_UTIL", Labels: labels("gpu", "0"), Points: []adapter.Point{{Value: 97}, {Value: 4294967295}, {Value: 131072}, {Value: 96}}})
	if len(rs) != 1 || len(rs[0].Points) != 2 || rs[0].Points[1].Value != 0.96 || rs[0].Unknown["corrupt (outside 0 to 100)"] != 2 {
		t.Fatalf("%+v", rs[0])
	}
}

func TestTheFieldDecidesTheUnit(t *testing.T) {
	for _, c := range []struct {
		family      string
		value, want float64
	}{
		{"DCGM_FI_DEV_GPU_UTIL", 1, 0.01}, {"DCGM_FI_DEV_GPU_UTIL_RATIO", 1, 0.01}, {"DCGM_FI_DEV_GPU_UTIL_RATIO", 0.97, 0.97}, {"DCGM_FI_PROF_SM_UTIL_RATIO", 1, 1}, {"DCGM_FI_DEV_FB_USED_PERCENT", 0.89, 0.89},
		{"DCGM_FI_DEV_FB_USED_RATIO", 0.89, 0.89}, {"DCGM_FI_DEV_SM_CLOCK", 1980, 1980e6}, {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 5000, 5}, {"DCGM_FI_DEV_THERMAL_VIOLATION", 2e9, 2}, {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1, 1024000},
	} {
		rs := Exporter.Read(&adapter.Track{Family: c.family, Labels: labels("gpu", "0"), Points: []adapter.Point{{Value: c.value}}})
		if len(rs) != 1 || len(rs[0].Points) != 1 || math.Abs(rs[0].Points[0].Value-c.want) > 1e-9*c.want {
			t.Errorf("%s %v: %+v", c.family, c.value, rs)
		}
	}
}

func TestWho(t *testing.T) {
	const family = "DCGM_FI_DEV_GPU_UTIL"
	for _, c := range []struct {
		name   string
		family string
		ls     exposition.Labels
		want   adapter.Who
	}{
		{"relabelled", family, labels("gpu", "0", "UUID", "GPU-a", "Hostname", "gpu-exporter-x", "pod", "gpu-exporter-x", "namespace", "ops", "exported_pod", "p", "exported_namespace", "n", "node", "h"), adapter.Who{Device: "GPU-a", Index: "0", Node: "h", Workload: "n/p"}},
		{"direct", family, labels("gpu", "0", "UUID", "GPU-a", "hostname", "h", "pod", "p", "namespace", "n"), adapter.Who{Device: "GPU-a", Index: "0", Node: "h", Workload: "n/p"}},
		{"only the exporter", family, labels("gpu", "0", "UUID", "GPU-a", "Hostname", "h", "pod", "nvidia-dcgm-exporter-2x", "namespace", "ops"), adapter.Who{Device: "GPU-a", Index: "0", Node: "h"}},
		{"only the exporter, under another name", family, labels("gpu", "0", "UUID", "GPU-a", "Hostname", "telemetry-7", "pod", "telemetry-7", "namespace", "ops"), adapter.Who{Device: "GPU-a", Index: "0"}},
		{"a link", "DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL", labels("nvlink", "3", "gpu", "0", "gpu_uuid", "GPU-a", "model_name", "NVIDIA H100", "hostname", "h"), adapter.Who{Device: "GPU-a", Index: "0", Node: "h"}},
		{"no UUID", family, labels("gpu", "1", "pci_bus_id", "00:18", "Hostname", "h"), adapter.Who{Device: "h 00:18", Index: "1", Node: "h"}},
		{"nothing but an index", family, labels("gpu", "1"), adapter.Who{Device: "t gpu 1", Index: "1"}},
		{"old names", family, labels("gpu", "0", "uuid", "GPU-a", "pod_name", "p", "pod_namespace", "n"), adapter.Who{Device: "GPU-a", Index: "0", Workload: "n/p"}},
		{"an instance", "DCGM_FI_PROF_SM_ACTIVE", labels("gpu", "0", "UUID", "GPU-a", "GPU_I_PROFILE", "3g.40gb", "GPU_I_ID", "2", "pod", "p", "namespace", "n"), adapter.Who{Device: "GPU-a", Index: "0", Workload: "n/p", Slice: "3g.40gb id 2"}},
		{"a board's number on an instance's line", "DCGM_FI_DEV_POWER_USAGE", labels("gpu", "0", "UUID", "GPU-a", "GPU_I_PROFILE", "3g.40gb", "GPU_I_ID", "2", "pod", "p", "namespace", "n"), adapter.Who{Device: "GPU-a", Index: "0"}},
	} {
		rs := Exporter.Read(&adapter.Track{Target: "t", Family: c.family, Labels: c.ls, Points: []adapter.Point{{Value: 1}}})
		c.want.Producer, c.want.Target = "dcgm", "t"
		if len(rs) != 1 || rs[0].Who != c.want {
			t.Errorf("%s: %+v, not %+v", c.name, rs[0].Who, c.want)
		}
	}
}

func TestHolds(t *testing.T) {
	for mask, want := range map[uint64]string{
		0: "none", 1: "1 = 0x1: idle", 4: "4 = 0x4: power cap, normal at high load", 0x28: "40 = 0x28: hardware slowdown (0x8) + thermal slowdown by software (0x20)",
		0x48:  "72 = 0x48: hardware slowdown (0x8) + thermal slowdown by hardware (0x40)",
		0x408: "1032 = 0x408: hardware slowdown (0x8) + unknown reason, bit 10 (0x400)",
	} {
		if got := HoldsText(mask); got != want {
			t.Errorf("%d: %s, not %s", mask, got, want)
		}
	}
}

type sample struct {
	family string
	ls     exposition.Labels
	p      adapter.Point
}

func readTable(t testing.TB, text string) (kind string, of []sample, problems []string) {
	t.Helper()
	kind, problems = Table([]byte(text), func(family string, ls exposition.Labels, p adapter.Point) { of = append(of, sample{family, ls, p}) })
	return kind, of, problems
}

func find(of []sample, family string, pairs ...string) *sample {
	for i := range of {
		if of[i].family == family && of[i].ls.Key() == labels(pairs...).Key() {
			return &of[i]
		}
	}
	return nil
}

func TestTables(t *testing.T) {
	kind, of, problems := readTable(t, "timestamp, index, uuid, power.draw [W], memory.used [MiB], clocks_event_reasons.active\n2026/03/11 10:00:00.000, 0, GPU-a, 512.40 W, 71022 MiB, 0x0000000000000088\n2026/03/11 10:00:05.500, 0, GPU-a, [N/A], 71022 MiB, Not Active\n")
	if kind != "nvidia-smi CSV" || len(problems) > 0 || len(of) != 6 {
		t.Fatal(kind, problems, of)
	}
	first, second := of[0], of[3]
	if first.family != "nvidia-smi:power.draw" || first.p.Value != 512.4 || first.ls.Get("UUID") != "GPU-a" || second.p.At-first.p.At != 5.5e9 || !math.IsNaN(second.p.Value) || second.p.Text != "[N/A]" {
		t.Errorf("%+v %+v", first, second)
	}
	if of[2].p.Value != 0x88 || of[5].p.Value != 0 {
		t.Errorf("masks %+v %+v", of[2], of[5])
	}

	kind, of, problems = readTable(t, "#Entity   SMACT        POWER\nID                     W\nGPU 1     0.881        512.400\nGPU-I 1/0 0.402        N/A\n0 0.1 60\nGPU-I 5 0.7 N/A\n")
	if kind != "dcgmi dmon" || len(problems) != 1 || !strings.Contains(problems[0], "line 6") {
		t.Fatal(kind, problems)
	}
	if s := find(of, "DCGM_FI_PROF_SM_ACTIVE", "GPU_I_ID", "0", "gpu", "1"); s == nil || s.p.Value != 0.402 {
		t.Errorf("%+v", of)
	}
	if s := find(of, "DCGM_FI_DEV_POWER_USAGE", "gpu", "0"); s == nil || s.p.Value != 60 {
		t.Errorf("%+v", of)
	}

	kind, of, problems = readTable(t, "# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n# Idx      W      C      C      %      %    MHz    MHz\n    0    117     45      -     13      6   2619   1980\n    1    bad\n")
	if kind != "nvidia-smi dmon" || len(problems) != 1 || !strings.Contains(problems[0], "line 4") {
		t.Fatal(kind, problems)
	}
	if s := find(of, "nvidia-smi:clocks.sm", "gpu", "0"); s == nil || s.p.Value != 1980 {
		t.Errorf("%+v", of)
	}
	if s := find(of, "nvidia-smi:temperature.memory", "gpu", "0"); s == nil || s.p.Text != "-" {
		t.Errorf("%+v", of)
	}

	if kind, of, problems := readTable(t, "utilization.gpu [%]\n, memory.used [MiB]"); kind != "" || len(of)+len(problems) > 0 {
		t.Error(kind, of, problems)
	}
	if kind, of, problems := readTable(t, "utilization.gpu [%], name\n97 %, NVIDIA H100\n"); kind == "" || len(of) > 0 || len(problems) != 1 {
		t.Error("rows that may be of any GPU: ", kind, of, problems)
	}
	if _, of, _ := readTable(t, "pci.bus_id, utilization.gpu [%]\n00000000:18:00.0, 97\n"); len(of) != 1 || of[0].ls.Get("pci_bus_id") != "00000000:18:00.0" || of[0].p.Value != 97 {
		t.Error(of)
	}
	for _, other := range []string{"", "a, b\n1, 2\n", "# HELP DCGM_FI_DEV_SM_CLOCK SM clock of a gpu.\nDCGM_FI_DEV_SM_CLOCK 1\n", "# a comment\n", "{}", "x,y"} {
		if kind, of, _ := readTable(t, other); kind != "" || len(of) > 0 {
			t.Errorf("%q is taken for %s", other, kind)
		}
	}
}

// FuzzTable reads any text: what comes out is understood without a panic, and no value is one that cannot be.
func FuzzTable(f *testing.F) {
	for _, name := range []string{"C47-dcgm-blank-sentinels.dmon.txt", "C47-dcgm-blank-sentinels.smi.csv"} {
		b, err := os.ReadFile("../../testdata/cases/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk\n    0    117     45      -     13      6   2619   1980\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, of, _ := readTable(t, text)
		for _, s := range of {
			for _, a := range []*adapter.Adapter{&Exporter, &SMI} {
				if !a.Owns(s.family) {
					continue
				}
				for _, r := range a.Read(&adapter.Track{Target: "t", Family: s.family, Labels: s.ls, Points: []adapter.Point{s.p}}) {
					for _, p := range r.Points {
						if v := p.Value; math.IsNaN(v) || math.IsInf(v, 0) || r.Signal.Range != nil && (v < r.Signal.Range.Least || v > r.Signal.Range.Most) {
							t.Errorf("%s is %v of %q", r.Signal.Name, v, text)
						}
					}
				}
			}
		}
	})
}
