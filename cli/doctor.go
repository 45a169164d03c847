package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/wire"
)

func (e *env) doctor() *cobra.Command {
	d := doctor{src: source{e: e}, proc: "/proc"}
	out := output{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say why records are missing, and which line to change",
		Long: `Look at this host and at the server for what keeps records from coming: rings that cannot be read, engines whose plugin is filtered
out, a front end that the probe does not see, an engine whose own metrics move while no record comes, clocks that are apart, a
disk that fills, gaps by cause. And at what else a server is sent: nothing that is read, engines that one source knows and another does not, objectives
that no bucket can see, records and series that contradict each other, one thing under two names. Each finding says what to change. Exit status 1 if anything is wrong.`,
		Example: `  whylate doctor
  whylate doctor --metrics http://127.0.0.1:8000/metrics`,
		Args: args(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := d.examine(cmd.Context())
			if err := out.print(e, found, func() { e.printDoctor(found) }); err != nil {
				return err
			}
			if slices.ContainsFunc(found, func(p Complaint) bool { return p.Wrong }) {
				return errSick
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&d.rings, "ring-dir", cmp.Or(os.Getenv("WHYLATE_RING_DIR"), defaultRingDir), "directory of the rings ($WHYLATE_RING_DIR)")
	cmd.Flags().StringVar(&d.metrics, "metrics", "", "an engine's /metrics: does it move while no record comes?")
	cmd.Flags().DurationVar(&d.wait, "wait", 3*time.Second, "how long to watch whether something moves")
	d.src.flags(cmd)
	out.flags(cmd)
	return cmd
}

var errSick = errors.New("something keeps records from coming; see above")

// Complaint is one thing that doctor found.
type Complaint struct {
	Check  string `json:"check"`
	Wrong  bool   `json:"wrong"` // false: it was looked at and is well, or could not be looked at, as Text says
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

type doctor struct {
	src     source
	rings   string
	metrics string
	wait    time.Duration
	proc    string
	found   []Complaint

	ringless bool // there is no directory of rings
	series   bool // arrive at the server
}

func (d *doctor) ok(check, text string, args ...any) {
	d.found = append(d.found, Complaint{Check: check, Text: fmt.Sprintf(text, args...)})
}

func (d *doctor) wrong(check, remedy, text string, args ...any) {
	d.found = append(d.found, Complaint{Check: check, Wrong: true, Text: fmt.Sprintf(text, args...), Remedy: remedy})
}

func (d *doctor) examine(ctx context.Context) []Complaint {
	before := d.readRings()
	d.processes()
	d.engineMoves(ctx, before)
	d.server(ctx)
	if d.ringless {
		d.found = slices.Insert(d.found, 0, d.noRings())
	}
	return d.found
}

// noRings tells that no probe has written on this host, which is wrong where nothing comes any other way.
func (d *doctor) noRings() Complaint {
	return Complaint{Check: "rings", Wrong: !d.series, Text: d.rings + " does not exist: no engine with the probe has written on this host",
		Remedy: "start an engine with the probe (pip install whylate-vllm in its environment), or name its directory with --ring-dir; in a container, mount the same volume there"}
}

// readRings opens every ring of this host and says which cannot be read. It returns how many records each has.
func (d *doctor) readRings() map[string]uint64 {
	written := map[string]uint64{}
	entries, err := os.ReadDir(d.rings)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.ringless = true
		return written
	case err != nil:
		d.wrong("rings", "run whylate as the engine's user, or in its group", "%s cannot be read: %v", d.rings, err)
		return written
	}
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".ring") {
			continue
		}
		r, err := wire.OpenRing(filepath.Join(d.rings, name))
		if err != nil {
			d.wrong("rings", "run whylate as the engine's user or in its group; a damaged ring of a dead engine may be removed", "%s cannot be read: %v", name, err)
			continue
		}
		st, err := r.Status()
		r.Close()
		if err != nil {
			d.wrong("rings", "look at the file's permissions", "%s: %v", name, err)
			continue
		}
		if st.Alive {
			written[name] = st.Written
		}
		if st.Errors > 0 {
			d.wrong("rings", "the engine's log has the error (logger whylate_vllm); compare the engine's version with the probe's", "%s: %d errors inside the probe's hooks; a hook that fails switches itself off", name, st.Errors)
		}
		if st.Dropped > 0 {
			d.wrong("rings", "raise WHYLATE_RING_BYTES of the engine", "%s: the probe dropped %d records", name, st.Dropped)
		}
	}
	if len(written) == 0 {
		d.wrong("rings", "is the engine running, and does its log name whylate? 'python -m whylate_vllm.dump RING' shows what a ring holds", "%s holds no ring of a living engine", d.rings)
	} else {
		d.ok("rings", "%d rings of living writers in %s", len(written), d.rings)
	}
	return written
}

