package timing

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func written(t testing.TB, c *Calibration) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A calibration that was saved answers as the one that was learned, and is written in the same bytes.
func TestASavedCalibrationAnswersAlike(t *testing.T) {
	for name, c := range map[string]*Calibration{"real": calibrate(t, demoEngine(t)), "graphs": calibrate(t, made(t, 5, 3000, 2, small().Model(5), true))} {
		raw := written(t, c)
		back, err := Read(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(written(t, back), raw) {
			t.Errorf("%s: written again, it is another", name)
		}
		if back.Provenance != c.Provenance {
			t.Errorf("%s: %+v, was %+v", name, back.Provenance, c.Provenance)
		}
		if !reflect.DeepEqual(play(c.Model(3), 3000), play(back.Model(3), 3000)) {
			t.Errorf("%s: it answers otherwise", name)
		}
	}
	a, b := calibrate(t, demoEngine(t)), calibrate(t, demoEngine(t))
	if !bytes.Equal(written(t, a), written(t, b)) {
		t.Error("the same ledger gave another calibration")
	}
}

// tiny is the smallest calibration that is one.
const tiny = `{"format":"whylate-calibration","version":1,"provenance":{"rows":2},"graphs":[{"size":1,"mode":"full"},{"size":8,"mode":"full"}],
"expected":{"host":{"least_ns":1,"ns_per":{"iterations":1000}},"device":{"least_ns":1,"ns_per":{"iterations":5000000,"graph of 8":1000}},"tail":{"least_ns":1,"ns_per":{}},"gap":{"least_ns":0,"ns_per":{}}},
"kinds":[{"class":"decode","over":0,"residuals":{"host":[1,1.1],"device":[0.9,1],"tail":[1,1],"gap":[1,1]}},{"class":"prefill","over":0,"residuals":{"host":[1],"device":[1],"tail":[1],"gap":[1]}}],
"stalls":[{"extra_ns":{"device":1e9},"first_with":["logprob rows"]}]}`

func TestCalibrationsThatCannotBeAreRefusedByName(t *testing.T) {
	if _, err := Read(strings.NewReader(tiny)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, want string }{
		{tiny, ``, "not JSON"},
		{`"whylate-calibration"`, `"run"`, `format: "run"`},
		{`"version":1`, `"version":2`, "version: 2"},
		{`"rows":2`, `"rows":0`, "provenance.rows: 0"},
		{`"rows":2`, `"rowz":2`, "rowz"},
		{`"size":8`, `"size":-8`, "graphs[1].size: -8"},
		{`"size":8,"mode":"full"`, `"size":8,"mode":"none"`, `graphs[1].mode: "none"`},
		{`"graphs"`, `"bends":[2,1],"graphs"`, "bends[1]: 1"},
		{`"tail":{"least_ns":1,"ns_per":{}},`, ``, "expected: no tail"},
		{`"iterations":1000`, `"iterations":-1`, "expected.host: ns_per.iterations: -1"},
		{`"graph of 8"`, `"graph of 9"`, `expected.device: ns_per: "graph of 9"`},
		{`"least_ns":0`, `"least_ns":1e30`, "expected.gap: least_ns: 1e+30"},
		{`"class":"decode"`, `"class":"encode"`, `kinds[0]: class: "encode"`},
		{`"class":"decode"`, `"class":"empty"`, "some of decode and some of prefill"},
		{`"class":"prefill","over":0`, `"class":"decode","over":0`, "kinds[1].over: 0"},
		{`"gap":[1]`, `"gap":[]`, "kinds[1]: residuals.gap: 0 values"},
		{`"gap":[1]`, `"gap":[1,1]`, "kinds[1]: residuals.gap: 2 values"},
		{`"device":[0.9,1]`, `"device":[-0.9,1]`, "kinds[0]: residuals.device[0]: -0.9"},
		{`"device":[0.9,1]`, `"device":[1e300,1]`, "1e300"},
		{`"extra_ns":{"device":1e9}`, `"extra_ns":{"gpu":1}`, `stalls[0]: extra_ns: "gpu"`},
		{`"extra_ns":{"device":1e9}`, `"extra_ns":{"device":-1}`, "stalls[0]: extra_ns.device: -1"},
		{`"logprob rows"`, `"logits"`, `stalls[0]: first_with: "logits"`},
		{`"stalls":[`, `"stalls":[{},{},`, "stalls: 3 of 2 rows"},
	} {
		text := strings.Replace(tiny, c.from, c.to, 1)
		if text == tiny {
			t.Errorf("%s: not in the text", c.from)
		}
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v, want it to say %q", c.from, c.to, err, c.want)
		}
	}
	if _, err := Read(strings.NewReader(strings.Repeat(" ", maxCalibration+1))); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file without end: %v", err)
	}
}

// Whatever is read, the model drawn from it gives possible times, and it is written and read again as the same.
func FuzzRead(f *testing.F) {
	f.Add([]byte(tiny))
	whole := written(f, calibrate(f, demoEngine(f)))
	var short map[string]any
	if err := json.Unmarshal(whole, &short); err != nil {
		f.Fatal(err)
	}
	for _, k := range short["kinds"].([]any) {
		for part, values := range k.(map[string]any)["residuals"].(map[string]any) {
			k.(map[string]any)["residuals"].(map[string]any)[part] = values.([]any)[:3]
		}
	}
	seed, err := json.Marshal(short)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := Read(bytes.NewReader(raw))
		if err != nil {
			return
		}
		for _, took := range play(c.Model(1), 50) {
			if took.Host < 0 || took.Device < 0 || took.Tail < 0 || took.Gap < 0 || !(took.Memory >= 0 && took.Memory <= 1) {
				t.Fatalf("%+v", took)
			}
		}
		first := written(t, c)
		back, err := Read(bytes.NewReader(first))
		if err != nil {
			t.Fatalf("%v: %s", err, first)
		}
		if !bytes.Equal(written(t, back), first) {
			t.Fatal("written again, it is another")
		}
	})
}
