package dynamo

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	jsoniter "github.com/json-iterator/go"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/logline"
)

// Pass is a record of forward-pass metrics: as a rule one iteration of one rank of one worker.
type Pass struct {
	Counter   int64                // the publisher's running number
	Seen      int64                // Unix ns at which the record was observed: the iteration ended before that; 0 where it is not told
	Wall      logline.Opt[float64] // seconds; of what, the engine decides (Meaning)
	Scheduled Load
	Queued    Load
}

// Load is what is scheduled, or waits. Absent is not zero.
type Load struct {
	Prefills      logline.Opt[float64] // requests
	PrefillTokens logline.Opt[float64]
	PrefillKV     logline.Opt[float64] // tokens that they have already; not told of what waits
	Decodes       logline.Opt[float64] // requests; of what waits, preempted ones
	DecodeKV      logline.Opt[float64] // tokens
}

// Requests are all of a load, unknown where a part of it is.
func (l Load) Requests() (float64, bool) {
	return l.Prefills.Value + l.Decodes.Value, l.Prefills.Known && l.Decodes.Known
}

func (l Load) some() bool {
	return l.Prefills.Value > 0 || l.PrefillTokens.Value > 0 || l.PrefillKV.Value > 0 || l.Decodes.Value > 0 || l.DecodeKV.Value > 0
}

func zero(n float64, known bool) bool { return known && n == 0 }

// Iteration reports whether something ran. The time of the first iteration after a pause may be 0: then it is not known.
func (p *Pass) Iteration() bool { return p.Scheduled.some() || p.Wall.Value > 0 }

// Heartbeat reports whether a record only says that no other came for a second: it tells all, and all is zero. It is sent beside the scheduler, whatever
// waits there and however long an iteration takes, so its zeros are no measurement.
func (p *Pass) Heartbeat() bool {
	return p.Wall.Known && !p.Iteration() && zero(p.Scheduled.Requests()) && zero(p.Queued.Requests()) && !p.Queued.some()
}

// Stream is what was kept of one rank of one worker.
type Stream struct {
	Target  string // namespace/component/worker; what was read, where it names none
	Rank    string
	Engine  string // vllm, sglang, trtllm or mocker, as far as the component's name tells; else ""
	Sampled bool   // some records were left out on purpose: how many iterations there were is not known

	Records, Iterations, Heartbeats int
	Lost                            float64 // records that gaps of the counter tell of, where nothing was left out on purpose
	Back                            int     // how often the counter went back: a restart, or two writers under one name
	Repeated                        int     // records that came again; they are counted nowhere else

	First, Last int64 // Unix ns at which the first and the last were seen; 0 where it is not told
	Newest      *Pass // that is no heartbeat; nil where there is none
	MostQueued  logline.Opt[float64]
	Timed       int     // iterations with a time
	Wall        float64 // their sum, s
	Longest     float64 // s

	counter logline.Opt[int64]
	stall   Stall            // the longest that ended
	open    Stall            // while no iteration has come
	tracks  [3]adapter.Track // scheduled, queued, time
}

// Stall is a time in which records came, none of an iteration, none lost, and requests waited at its beginning.
type Stall struct {
	Queued   float64 // requests
	Records  int
	From, To int64 // Unix ns at which they were seen; 0 where it is not told
	Ended    bool  // by an iteration
}

func (s *Stall) longer(o Stall) bool {
	return cmp.Or(cmp.Compare(s.To-s.From, o.To-o.From), cmp.Compare(s.Records, o.Records)) > 0
}

// mostStreams of workers and ranks are told apart; a deployment has fewer. mostPoints are kept of each of their series, of each second one.
const (
	mostStreams = 4096
	mostPoints  = 100_000
	mostName    = 200 // bytes
)

// Passes are streams of forward-pass metrics. The zero value is empty.
type Passes struct {
	Streams []*Stream // in the order of their first sight
	by      map[string]*Stream
}

