package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"

	"github.com/whylate/whylate/adapter/sglang"
	"github.com/whylate/whylate/adapter/vllm"
	"github.com/whylate/whylate/ingest/otlp"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/logline"
)

// console makes series and changes of the lines of engines' consoles that collectors send. Of a line nothing is kept but its numbers.
type console struct {
	to   storage.AppendableV2
	seen func([]ledger.Change) int
	log  *slog.Logger

	mu      sync.Mutex
	points  []consolePoint
	changes []ledger.Change
	writers map[string]*consoleWriter // by target
	dropped uint64
}

type consolePoint struct {
	labels labels.Labels
	at     int64 // ms
	value  float64
}

// consoleWriter is what is known of who writes a console.
type consoleWriter struct {
	told   map[string]string // by its lines of a start: version, model, settings
	toldAt map[string]int64  // and when, Unix ns: lines are sent again
	warned map[string]int64  // when something was told last, Unix ns
}

const (
	consoleEvery   = time.Second
	consolePending = 100_000 // points, and changes, that wait to be written
	consoleWriters = 4096
	consoleTold    = 512 // settings of one engine
)

// take is an [otlp.Console].
func (c *console) take(from *otlp.Origin, at int64, line []byte) bool {
	if at == 0 {
		at = time.Now().UnixNano()
	}
	text, rank := string(line), ""
	if m := dpRank.FindStringSubmatch(text); m != nil {
		rank = m[1]
	}
	return c.record(from, at, rank, vllm.ParseLine(text), sglang.ParseLine(text))
}

