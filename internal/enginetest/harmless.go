package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/experiment"
	"github.com/whylate/whylate/internal/engineenv"
	"github.com/whylate/whylate/internal/engineproof"
)

// harmless puts faults around the probe of real engines. In each the answers are those of an engine without it, to the last bit, it is
// as fast, and its log says what is not seen.
func (b *bench) harmless(ctx context.Context) error {
	_, dir, err := b.folder(ctx, b.newest())
	if err != nil {
		return err
	}
	warm := func(o *engineenv.Options) { o.Env = append(o.Env, "WHYLATE_PROBE=off") }
	var without []reply
	for _, f := range []fault{
		{name: "off", change: warm},
		{name: "on", what: "the ring directory is missing", play: (*bench).underneath, change: func(o *engineenv.Options) { o.Rings = filepath.Join(o.Rings, "not", "there") }},
		{name: "read-only", what: "the ring directory is on a read-only file system", log: "whylate records nothing in this process: no ring in", lines: 3, change: func(o *engineenv.Options) {
			o.Before = mounted(o.Rings, `mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"`)
		}},
		{name: "owner", what: "the ring directory is another user's", log: "whylate records nothing in this process: no ring in", lines: 3, change: func(o *engineenv.Options) { b.nobody(o, dir) }},
		{name: "full", what: "the file system of the rings is full", log: "whylate records nothing in this process: no ring in", lines: 3, change: func(o *engineenv.Options) {
			o.Before = mounted(o.Rings, `mount -t tmpfs -o size=1m whylate "$1"`)
		}},
		{name: "squatted", what: "another process has the rings' names", log: "whylate records nothing in this process: no ring in", lines: 3, change: func(o *engineenv.Options) {}},
		{name: "raise", what: "an error inside each hook", log: "whylate disabled a hook after an error", each: raised, change: func(o *engineenv.Options) { shim(o, "raise") }},
		{name: "renamed", what: "hook points are renamed", log: "whylate misses a hook point in this vLLM", each: renamed, change: func(o *engineenv.Options) { shim(o, "renamed") }},
	} {
		replies, err := b.suffer(ctx, f, without)
		if err != nil {
			b.Check(false, "harmless: %s: %v", f.name, err)
			continue
		}
		if f.name == "off" {
			without = replies
		}
	}
	return nil
}

// fault is one thing that goes wrong around the probe, on a server of its own.
type fault struct {
	name, what string
	change     func(*engineenv.Options)
	log        string   // what a line of the log says of it
	lines      int      // so many lines say it, one a process
	each       []string // hook points of which a line tells, each once
	play       func(*bench, context.Context, *site, []reply) error
}

// raised are the hook points that every load comes by.
var raised = []string{"ASGI", "OutputProcessor.add_request", "OutputProcessor.process_outputs", "RequestState.make_request_output", "EngineCore.preprocess_add_request",
	"Scheduler.add_request", "Scheduler.schedule", "Scheduler.update_from_output", "Scheduler._free_request", "BlockPool.cache_full_blocks", "KVCacheManager.free", "Worker.execute_model", "Worker.sample_tokens"}

// renamed are the hook points that shim/sitecustomize.py hides.
var renamed = []string{"EngineCore.preprocess_add_request", "OutputProcessor.process_outputs", "Scheduler._free_request", "Worker.execute_model"}

// mounted runs a command line in a mount namespace of its own, in which a script has mounted something at "$1".
func mounted(at, script string) []string {
	return []string{"unshare", "--mount", "sh", "-e", "-c", script + `; shift; exec "$@"`, "sh", at}
}

// shim plants a fault into the probe itself.
func shim(o *engineenv.Options, fault string) {
	wd, _ := os.Getwd()
	o.Env = append(o.Env, "WHYLATE_TEST_FAULT="+fault, "PYTHONPATH="+filepath.Join(wd, "internal", "enginetest", "shim")+":"+filepath.Join(o.Dir, "probe"))
}

// nobody runs the engine as a user who may read everything, so that it finds its files, and write to a folder of its own alone.
func (b *bench) nobody(o *engineenv.Options, dir string) {
	home := filepath.Join(filepath.Dir(o.Rings), "home")
	os.MkdirAll(home, 0o700)
	exec.Command("cp", "-r", filepath.Join(dir, "cache"), home).Run() // what is compiled is locked when it is read
	exec.Command("chown", "-R", "65534:65534", home).Run()
	cache := filepath.Join(home, "cache")
	o.Env = append(o.Env, "HOME="+home, "USER=nobody", "LOGNAME=nobody",
		"TORCHINDUCTOR_CACHE_DIR="+filepath.Join(cache, "inductor"), "VLLM_CACHE_ROOT="+filepath.Join(cache, "vllm"), "TRITON_CACHE_DIR="+filepath.Join(cache, "triton"))
	o.Before = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"}
}

// reply is what an engine answered, bit by bit, and how long it took.
type reply struct {
	choices string
	took    time.Duration
}

