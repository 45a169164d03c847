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
// as fast as that one, which is asked in turn, and its log says what is not seen.
func (b *bench) harmless(ctx context.Context) error {
	_, dir, err := b.folder(ctx, b.newest())
	if err != nil {
		return err
	}
	off, err := b.launch(ctx, b.newest(), "off", func(o *engineenv.Options) { o.Env = append(o.Env, "WHYLATE_PROBE=off") })
	if err != nil {
		return err
	}
	defer off.stop()
	for i, f := range []fault{
		{name: "missing", what: "the ring directory is missing", play: (*bench).underneath, change: func(o *engineenv.Options) { o.Rings = filepath.Join(o.Rings, "not", "there") }},
		{name: "read-only", what: "the ring directory is on a read-only file system", log: "whylate records nothing in this process: no ring in", lines: 2, root: true, change: func(o *engineenv.Options) {
			o.Before = mounted(o.Rings, `mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"`)
		}},
		{name: "owner", what: "the ring directory is another user's", log: "whylate records nothing in this process: no ring in", lines: 2, root: true, change: func(o *engineenv.Options) { b.nobody(o, dir) }},
		{name: "full", what: "the file system of the rings is full", log: "whylate records nothing in this process: no ring in", lines: 2, root: true, change: func(o *engineenv.Options) {
			o.Before = mounted(o.Rings, `mount -t tmpfs -o size=1m whylate "$1"`)
		}},
		{name: "squatted", what: "another process has the rings' names", log: "whylate records nothing in this process: no ring in", lines: 2},
		{name: "raise", what: "an error inside each hook", log: "whylate disabled a hook after an error", each: raised, lines: 1, change: func(o *engineenv.Options) { shim(o, "raise") }},
		{name: "renamed", what: "hook points are renamed", log: "whylate misses a hook point in this vLLM", each: renamed, lines: 3, change: func(o *engineenv.Options) { shim(o, "renamed") }},
	} {
		if f.root && os.Geteuid() != 0 {
			b.Skip("harmless: %s: only root can make it so", f.what)
			continue
		}
		if err := b.suffer(ctx, f, off, uint64(i)); err != nil {
			b.Check(false, "harmless: %s: %v", f.what, err)
		}
	}
	return nil
}

// fault is one thing that goes wrong around the probe, on a server of its own.
type fault struct {
	name, what string
	change     func(*engineenv.Options)
	log        string   // what a line of the log says of it
	lines      int      // so many lines say it, one a process: API server and engine; a worker has nothing to record without its engine
	each       []string // hook points, of each of which so many lines tell at most
	root       bool     // it mounts, or changes its user
	play       func(b *bench, ctx context.Context, s, off *site) error
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

// suffer starts an engine under a fault and holds what it answers against the one without the probe.
func (b *bench) suffer(ctx context.Context, f fault, off *site, seed uint64) error {
	if f.name == "squatted" {
		squatting, stop := context.WithCancel(ctx)
		defer stop()
		go squat(squatting, filepath.Join(b.dir, f.name, "rings"))
	}
	s, err := b.launch(ctx, b.newest(), f.name, f.change)
	if err != nil {
		return err
	}
	defer s.stop()
	if err := b.compare(ctx, f.name, f.what, s, off, seed); err != nil {
		return err
	}
	if f.play != nil {
		if err := f.play(b, ctx, s, off); err != nil {
			return err
		}
	}
	if f.log == "" {
		return nil
	}
	text, err := os.ReadFile(s.engine.Log)
	if err != nil {
		return err
	}
	var said []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, f.log) {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if f.each == nil {
		b.Check(len(said) == f.lines, "harmless: %s: %d lines say so, one a process: %s", f.what, len(said), first(said))
	}
	for _, point := range f.each {
		told := slices.DeleteFunc(slices.Clone(said), func(line string) bool { return !strings.Contains(line, point) })
		b.Check(len(told) >= 1 && len(told) <= f.lines, "harmless: %s: %s is told in %d lines, at most %d: %s", f.what, point, len(told), f.lines, first(told))
	}
	return nil
}

func first(lines []string) string {
	if len(lines) == 0 {
		return "nothing"
	}
	return lines[0]
}

// compare asks both engines the same, in turn and one request at a time: a dozen after one that does not count.
func (b *bench) compare(ctx context.Context, name, what string, s, off *site, seed uint64) error {
	prompter, err := experiment.NewPrompter(experiment.PromptOptions{Seed: 7 + seed}) // no engine has seen these
	if err != nil {
		return err
	}
	differ := 0
	var with, without []float64 // ms
	for i := range 13 {
		prompt := prompter.AppendTokens(nil, &experiment.Request{PromptTokens: 40 + 20*i}, strconv.Itoa(i))
		theirs, slow, err := ask(ctx, off.engine, prompt)
		if err != nil {
			return err
		}
		ours, long, err := ask(ctx, s.engine, prompt)
		if err != nil {
			return err
		}
		if !bytes.Equal(theirs, ours) {
			differ++
		}
		if i > 0 {
			with, without = append(with, long), append(without, slow)
		}
	}
	b.Check(differ == 0, "harmless: %s: %d of 13 answers differ from those without the probe", what, differ)
	on, none := engineproof.Quantile(with, 0.5), engineproof.Quantile(without, 0.5)
	b.Sheet.Report("engine-test/latency_p50_"+name, on, "ms")
	b.Sheet.Report("engine-test/latency_p50_"+name+"_off", none, "ms")
	b.Check(on <= 1.5*none, "harmless: %s: latency p50 %.0f ms, %.0f ms without the probe", what, on, none)
	return nil
}

// ask sends one request at temperature 0, and returns what was chosen, with the probabilities of each token, and the milliseconds it took.
func ask(ctx context.Context, e *engineenv.Engine, prompt []int32) (choices json.RawMessage, ms float64, err error) {
	body, err := json.Marshal(map[string]any{"model": engineenv.Model, "prompt": prompt, "max_tokens": 32, "temperature": 0, "logprobs": 2, "ignore_eos": true})
	if err != nil {
		return nil, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	begun := time.Now()
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	var answer struct{ Choices json.RawMessage }
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode != http.StatusOK || len(answer.Choices) < 100 {
		return nil, 0, fmt.Errorf("an answer with status %s and %d bytes of choices: %v", response.Status, len(answer.Choices), err)
	}
	return answer.Choices, float64(time.Since(begun).Microseconds()) / 1e3, nil
}

// underneath deletes one ring and cuts another while the engine has nothing to do, and asks again.
func (b *bench) underneath(ctx context.Context, s, off *site) error {
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
	if err := b.compare(ctx, "cut", "one ring was deleted and another cut", s, off, 100); err != nil {
		return err
	}
	text, err := os.ReadFile(s.engine.Log)
	if err != nil {
		return err
	}
	for _, says := range []string{filepath.Base(frontend[0]) + " was deleted", filepath.Base(scheduler[0]) + " was cut to 4096 of"} {
		b.Check(strings.Count(string(text), says) == 1, "harmless: one line of the log says that the ring %s …", says)
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