// load, payload, event and line are the JSON.
type load struct {
	Prefills      *float64 `json:"num_prefill_requests"`
	PrefillTokens *float64 `json:"sum_prefill_tokens"`
	PrefillKV     *float64 `json:"sum_prefill_kv_tokens"`
	Decodes       *float64 `json:"num_decode_requests"`
	DecodeKV      *float64 `json:"sum_decode_kv_tokens"`
}

type payload struct {
	Version   *int64   `json:"version"`
	Worker    string   `json:"worker_id"`
	Rank      *int64   `json:"dp_rank"`
	Counter   *int64   `json:"counter_id"`
	Wall      *float64 `json:"wall_time"`
	Scheduled *load    `json:"scheduled_requests"`
	Queued    *load    `json:"queued_requests"`
}

type event struct {
	Schema string `json:"schema"`
	Source struct {
		Namespace string `json:"namespace"`
		Component string `json:"component"`
		Producer  string `json:"producer_id"`
	} `json:"source"`
	Mode string   `json:"capture_mode"`
	Seen int64    `json:"observed_at_unix_ms"`
	FPM  *payload `json:"fpm"`
}

type line struct {
	Event *event `json:"event"`
	payload
}

const (
	schema  = "dynamo.fpm.trace.v1"
	version = 1
)

// refusal is why a line is no record.
type refusal string

const (
	noJSON     refusal = "no JSON object of forward-pass metrics"
	noRecord   refusal = "a record without scheduled_requests, counter_id and dp_rank"
	unknown    refusal = "a schema or version that is not known (read are " + schema + " and payloads of version 1)"
	impossible refusal = "a negative counter_id or dp_rank"
	tooMany    refusal = "of one worker or rank too many: 4096 are told apart"
)

// parse reads a line. of is nil for a bare payload.
func parse(b []byte) (of *event, p *payload, why refusal) {
	var l line
	if jsoniter.Unmarshal(b, &l) != nil {
		return nil, nil, noJSON
	}
	p = &l.payload
	if of = l.Event; of != nil {
		if of.Schema != schema {
			return nil, nil, unknown
		}
		p = of.FPM
	}
	switch {
	case p == nil || p.Counter == nil || p.Rank == nil || p.Scheduled == nil:
		return nil, nil, noRecord
	case p.Version != nil && *p.Version != version:
		return nil, nil, unknown
	case *p.Counter < 0 || *p.Rank < 0:
		return nil, nil, impossible
	}
	return of, p, ""
}

// ArePasses reports whether a text begins with forward-pass metrics: one of its first lines, whole, is a record, or says that it is one of a
// schema that is not known.
func ArePasses(head []byte) bool {
	if !bytes.Contains(head, []byte(`"scheduled_requests"`)) {
		return false
	}
	for l := range bytes.Lines(head) {
		if _, _, why := parse(l); why == "" || why == unknown && bytes.Contains(l, []byte("dynamo.fpm.trace.")) {
			return true
		}
	}
	return false
}

// Read takes a text, a record a line. target is whom it speaks of where the records do not say it. A line that is none costs nothing else, and is
// told; so is the end of a text that is damaged.
func (ps *Passes) Read(target string, text *bufio.Reader) (problems []string) {
	type refused struct{ first, n int }
	no := map[refusal]*refused{}
	n := 0
	for b, err := range logline.Lines(text) {
		if err != nil {
			problems = append(problems, fmt.Sprintf("after line %d: %v", n, err))
			break
		}
		n++
		if len(bytes.TrimSpace(b)) == 0 {
			continue
		}
		of, p, why := parse(b)
		if why == "" {
			why = ps.take(target, of, p)
		}
		if why == "" {
			continue
		}
		if no[why] == nil {
			no[why] = &refused{first: n}
		}
		no[why].n++
	}
	for _, why := range []refusal{noJSON, noRecord, unknown, impossible, tooMany} {
		switch r := no[why]; {
		case r == nil:
		case r.n == 1:
			problems = append(problems, fmt.Sprintf("line %d: %s", r.first, why))
		default:
			problems = append(problems, fmt.Sprintf("line %d: %s; %d such lines", r.first, why, r.n))
		}
	}
	return problems
}

