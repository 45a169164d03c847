package look

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// answer is a Prometheus's: series of one sample every 15 s.
type answer []map[string]any

func (a *answer) add(name string, ls map[string]string, values ...float64) {
	metric := map[string]string{"__name__": name}
	for k, v := range ls {
		metric[k] = v
	}
	var of [][2]any
	for i, v := range values {
		of = append(of, [2]any{1773223200 + 15*i, fmt.Sprint(v)})
	}
	*a = append(*a, map[string]any{"metric": metric, "values": of})
}

// gpu are the labels of a GPU of one host, and some more.
func gpu(i int, more ...string) map[string]string {
	ls := map[string]string{"gpu": fmt.Sprint(i), "UUID": fmt.Sprintf("GPU-%08x", i), "Hostname": "h"}
	for k := 0; k < len(more); k += 2 {
		ls[more[k]] = more[k+1]
	}
	return ls
}

func (a *answer) look(t *testing.T) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": *a}})
	if err != nil {
		t.Fatal(err)
	}
	scene, err := Read(context.Background(), []Input{{Name: "a", Target: "a", Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Judge(scene).Text(&out, 110); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

func says(t *testing.T, text string, want []string, never ...string) {
	t.Helper()
	for _, w := range want {
		if !regexp.MustCompile(w).MatchString(text) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
	for _, n := range never {
		if m := regexp.MustCompile(n).FindString(text); m != "" {
			t.Errorf("it says %q:\n%s", m, text)
		}
	}
}

func TestStragglerByHeat(t *testing.T) {
	var a answer
	for i := range 8 {
		pod := gpu(i, "pod", "dcgm-exporter-1", "namespace", "ops", "exported_pod", "p", "exported_namespace", "n")
		clock, mask, temp := 1755.0, 4.0, 66.0
		if i == 5 {
			clock, mask, temp = 1185, 0x48, 91
		}
		a.add("DCGM_FI_DEV_SM_CLOCK", pod, clock)
		a.add("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", pod, mask)
		a.add("DCGM_FI_DEV_GPU_TEMP", pod, temp)
		a.add("DCGM_FI_DEV_GPU_UTIL", pod, 100)
	}
	says(t, a.look(t), []string{`GPU 5 of h is the straggler of the 8 GPUs of n/p: SM clock 1,185 MHz, the others 1,755 MHz: 1\.48 times slower`, `72 = 0x48: hardware slowdown \(0x8\) \+ thermal slowdown by hardware \(0x40\)`, `91 °C`, `cooling at once`}, `power feed`, `its clocks are held down now`)
}

func TestAnIdleGPUIsNoStraggler(t *testing.T) {
	var a answer
	for i, clock := range []float64{1980, 1980, 345} {
		a.add("DCGM_FI_DEV_SM_CLOCK", gpu(i), clock)
		a.add("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gpu(i), map[float64]float64{1980: 4, 345: 1}[clock])
		a.add("DCGM_FI_DEV_GPU_UTIL", gpu(i), map[float64]float64{1980: 100, 345: 0}[clock])
		a.add("DCGM_FI_PROF_SM_ACTIVE", gpu(i), map[float64]float64{1980: .9, 345: 0}[clock])
	}
	says(t, a.look(t), []string{`SM clock 345 MHz \(GPU 2\) to 1,980 MHz`}, `straggler`, `BROKEN`, `invalid`)
}

func TestADifferentClockAloneIsNoFault(t *testing.T) {
	var a answer
	for i, clock := range []float64{1980, 1980, 1700} {
		a.add("DCGM_FI_DEV_SM_CLOCK", gpu(i), clock)
		a.add("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", gpu(i), 4)
		a.add("DCGM_FI_DEV_GPU_UTIL", gpu(i), 100)
	}
	says(t, a.look(t), []string{`note GPU 2 of h is the straggler of the 3 GPUs at work on its host`, `If they work on one model`, `No fault is among its reasons: compare power limit`}, `BROKEN`)
}

func TestDeadProfilingOfOneOfTwo(t *testing.T) {
	var a answer
	for i := range 2 {
		busy := []float64{.9, 0}[i]
		a.add("DCGM_FI_DEV_GPU_UTIL", gpu(i), 98, 98, 98, 98)
		a.add("DCGM_FI_PROF_SM_ACTIVE", gpu(i), busy, busy, busy, busy)
		a.add("DCGM_FI_PROF_DRAM_ACTIVE", gpu(i), busy, busy, busy, busy)
	}
	says(t, a.look(t), []string{`PROF data of GPU 1 of h are invalid, not idle: from 10:00:00 UTC SM active, DRAM active are exactly 0 in 4 consecutive samples`, `SM active 90\.0 % \(GPU 0\), unknown on 1`}, `GPU 0 of h are invalid`)
}

func TestOwnerUnknown(t *testing.T) {
	var a answer
	a.add("DCGM_FI_DEV_GPU_UTIL", gpu(0, "pod", "telemetry-1", "namespace", "ops"), 50)
	a.add("DCGM_FI_DEV_GPU_UTIL", gpu(1, "pod", "telemetry-1", "namespace", "ops", "exported_pod", "p", "exported_namespace", "n"), 50)
	a.add("vllm:num_requests_running", map[string]string{"model_name": "m", "pod": "p", "namespace": "n", "instance": "e:8000"}, 3)
	says(t, a.look(t), []string{`n/p \(m on e:8000\) on GPU 1 of h`, `GPU 0 of h \(GPU-00000000\): owner unknown; its labels name only the exporter itself \(ops/telemetry-1\)`}, `ops/telemetry-1 on`)
}

func TestEnergyOfAllGPUsOfAnEngine(t *testing.T) {
	var a answer
	for i := range 2 {
		a.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu(i, "pod", "p", "namespace", "n"), 9e9, 9.009e9, 9.018e9)
	}
	a.add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu(2, "pod", "other", "namespace", "n"), 9e9, 9.009e9, 9.018e9)
	a.add("vllm:generation_tokens_total", map[string]string{"model_name": "m", "pod": "p", "namespace": "n", "instance": "e:8000"}, 0, 10000, 20000)
	says(t, a.look(t), []string{`1\.80 J per token \(m on e:8000\)`})
}

func TestUtilisationOfInstancesIsUnknown(t *testing.T) {
	var a answer
	for _, of := range [][2]string{{"1", "4g.40gb"}, {"2", "2g.20gb"}} {
		ls := gpu(0, "GPU_I_ID", of[0], "GPU_I_PROFILE", of[1])
		a.add("DCGM_FI_DEV_GPU_UTIL", ls, 0)
		a.add("DCGM_FI_DEV_BOARD_POWER_WATTS", ls, 300)
		a.add("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", ls, map[string]float64{"1": .9, "2": .3}[of[0]])
	}
	says(t, a.look(t), []string{`weighted by their slices \(4:2\): engine active 70\.0 %`, `draws 300\.0 W, once, though 2 lines repeat it`, `GPU_UTIL is not measured for instances: unknown, not 0`}, `utilisation 0`, `600`)
}

func TestAnExporterThatReadsLessOften(t *testing.T) {
	var a answer
	a.add("DCGM_FI_DEV_POWER_USAGE", gpu(0), 500.1, 500.1, 512.3, 512.3, 498.7, 498.7, 505.2, 505.2, 511)
	says(t, a.look(t), []string{`power 511\.0 W; a sample every 15\.0 s, something new about every 30\.0 s`})
	a = nil
	a.add("DCGM_FI_DEV_POWER_USAGE", gpu(0), 500.1, 500.1, 500.1, 500.1)
	says(t, a.look(t), []string{`a sample every 15\.0 s, in which nothing was new: the exporter reads less often`})
}