// suffer starts an engine under a fault and compares what it answers with what one without the probe did; nil is that one itself.
func (b *bench) suffer(ctx context.Context, f fault, without []reply) ([]reply, error) {
	if f.name == "squatted" {
		squatting, stop := context.WithCancel(ctx)
		defer stop()
		go squat(squatting, filepath.Join(b.dir, f.name, "rings"))
	}
	s, err := b.launch(ctx, b.newest(), f.name, f.change)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	replies, err := ask(ctx, s.engine)
	if err != nil {
		return nil, err
	}
	b.Sheet.Report("engine-test/latency_p50_"+f.name, latency(replies), "ms")
	if without == nil {
		return replies, nil
	}
	b.same(f.what, replies, without)
	if f.play != nil {
		if err := f.play(b, ctx, s, without); err != nil {
			return nil, err
		}
	}
	if f.log == "" {
		return replies, nil
	}
	text, err := os.ReadFile(s.engine.Log)
	if err != nil {
		return nil, err
	}
	var said []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, f.log) {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if f.lines > 0 {
		b.Check(len(said) == f.lines, "harmless: %s: %d lines say so, one a process: %s", f.what, len(said), first(said))
	}
	for _, point := range f.each {
		told := slices.DeleteFunc(slices.Clone(said), func(line string) bool { return !strings.Contains(line, point) })
		processes := map[string]bool{}
		for _, line := range told {
			who, _, _ := strings.Cut(strings.TrimPrefix(line, "("), ")")
			processes[who] = true
		}
		b.Check(len(told) > 0 && len(told) == len(processes), "harmless: %s: %s is told once in each of %d processes: %s", f.what, point, len(processes), first(told))
	}
	return replies, nil
}

func first(lines []string) string {
	if len(lines) == 0 {
		return "nothing"
	}
	return lines[0]
}

// same holds answers against those of an engine without the probe.
func (b *bench) same(what string, got, want []reply) {
	differ := 0
	for i := range got {
		if got[i].choices != want[i].choices {
			differ++
		}
	}
	b.Check(differ == 0 && len(got) == len(want), "harmless: %s: %d of %d answers differ from those without the probe", what, differ, len(want))
	with, without := latency(got), latency(want)
	b.Check(with <= 1.5*without, "harmless: %s: latency p50 %.0f ms, %.0f ms without the probe", what, with, without)
}

func latency(rs []reply) float64 {
	var ms []float64
	for _, r := range rs {
		ms = append(ms, float64(r.took.Microseconds())/1e3)
	}
	return engineproof.Quantile(ms, 0.5)
}

// ask sends a dozen requests one at a time at temperature 0, after one that nobody counts, with the probabilities of each token.
func ask(ctx context.Context, e *engineenv.Engine) ([]reply, error) {
	prompter, err := experiment.NewPrompter(experiment.PromptOptions{Seed: 7})
	if err != nil {
		return nil, err
	}
	var out []reply
	for i := range 13 {
		prompt := prompter.AppendTokens(nil, &experiment.Request{PromptTokens: 40 + 20*i}, strconv.Itoa(i))
		body, err := json.Marshal(map[string]any{"model": engineenv.Model, "prompt": prompt, "max_tokens": 32, "temperature": 0, "logprobs": 2, "ignore_eos": true})
		if err != nil {
			return nil, err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/v1/completions", bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Content-Type", "application/json")
		begun := time.Now()
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		var answer struct{ Choices json.RawMessage }
		err = json.NewDecoder(response.Body).Decode(&answer)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || len(answer.Choices) < 100 {
			return nil, fmt.Errorf("request %d: %s, %v", i, response.Status, err)
		}
		if i > 0 {
			out = append(out, reply{string(answer.Choices), time.Since(begun)})
		}
	}
	return out, nil
}

// underneath deletes one ring and cuts another while the engine has nothing to do, and asks again.
func (b *bench) underneath(ctx context.Context, s *site, without []reply) error {
	frontend, err := filepath.Glob(filepath.Join(s.rings, "*-frontend-loop.ring"))
	scheduler, err2 := filepath.Glob(filepath.Join(s.rings, "*-engine-scheduler.ring"))
	if err != nil || err2 != nil || len(frontend) != 1 || len(scheduler) != 1 {
		b.Check(false, "harmless: the ring directory is missing: it is made, with rings of front end and scheduler in it: %v, %v", frontend, scheduler)
		return nil
	}
	info, err := os.Stat(s.rings)
	if err != nil {
		return err
	}
	b.Check(info.Mode().Perm() == 0o700, "harmless: the ring directory is missing: it is made, mode %v", info.Mode().Perm())
	time.Sleep(11 * time.Second) // a ring is looked at every ten seconds of activity, and after a pause of that length
	if err := os.Remove(frontend[0]); err != nil {
		return err
	}
	if err := os.Truncate(scheduler[0], 4096); err != nil {
		return err
	}
	replies, err := ask(ctx, s.engine)
	if err != nil {
		return err
	}
	b.same("one ring was deleted and another cut", replies, without)
	text, err := os.ReadFile(s.engine.Log)
	if err != nil {
		return err
	}
	for _, says := range []string{filepath.Base(frontend[0]) + " was deleted", filepath.Base(scheduler[0]) + " was cut to 4096 of"} {
		b.Check(strings.Count(string(text), says) == 1, "harmless: one line of the log says that the ring …%s bytes", says)
	}
	return nil
}

// squat makes a file under each name that the rings of a Python process will have, as soon as there is such a process.
func squat(ctx context.Context, rings string) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return
	}
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, line := range lines {
			dir := filepath.Dir(line)
			environ, err := os.ReadFile(filepath.Join(dir, "environ"))
			if err != nil || !bytes.Contains(environ, []byte("WHYLATE_RING_DIR="+rings+"\x00")) {
				continue
			}
			stat, err := os.ReadFile(filepath.Join(dir, "stat"))
			if err != nil {
				continue
			}
			fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			for _, ring := range []string{"frontend-loop", "engine-input", "engine-scheduler", "worker-main"} {
				name := fmt.Sprintf("%s-%s-%s-%s.ring", boot[:8], filepath.Base(dir), fields[19], ring)
				if f, err := os.OpenFile(filepath.Join(rings, name), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
					f.Close()
				}
			}
		}
	}
}