// processes looks at the engines' environments for what keeps the plugin out.
func (d *doctor) processes() {
	dirs, _ := filepath.Glob(filepath.Join(d.proc, "[0-9]*"))
	engines := 0
	for _, dir := range dirs {
		cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !vllmServer(string(cmdline)) {
			continue
		}
		engines++
		pid := filepath.Base(dir)
		raw, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			d.ok("processes", "vLLM %s: its environment cannot be read (%v); run as its user to have it looked at", pid, err)
			continue
		}
		environ := map[string]string{}
		for _, kv := range strings.Split(string(raw), "\x00") {
			if k, v, found := strings.Cut(kv, "="); found {
				environ[k] = v
			}
		}
		if names, set := environ["VLLM_PLUGINS"]; set && !slices.Contains(strings.Split(names, ","), "whylate") {
			d.wrong("processes", "VLLM_PLUGINS="+strings.Trim(names+",whylate", ","), "vLLM %s: VLLM_PLUGINS=%s filters the probe out", pid, names)
		}
		if v := strings.ToLower(environ["WHYLATE_PROBE"]); v == "off" || v == "0" || v == "false" || v == "no" {
			d.wrong("processes", "unset WHYLATE_PROBE", "vLLM %s: the probe is switched off (WHYLATE_PROBE=%s)", pid, v)
		}
		if v := environ["VLLM_USE_RUST_FRONTEND"]; v != "" && v != "0" {
			d.wrong("processes", "unset VLLM_USE_RUST_FRONTEND to see HTTP requests and streams", "vLLM %s: its Rust front end (VLLM_USE_RUST_FRONTEND=%s) is not seen by the probe; the scheduler is", pid, v)
		}
		if ring := environ["WHYLATE_RING_DIR"]; ring != "" && filepath.Clean(ring) != filepath.Clean(d.rings) {
			d.wrong("processes", "--ring-dir "+ring+", or rings.dir of the server", "vLLM %s writes its rings to %s, not to %s", pid, ring, d.rings)
		}
	}
	if engines > 0 {
		d.ok("processes", "%d vLLM processes looked at", engines)
	}
}

// vllmServer recognises a process of vLLM by its command line.
func vllmServer(cmdline string) bool {
	return strings.Contains(cmdline, "vllm.entrypoints") || strings.Contains(cmdline, "VLLM::") || strings.Contains(cmdline, "vllm\x00serve")
}

var tokensCounter = regexp.MustCompile(`(?m)^vllm:generation_tokens_total(?:\{[^}]*\})? ([0-9.eE+]+)`)

// engineMoves watches whether the engine's own counter moves while no ring does.
func (d *doctor) engineMoves(ctx context.Context, before map[string]uint64) {
	if d.metrics == "" {
		return
	}
	first, err := d.tokens(ctx)
	if err != nil {
		d.wrong("engine's metrics", "give the engine's /metrics with --metrics", "%v", err)
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(d.wait):
	}
	second, err := d.tokens(ctx)
	if err != nil {
		d.wrong("engine's metrics", "", "%v", err)
		return
	}
	moved := false
	for name, n := range before {
		if r, err := wire.OpenRing(filepath.Join(d.rings, name)); err == nil {
			if st, err := r.Status(); err == nil && st.Written != n {
				moved = true
			}
			r.Close()
		}
	}
	switch {
	case second > first && !moved:
		d.wrong("engine's metrics", "install whylate-vllm in the environment that this engine runs in, and restart it", "the engine generated %.0f tokens in %v, and no ring here moved: it runs without the probe, or writes elsewhere", second-first, d.wait)
	case second > first:
		d.ok("engine's metrics", "the engine generated %.0f tokens in %v, and its records came", second-first, d.wait)
	default:
		d.ok("engine's metrics", "the engine generated nothing in %v, so nothing can be said", d.wait)
	}
}

