package dialect

import (
	"fmt"
	"strings"
	"time"
)

// console writes the lines of a front end's log that tell of its engines: what each iteration computed, and every ten seconds how busy
// they are.
type console struct {
	front  *front
	device string // whose memory the KV cache lies in, as newer versions name it
	put    func(line []byte)
	states map[*engine]*printed
	from   int64 // Unix ns, of the interval
	line   []byte
}

// printed is what the log knows of an engine.
type printed struct {
	iterations        int // lines so far: the engine numbers them from 0
	now               state
	computed, emitted int // tokens since the last status line
	busy              bool
	lookups           []lookup // the most recent ones, over about
	asked             int      // so many requests
	queries, hits     int
}

// lookup is what requests that were admitted together asked of the prefix cache.
type lookup struct{ requests, queries, hits int }

// recentLookups is over how many requests a hit rate goes.
const recentLookups = 1000

// statusEvery is how often the log says how busy the engines are.
const statusEvery = 10 * time.Second

func newConsole(f *front, device string, begun int64, put func(line []byte)) *console {
	return &console{front: f, device: device, from: begun, put: put, states: map[*engine]*printed{}}
}

func (c *console) of(e *engine) *printed {
	if c.states[e] == nil {
		c.states[e] = &printed{}
	}
	return c.states[e]
}

func (c *console) state(e *engine, _ int64, s *state) {
	p := c.of(e)
	p.now = *s
	if s.lookups == 0 {
		return
	}
	p.lookups = append(p.lookups, lookup{s.lookups, s.queries, s.hits})
	p.asked, p.queries, p.hits = p.asked+s.lookups, p.queries+s.queries, p.hits+s.hits
	for len(p.lookups) > 1 && p.asked > recentLookups {
		old := p.lookups[0]
		p.lookups = append(p.lookups[:0], p.lookups[1:]...)
		p.asked, p.queries, p.hits = p.asked-old.requests, p.queries-old.queries, p.hits-old.hits
	}
}

func (c *console) output(e *engine, _ int64, o *output) {
	p := c.of(e)
	p.computed += o.prompts - o.cached
	p.emitted += o.tokens
}

func (c *console) ended(*sequence, int64) {}

// iterated prints an iteration: newer versions in the front end, with the KV cache's usage, which has to be alone; older
// ones in the engine, and those in which nothing was scheduled, too.
func (c *console) iterated(e *engine, at int64, it *iteration) {
	if e.version >= details && (it.contextTokens+it.generationTokens == 0 || len(c.front.processes) > 1) {
		return
	}
	p := c.of(e)
	text := fmt.Sprintf("Iteration(%d): %d context requests, %d context tokens, %d generation requests, %d generation tokens, iteration elapsed time: %.2f ms",
		p.iterations, it.context, it.contextTokens, it.generation, it.generationTokens, float64(it.done-it.launched)/1e6)
	p.iterations++
	if e.version < details {
		name := "EngineCore"
		if number(e.hello.Settings, "data_parallel_size") > 1 {
			name = fmt.Sprintf("EngineCore_DP%d", e.hello.Engine.Rank)
		}
		c.print(at, name, e.hello.PID, "core.py:381", text)
		return
	}
	c.printed(at, "loggers.py:199", fmt.Sprintf("Engine %03d: %s, %s KV cache usage: %.1f%%", e.hello.Engine.Rank, text, c.device, it.usage*100))
}

// status prints how busy the engines were since the last time. One that was idle then and is idle now is passed over.
func (c *console) status(at int64) {
	span := float64(at-c.from) / 1e9
	c.from = at
	if len(c.front.processes) > 1 { // several processes print none
		return
	}
	for _, e := range c.front.engines {
		p := c.of(e)
		busy := p.computed > 0 || p.emitted > 0
		if busy || p.busy {
			c.printed(at, e.version.statusPlace(), p.status(e, c.device, span))
		}
		p.busy, p.computed, p.emitted = busy, 0, 0
	}
}

func (p *printed) status(e *engine, device string, span float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Engine %03d: Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs",
		e.hello.Engine.Rank, float64(p.computed)/span, float64(p.emitted)/span, p.now.running, p.now.waiting)
	if p.now.deferred > 0 {
		fmt.Fprintf(&b, ", Deferred: %d reqs", p.now.deferred)
	}
	if e.version < details {
		device = "GPU" // whatever it is
	}
	rate := 0.0
	if p.queries > 0 {
		rate = float64(p.hits) / float64(p.queries)
	}
	fmt.Fprintf(&b, ", %s KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%", device, p.now.usage*100, rate*100)
	return b.String()
}

// statusPlace is where in its source a version prints the status line.
func (v version) statusPlace() string {
	if v < details {
		return "loggers.py:271"
	}
	return "loggers.py:335"
}

// printed prints a line of the front end's process.
func (c *console) printed(at int64, place, text string) {
	var pid uint32
	if len(c.front.processes) > 0 {
		pid = c.front.processes[0].PID
	}
	c.print(at, "APIServer", pid, place, text)
}

func (c *console) print(at int64, process string, pid uint32, place, text string) {
	c.line = fmt.Appendf(c.line[:0], "(%s pid=%d) INFO %s [%s] %s\n", process, pid, time.Unix(0, at).UTC().Format("01-02 15:04:05"), place, text)
	c.put(c.line)
}