func (ps *Passes) take(target string, of *event, p *payload) refusal {
	s := ps.stream(target, of, p)
	if s == nil {
		return tooMany
	}
	pass := Pass{Counter: *p.Counter, Wall: opt(p.Wall, maxSeconds), Scheduled: p.Scheduled.known(), Queued: p.Queued.known()}
	if of != nil && of.Seen > 0 && of.Seen < math.MaxInt64/1_000_000 {
		pass.Seen = of.Seen * 1e6
	}
	s.Sampled = s.Sampled || of != nil && of.Mode == "sampled"
	s.take(pass)
	return ""
}

// What is above cannot be: seconds of an iteration, requests or tokens of a rank.
const (
	maxSeconds = 1e6
	maxCount   = 1e12
)

func opt(v *float64, most float64) logline.Opt[float64] {
	if v == nil || !(*v >= 0 && *v <= most) {
		return logline.Opt[float64]{}
	}
	return logline.Some(*v)
}

func (l *load) known() (known Load) {
	if l == nil {
		return known
	}
	of := func(v *float64) logline.Opt[float64] { return opt(v, maxCount) }
	return Load{of(l.Prefills), of(l.PrefillTokens), of(l.PrefillKV), of(l.Decodes), of(l.DecodeKV)}
}

// stream is the one that a record is of, nil where there are too many.
func (ps *Passes) stream(target string, of *event, p *payload) *Stream {
	rank := strconv.FormatInt(*p.Rank, 10)
	names := []string{target}
	if of != nil {
		names = []string{of.Source.Namespace, of.Source.Component, cmp.Or(p.Worker, of.Source.Producer)}
	} else if p.Worker != "" {
		names = append(names, p.Worker)
	}
	name := clip(strings.Join(names, "/"))
	key := name + "\xff" + rank
	if s := ps.by[key]; s != nil {
		return s
	}
	if len(ps.Streams) == mostStreams {
		return nil
	}
	s := &Stream{Target: name, Rank: rank}
	if of != nil {
		s.Engine = engineOf(of.Source.Component)
	}
	if ps.by == nil {
		ps.by = map[string]*Stream{}
	}
	ps.by[key] = s
	ps.Streams = append(ps.Streams, s)
	s.named()
	return s
}

func clip(name string) string { return strings.ToValidUTF8(name[:min(len(name), mostName)], "\ufffd") }

// engines by what their components are called; "backend", as most are, says nothing.
var engines = []struct{ part, engine string }{{"vllm", "vllm"}, {"sglang", "sglang"}, {"trtllm", "trtllm"}, {"tensorrt", "trtllm"}, {"mocker", "mocker"}}

func engineOf(component string) string {
	component = strings.ToLower(component)
	for _, e := range engines {
		if strings.Contains(component, e.part) {
			return e.engine
		}
	}
	return ""
}

// Meaning is what wall_time measures under an engine; "" where the engine is not known.
func Meaning(engine string) string {
	switch engine {
	case "vllm":
		return "the time between two results (of the first after a pause, from its schedule to its result): an iteration with the host's work, no GPU time"
	case "sglang":
		return "the GPU seconds that became ready since the record before: of one iteration, or of several where a record was left out"
	case "trtllm":
		return "iterLatencyMS, the host's loop: about two turns of it under the overlap scheduler"
	case "mocker":
		return "a simulated time: the mocker has no GPU"
	}
	return ""
}

// The families under which a stream's states are read.
const (
	passPrefix = "fpm."
	scheduled  = passPrefix + "scheduled_requests"
	queued     = passPrefix + "queued_requests"
	wallTime   = passPrefix + "wall_time"
)