func (d *doctor) tokens(ctx context.Context) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.metrics, nil)
	if err != nil {
		return 0, fmt.Errorf("--metrics %s: %w", d.metrics, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", d.metrics, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", d.metrics, err)
	}
	all := tokensCounter.FindAllSubmatch(body, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("%s has no vllm:generation_tokens_total (status %s)", d.metrics, resp.Status)
	}
	var sum float64
	for _, m := range all {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", d.metrics, err)
		}
		sum += v
	}
	return sum, nil
}

// clocksApart is how far two clocks may be apart without being told: enough to blur what happened first on two hosts.
const clocksApart = 10 * time.Millisecond

// server asks the server, or looks at the files, for gaps, clocks and room on the disk.
func (d *doctor) server(ctx context.Context) {
	svc, err := d.src.open()
	if err != nil {
		d.ok("server", "nothing to ask: %v", err)
		return
	}
	o, err := svc.Overview(ctx)
	if err != nil {
		d.wrong("server", "look at the server's log", "the server does not answer: %v", err)
		return
	}
	byCause := map[string]uint64{}
	for _, g := range o.Gaps {
		byCause[g.Why] += max(g.Count, 1)
		if strings.Contains(g.Why, "wall clock") {
			d.wrong("clocks", "let one time service keep the host's clock (chrony), and do not step it", "%s", g.Why)
		}
	}
	for _, s := range o.Sources {
		if off := time.Duration(s.Uncertainty); off > clocksApart {
			d.wrong("clocks", "run chrony or ntpd on that host", "the clock of %s is known to ± %v only", s.Name, off)
		}
	}
	causes := make([]string, 0, len(byCause))
	for why := range byCause {
		causes = append(causes, why)
	}
	slices.SortFunc(causes, func(a, b string) int { return cmp.Or(cmp.Compare(byCause[b], byCause[a]), cmp.Compare(a, b)) })
	for i, why := range causes {
		if i == 10 {
			d.wrong("gaps", "", "… and %d more causes", len(causes)-i)
			break
		}
		d.wrong("gaps", gapRemedy(why), "%d records missing: %s", byCause[why], why)
	}
	if len(causes) == 0 {
		d.ok("gaps", "none")
	}
	for _, n := range o.Notices {
		d.wrong("probe", "compare the engine's version with what the probe supports (probes/vllm/README.md)", "%s", n)
	}
	d.disk(o.Storage)
	d.arriving(ctx, svc)
	for _, f := range o.Faults {
		d.wrong("server", cmp.Or(f.Remedy, "the server's log has more"), "%s failed %d times, last %s: %s", f.What, f.Count, diagnose.Clock(f.At), f.Last)
	}
}

// fullSoon is how near the end of the disk is told as wrong.
const fullSoon = 7 * 24 * time.Hour

func (d *doctor) disk(s *api.Storage) {
	if s == nil {
		return
	}
	left := "does not grow"
	if s.FullIn > 0 {
		left = fmt.Sprintf("grows by %s a day and is full in %s", size(s.PerDay), days(time.Duration(s.FullIn)))
	}
	text := fmt.Sprintf("%s: %s free of %s; log %s, sealed %s; it %s", s.Dir, size(s.Free), size(s.Total), size(s.Log), size(s.Sealed), left)
	if s.FullIn > 0 && time.Duration(s.FullIn) < fullSoon || s.Free < s.Total/20 {
		d.wrong("disk", "shorten store.retention.iterations, or give data_dir a larger disk", "%s", text)
		return
	}
	d.ok("disk", "%s", text)
}

func gapRemedy(why string) string {
	switch {
	case strings.Contains(why, wire.WhyOverwritten):
		return "read the ring sooner (is the agent running all the time?), or raise WHYLATE_RING_BYTES of the engine"
	case strings.Contains(why, wire.WhyTruncated), strings.Contains(why, wire.WhyDamaged):
		return "a file or ring was cut or damaged; what was before and after it is there"
	case strings.Contains(why, "could not be kept"):
		return "look at the disk"
	}
	return ""
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d kB", n>>10)
}

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return fmt.Sprintf("%.0f hours", d.Hours())
	}
	return fmt.Sprintf("%.0f days", d.Hours()/24)
}

func (e *env) printDoctor(found []Complaint) {
	for _, p := range found {
		mark := "ok   "
		if p.Wrong {
			mark = e.red("WRONG")
		}
		fmt.Fprintf(e.out, "%s %s: %s\n", mark, p.Check, plain(p.Text))
		if p.Remedy != "" {
			fmt.Fprintf(e.out, "      change: %s\n", plain(p.Remedy))
		}
	}
}