// record takes what a line says to either engine's reader, and the data-parallel rank that its prefix tells, "" where it tells none.
func (c *console) record(from *otlp.Origin, at int64, rank string, ofVLLM vllm.Record, ofSGLang sglang.Record) bool {
	job, target := from.Resource.Service, cmp.Or(from.Resource.Instance, from.Resource.Pod, from.Resource.Host, from.Resource.Process, from.Resource.Service)
	if target == "" {
		return false // nobody could say whose it is
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.writer(target)
	if w == nil || len(c.points) >= consolePending || len(c.changes) >= consolePending {
		c.dropped++
		return false
	}
	e := consoleEntry{c: c, w: w, job: job, target: target, at: at}
	return e.vllm(ofVLLM) || e.sglang(ofSGLang, rank)
}

func (c *console) writer(target string) *consoleWriter {
	w := c.writers[target]
	if w == nil && len(c.writers) < consoleWriters {
		w = &consoleWriter{told: map[string]string{}, toldAt: map[string]int64{}, warned: map[string]int64{}}
		if c.writers == nil {
			c.writers = map[string]*consoleWriter{}
		}
		c.writers[target] = w
	}
	return w
}

// consoleEntry is one line: whose, and when.
type consoleEntry struct {
	c           *console
	w           *consoleWriter
	job, target string
	at          int64
}

// vllm takes a record of vLLM. The mean of several engines is of none of them and goes nowhere.
func (e *consoleEntry) vllm(r vllm.Record) bool {
	switch r := r.(type) {
	case vllm.Stats:
		if r.Aggregated > 0 {
			return true
		}
		rank := strconv.Itoa(r.Engine.Or(0))
		e.whole("vllm:num_requests_running", r.Running, "engine", rank)
		e.whole("vllm:num_requests_waiting", r.Waiting, "engine", rank)
		e.value("vllm:kv_cache_usage_perc", r.KVUsage, "engine", rank)
	case vllm.Transfer:
		if n := r.Failed.Or(0) + r.FailedReceives.Or(0); n > 0 {
			e.warn(ledger.ChangeOther, "KV transfer", fmt.Sprintf("%d transfers of KV failed", n))
		}
	case vllm.Death:
		e.warn(ledger.ChangeEnd, e.target, "the engine died, says its log")
	case vllm.Start:
		e.started("vllm", r.Version, r.Model, r.Settings)
	default:
		return false
	}
	return true
}

// dpRank is the rank in the prefix of SGLang's lines: "[2025-06-01 09:00:00 DP1 TP0]".
var dpRank = regexp.MustCompile(`^[^\]]{0,80} DP(\d{1,5})\b[^\]]{0,40}\]`)

func (e *consoleEntry) sglang(r sglang.Record, rank string) bool {
	var ls []string
	if rank != "" {
		ls = []string{"dp_rank", rank}
	}
	batch := func(b sglang.Batch, waiting logline.Opt[int]) {
		e.whole("sglang:num_running_reqs", b.Running, ls...)
		e.whole("sglang:num_queue_reqs", waiting, ls...)
		if p, ok := b.Limiting(); ok {
			e.value("sglang:token_usage", p.Usage, ls...)
		}
	}
	switch r := r.(type) {
	case sglang.Decode:
		batch(r.Batch, r.Waiting())
		e.value("sglang:gen_throughput", r.Rate, ls...)
	case sglang.Prefill:
		batch(r.Batch, r.Waiting())
	case sglang.Failure:
		e.warn(ledger.ChangeOther, "KV transfer", "a request's KV did not get from the prefill node to the decode node ("+r.Side+" says so)")
	case sglang.Start:
		e.started("sglang", "", r.Model, r.Settings)
	default:
		return false
	}
	return true
}

func (e *consoleEntry) whole(name string, v logline.Opt[int], ls ...string) {
	e.value(name, logline.Opt[float64]{Value: float64(v.Value), Known: v.Known}, ls...)
}

func (e *consoleEntry) value(name string, v logline.Opt[float64], ls ...string) {
	if v.Known {
		all := append([]string{model.MetricNameLabel, name, "job", e.job, "instance", e.target}, ls...)
		e.c.points = append(e.c.points, consolePoint{labels.FromStrings(all...), e.at / 1e6, v.Value})
	}
}

// warn tells of what went wrong, once a minute: many lines tell of one death. Lines that are sent again have the same minutes.
func (e *consoleEntry) warn(kind ledger.ChangeKind, subject, text string) {
	last := e.w.warned[subject]
	if e.at >= last && e.at-last < int64(time.Minute) {
		return
	}
	e.w.warned[subject] = e.at
	e.change(ledger.Change{At: e.at - e.at%int64(time.Minute), Kind: kind, Subject: subject, Text: text}, e.at)
}

func (e *consoleEntry) change(c ledger.Change, at int64) {
	c.Engine, c.Source = e.target, "its log"
	c.ID = c.Key()
	c.At = at
	e.c.changes = append(e.c.changes, c)
}

// started compares what a line of a start tells with what the start before told.
func (e *consoleEntry) started(producer, version, model string, settings []logline.Setting) {
	e.differ(ledger.ChangeVersion, producer, version)
	e.differ(ledger.ChangeModel, "model", model)
	for _, s := range settings {
		if !s.Withheld && !passing[s.Name] && s.Name != "model" {
			e.differ(ledger.ChangeSetting, s.Name, s.Value)
		}
	}
}

// passing are settings that are another at every start.
var passing = map[string]bool{"port": true, "nccl_port": true, "dist_init_addr": true, "random_seed": true, "seed": true, "instance_id": true, "master_port": true, "host": true}

func (e *consoleEntry) differ(kind ledger.ChangeKind, subject, is string) {
	was, known := e.w.told[subject]
	if is == "" || e.at < e.w.toldAt[subject] || !known && len(e.w.told) >= consoleTold {
		return
	}
	e.w.told[subject], e.w.toldAt[subject] = is, e.at
	if known && was != is {
		e.change(ledger.Change{At: e.at, Kind: kind, Subject: subject, From: was, To: is, Text: fmt.Sprintf("%s is %s, was %s", subject, is, was)}, e.at)
	}
}

// run writes what was taken, until ctx ends.
func (c *console) run(ctx context.Context) error {
	t := time.NewTicker(consoleEvery)
	defer t.Stop()
	for tell := (once{log: c.log}); ; {
		select {
		case <-ctx.Done():
			c.write(context.WithoutCancel(ctx))
			return nil
		case <-t.C:
			tell.of("lines of logs", c.write(ctx))
		}
	}
}

// write hands on what was taken. A point that is older than the newest of its series is passed over: lines are sent again.
func (c *console) write(ctx context.Context) error {
	c.mu.Lock()
	points, changes, dropped := c.points, c.changes, c.dropped
	c.points, c.changes, c.dropped = nil, nil, 0
	c.mu.Unlock()
	if len(changes) > 0 {
		c.seen(changes)
	}
	if len(points) > 0 {
		app := c.to.AppenderV2(ctx)
		for _, p := range points {
			app.Append(0, p.labels, 0, p.at, p.value, nil, nil, storage.AppendV2Options{})
		}
		if err := app.Commit(); err != nil {
			return err
		}
	}
	if dropped > 0 {
		return fmt.Errorf("%d lines were let go: they come faster than they are kept, or of more than %d writers", dropped, consoleWriters)
	}
	return nil
}
