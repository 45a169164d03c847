package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/bundle"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
)

// faultAndSham plays a fault of telemetry, and the same without it, with all evidence.
func faultAndSham(t *testing.T, name string, p Params) (fault, sham played) {
	t.Helper()
	fault = play(t, Named(name), p, 0)
	p.Sham = true
	sham = play(t, Named(name), p, 0)
	sham.whole(t)
	if fault.truth.Mechanism != None || !fault.truth.Telemetry || len(fault.truth.Culprits) == 0 {
		t.Errorf("%+v", fault.truth)
	}
	if fault.summary != sham.summary {
		t.Errorf("the service was another: %+v, %+v", fault.summary, sham.summary)
	}
	for _, e := range fault.book.Engines {
		for _, v := range ledger.Check(e) {
			t.Errorf("%v", v)
		}
	}
	return fault, sham
}

func TestAMissingSourceIsMissing(t *testing.T) {
	t.Parallel()
	fault, sham := faultAndSham(t, "missing-source", short(1))
	roles := func(p *played) (all []string) {
		for _, s := range p.book.Sources {
			all = append(all, s.Role)
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	if got, want := strings.Join(roles(&fault), " "), "engine worker"; got != want {
		t.Errorf("sources %q, want %q", got, want)
	}
	if got, want := strings.Join(roles(&sham), " "), "client engine frontend gpu worker"; got != want {
		t.Errorf("without the fault: sources %q, want %q", got, want)
	}
}

func TestLostRecordsAreGaps(t *testing.T) {
	t.Parallel()
	fault, sham := faultAndSham(t, "lost-records", short(1))
	if c := fault.book.Coverage(); c >= 0.99 || c < 0.5 || len(fault.book.AllGaps()) == 0 {
		t.Errorf("coverage %v, %d gaps", c, len(fault.book.AllGaps()))
	}
	if c := sham.book.Coverage(); c != 1 {
		t.Errorf("without the fault: coverage %v", c)
	}
}

func TestASkewedClockShiftsWhatIsComparedAcrossHosts(t *testing.T) {
	t.Parallel()
	fault, sham := faultAndSham(t, "skewed-clock", short(1))
	way := func(p *played) time.Duration {
		var all []int64
		for _, r := range p.book.Requests {
			for _, c := range r.Clients {
				all = append(all, r.Received-c.Sent)
			}
		}
		slices.Sort(all)
		return time.Duration(all[len(all)/2])
	}
	if d := way(&fault) - way(&sham); d < 2900*time.Millisecond || d > 3100*time.Millisecond {
		t.Errorf("requests arrive %v after they were sent, without the fault %v", way(&fault), way(&sham))
	}
}

// readPages are a bundle's pages by target and time.
func readPages(t *testing.T, dir string) map[string][][]byte {
	t.Helper()
	all, err := pages(dir)
	if err != nil || len(all) < 2 {
		t.Fatal(err, len(all))
	}
	texts := map[string][][]byte{}
	for target, of := range all {
		for _, p := range of {
			text, err := os.ReadFile(p.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[target] = append(texts[target], text)
		}
	}
	return texts
}

func TestAStaleScrapeStandsStill(t *testing.T) {
	t.Parallel()
	fault, sham := faultAndSham(t, "stale-scrape", short(1))
	repeats := func(dir string) (n int) {
		of := readPages(t, dir)["replica-0"]
		for k := 1; k < len(of); k++ {
			if bytes.Equal(of[k], of[k-1]) {
				n++
			}
		}
		return n
	}
	if f, s := repeats(fault.dir), repeats(sham.dir); f != 2 || s != 0 { // pages of 10 and 15 s repeat that of 5 s
		t.Errorf("%d pages repeat the one before, without the fault %d", f, s)
	}
}

func TestACounterResetFallsOnce(t *testing.T) {
	t.Parallel()
	p := short(1)
	p.Onset = 16 * time.Second
	fault, sham := faultAndSham(t, "counter-reset", p)
	falls := func(dir string) (n int) {
		of := readPages(t, dir)["replica-0"]
		for k := 1; k < len(of); k++ {
			before := samples(of[k-1])
			for series, v := range samples(of[k]) {
				if strings.HasPrefix(series, "vllm:generation_tokens_total") && v < before[series] {
					n++
				}
			}
		}
		return n
	}
	if f, s := falls(fault.dir), falls(sham.dir); f != 1 || s != 0 {
		t.Errorf("the counter fell %d times, without the fault %d", f, s)
	}
}

// What whylate says of a bundle must not hang on what its truth says.
func TestTheTruthIsNeverRead(t *testing.T) {
	t.Parallel()
	p := short(1)
	p.Onset, p.Duration, p.Length = 3*time.Second, 3*time.Second, 8*time.Second
	x := play(t, Named("long-prefill"), p, 0)
	said := func() string {
		e := read(t, x.dir)
		inputs, err := look.Files(x.dir)
		if err != nil {
			t.Fatal(err)
		}
		scene, err := look.Read(context.Background(), inputs, look.Options{})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(struct {
			Report   *look.Report
			Sources  []ledger.Source
			Requests int
		}{look.Judge(scene), e.book.Sources, len(e.book.Requests)})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	file := filepath.Join(x.dir, bundle.TruthName)
	truth, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := said()
	lie := bytes.Repeat([]byte("\x00vllm:num_requests_waiting 7\n"), len(truth)/28+1)[:len(truth)]
	if err := os.WriteFile(file, lie, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := said(); got != want {
		t.Errorf("another truth, another answer:\n%s\n%s", got, want)
	}
}

func TestParamsAreRefusedByName(t *testing.T) {
	e, err := demo()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Params){
		"severity 0":      func(p *Params) { p.Severity = 0 },
		"severity 1.5":    func(p *Params) { p.Severity = 1.5 },
		"onset 1m0s: the": func(p *Params) { p.Onset = time.Minute },
		"onset -1s":       func(p *Params) { p.Onset = -time.Second },
		"duration 0s":     func(p *Params) { p.Duration = 0 },
		"length 0s":       func(p *Params) { p.Length = 0 },
		"0 replicas":      func(p *Params) { p.Replicas = 0 },
		"replica 3":       func(p *Params) { p.Scope = 3 },
	} {
		p := Defaults()
		change(&p)
		if _, err := Named("hang").Prepare(p, e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A scope other than the first: the fault is there and nowhere else.
func TestAFaultStaysInItsScope(t *testing.T) {
	t.Parallel()
	p := short(1)
	p.Replicas, p.Scope, p.Length = 3, 1, 16*time.Second
	x := play(t, Named("thermal-throttling"), p, recorded)
	x.whole(t)
	if want := (Culprit{"device", "GPU-00000001-0000-4000-8000-000000000000"}); !slices.Contains(x.truth.Culprits, want) {
		t.Errorf("%+v", x.truth.Culprits)
	}
	slow := map[string]bool{}
	for _, s := range x.samples {
		if s.signal == "gpu.clock.sm" && s.value < device.Clock*1e6 {
			slow[s.device] = true
		}
	}
	if len(slow) != 1 || !slow["GPU-00000001-0000-4000-8000-000000000000"] {
		t.Errorf("slow: %v", slow)
	}
}

// A preset's loads are as heavy for it as the demo's are for the demo: the incidents happen on it as well.
func TestAPresetHasIncidentsToo(t *testing.T) {
	t.Parallel()
	e, err := Preset("h100-8b")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kv-pressure", "saturation"} {
		x, err := Named(name).Prepare(short(1), e)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := x.Bundle(dir, recorded); err != nil {
			t.Fatal(err)
		}
		v := read(t, dir)
		c, err := healthy()
		if err != nil {
			t.Fatal(err)
		}
		m := v.measure(x.Truth.Onset, x.Truth.End, c)
		if m[Queue] < 1 || name == "kv-pressure" && m[Preemptions] == 0 {
			t.Errorf("%s: queue %v, %v preemptions", name, m[Queue], m[Preemptions])
		}
		if _, said := v.book.Engines[0].Settings["simulated_time"]; !said {
			t.Errorf("%s does not say that its times are ratios", name)
		}
	}
	if _, err := Preset("b200"); err == nil || !strings.Contains(err.Error(), "h100-8b") {
		t.Error(err)
	}
}