func (s *Stream) named() {
	ls := exposition.Labels{{Name: "dp_rank", Value: s.Rank}}
	if s.Engine != "" {
		ls = append(ls, exposition.Label{Name: "engine", Value: s.Engine})
	}
	for i, family := range []string{scheduled, queued, wallTime} {
		s.tracks[i] = adapter.Track{Target: s.Target, Family: family, Type: exposition.Gauge, Labels: ls}
	}
}

// Tracks are the streams' states as series. Heartbeats are none of them.
func (ps *Passes) Tracks() (ts []*adapter.Track) {
	for _, s := range ps.Streams {
		for i := range s.tracks {
			if len(s.tracks[i].Points) > 0 {
				ts = append(ts, &s.tracks[i])
			}
		}
	}
	return ts
}

// Stalled is the longest time in which requests waited and nothing ran.
func (s *Stream) Stalled() Stall {
	if s.open.longer(s.stall) {
		return s.open
	}
	return s.stall
}

func (s *Stream) take(p Pass) {
	switch before := s.counter; {
	case !before.Known:
	case p.Counter == before.Value:
		s.Repeated++
		return
	case p.Counter < before.Value:
		s.Back++
		s.open = Stall{}
	case p.Counter > before.Value+1:
		if !s.Sampled {
			s.Lost += float64(p.Counter - before.Value - 1)
		}
		s.open = Stall{}
	}
	s.counter = logline.Some(p.Counter)
	s.Records++
	if p.Seen > 0 {
		s.First, s.Last = min(cmp.Or(s.First, p.Seen), p.Seen), max(s.Last, p.Seen)
	}
	s.progress(&p)
	if p.Heartbeat() {
		s.Heartbeats++
		return
	}
	s.Newest = &p
	if p.Iteration() {
		s.Iterations++
		if p.Wall.Value > 0 {
			s.Timed, s.Wall, s.Longest = s.Timed+1, s.Wall+p.Wall.Value, max(s.Longest, p.Wall.Value)
			s.put(2, p.Seen, p.Wall.Value)
		}
	}
	if n, ok := p.Scheduled.Requests(); ok {
		s.put(0, p.Seen, n)
	}
	if n, ok := p.Queued.Requests(); ok {
		s.MostQueued = logline.Some(max(n, s.MostQueued.Value))
		s.put(1, p.Seen, n)
	}
}

// progress follows whether anything runs while requests wait.
func (s *Stream) progress(p *Pass) {
	waits, told := p.Queued.Requests()
	if p.Iteration() {
		if s.open.Ended = true; s.open.Records > 0 && s.open.longer(s.stall) {
			s.stall = s.open
		}
		s.open = Stall{}
		if told && waits > 0 {
			s.open = Stall{Queued: waits, From: p.Seen, To: p.Seen}
		}
		return
	}
	switch nothing := zero(p.Scheduled.Requests()); {
	case p.Heartbeat(): // what waits is not told
	case !nothing || !told || waits == 0:
		s.open = Stall{}
	case s.open.Queued == 0:
		s.open = Stall{Queued: waits, From: p.Seen}
	}
	if s.open.Queued > 0 {
		s.open.Records, s.open.To = s.open.Records+1, p.Seen
	}
}

// put keeps a state: of each second the last one.
func (s *Stream) put(track int, at int64, value float64) {
	t := &s.tracks[track]
	if n := len(t.Points); n > 1 && (n == mostPoints || at > 0 && at/1e9 == t.Points[n-1].At/1e9) {
		t.Points[n-1] = adapter.Point{At: at, Value: value}
		return
	}
	t.Points = append(t.Points, adapter.Point{At: at, Value: value})
}

// InOrder are the streams by target and rank.
func (ps *Passes) InOrder() []*Stream {
	return slices.SortedFunc(slices.Values(ps.Streams), func(a, b *Stream) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), cmp.Compare(len(a.Rank), len(b.Rank)), cmp.Compare(a.Rank, b.Rank))
	})
}
