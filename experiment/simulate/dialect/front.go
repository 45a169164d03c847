package dialect

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/wire"
)

// front is a vLLM front end: the engines behind it, and what it knows of the requests in them. Everything that vLLM says of a request is
// said here, from the engine's output messages as they come in; so it moves here when they do, and not when the scheduler acts. One that
// has several processes is one front: its page is the sum of theirs.
type front struct {
	target      string
	incarnation string
	processes   []wire.Hello
	engines     []*engine            // by rank
	sequences   map[string]*sequence // by the engine's internal id, while somebody knows them
	exchanges   map[exchangeKey]*exchange
	parents     map[string]*parent // by internal id
	web         *web
	hears       []listener
	traces      *requests // one of them; nil = none
}

// listener is told what vLLM's front end tells its own statistics.
type listener interface {
	// iterated is told of each completion, when the engine is done with it.
	iterated(e *engine, at int64, it *iteration)
	// output is told of each message with output of sequences.
	output(e *engine, at int64, o *output)
	// state is told of the scheduler's state, at each message.
	state(e *engine, at int64, s *state)
	// ended is told of a sequence whose final output has passed.
	ended(q *sequence, at int64)
}

// engine is one scheduler loop, and what of its doing has not come to the front end yet.
type engine struct {
	front   *front
	hello   wire.Hello
	version version
	counts  *counts

	sequences map[uint32]*sequence // by the scheduler's handle, while the engine knows them
	starting  map[*sequence]*start // members that have no output yet
	deferred  int                  // of the waiting ones: for another reason than room
	free      int                  // blocks
	room      int                  // blocks of the pool
	now       state
	drafts    []drafted   // not verified yet
	lost      int         // preemptions so far
	open      []iteration // decided, not done
	sent      []message   // done, not delivered
}

// state is what the scheduler says of itself with each message.
type state struct {
	running, waiting, deferred int
	usage                      float64 // share of the KV cache
	queries, hits              int     // prompt tokens asked of the prefix cache and found, since the last message
	lookups                    int     // requests that asked
	drafts                     []draft // verified since the last message
}

// draft is a run of speculative tokens, of which some were taken.
type draft struct{ tokens, taken int }

// iteration is a decision and its completion. Context is what vLLM calls the members without output.
type iteration struct {
	number                       uint64
	launched, done               int64 // ns of the engine's clock
	context, contextTokens       int
	generation, generationTokens int
	usage                        float64 // share of the KV cache after it
}

// message is what an engine sends to its front end after a completion.
type message struct {
	key   float64 // the engine's output timestamp, s
	emits []wire.Emit
	state state
	// preemptions are how many the engine had when it made the message: it tells of no later one.
	preemptions int
}

// output is what one message brings to the front end.
type output struct {
	receipt float64 // Unix s
	prompts int     // prompt tokens of the sequences whose first token it has
	cached  int     // of those, from the prefix cache
	tokens  int     // generated
	first   []*sequence
	later   []float64 // s, the gaps of those that had output before
	lost    int       // preemptions that it tells of
}

// sequence is one stream of tokens, as both sides know it.
type sequence struct {
	engine       *engine
	handle       uint32 // of the scheduler
	id           string
	external     string
	parent       string
	exchange     *exchange
	prompt       int
	most         int     // tokens that it may generate
	arrival      float64 // Unix s, at the front end
	queued       float64 // s of the engine's clock, as are the three below
	scheduled    float64 // 0 = not yet
	firstAt      float64
	lastAt       float64
	firstReceipt float64 // Unix s, of its first output, and
	receipt      float64 // of its last
	output       int     // tokens that have come to the front end
	past         bool    // its prompt is computed
	holds        bool    // it runs, and has blocks
	started      bool    // something of it has come to the front end
	cached       int     // prompt tokens that its first admission found in the cache
	lost         []int   // preemptions that are to be told with its next output, as the engine counts them
	preempted    int     // that have been told
	reason       ledger.FinishReason
	left         bool // the engine has let go of it
	answered     bool // the front end has
}

type exchangeKey struct {
	source int
	http   uint32
}

// exchange is an HTTP request.
type exchange struct {
	received    int64 // Unix ns
	path        string
	traceparent string
}

// parent is a request for several sequences.
type parent struct {
	sequences int
	open      int // of them, those that have not ended
	most      int // tokens of the longest so far
}

func newFront(target, incarnation string) *front {
	return &front{target: target, incarnation: incarnation, sequences: map[string]*sequence{}, exchanges: map[exchangeKey]*exchange{}, parents: map[string]*parent{}, web: newWeb()}
}

// engine is the engine of a rank, which is made when it first speaks.
func (f *front) engine(h *wire.Hello) *engine {
	i, found := slices.BinarySearchFunc(f.engines, h.Engine.Rank, func(e *engine, rank int) int { return cmp.Compare(e.hello.Engine.Rank, rank) })
	if !found {
		e := &engine{front: f, hello: *h, version: versionOf(h.Engine.Version), sequences: map[uint32]*sequence{}, starting: map[*sequence]*start{}}
		f.engines = slices.Insert(f.engines, i, e)
	}
	e := f.engines[i]
	if len(h.Settings) > 0 { // of a thread that knows them; others say none
		e.hello = *h
		e.room = number(h.Settings, "num_gpu_blocks") - 1 // one block stands for none
		e.free = e.room
	}
	if e.counts == nil || len(h.Settings) > 0 {
		e.counts = newCounts(number(e.hello.Settings, "max_model_len"), number(e.hello.Settings, "num_speculative_tokens"))
	}
	return e
}

// heard takes a message of the front end, of a source of it.
func (f *front) heard(p *process, at int64, m wire.Message) {
	switch m := m.(type) {
	case *wire.Received:
		f.exchanges[exchangeKey{p.source, m.HTTP}] = &exchange{received: at, path: m.Path, traceparent: m.Traceparent}
	case *wire.LastByte:
		key := exchangeKey{p.source, m.HTTP}
		if x := f.exchanges[key]; x != nil {
			f.web.count(x, int(m.Status), at)
			delete(f.exchanges, key)
		}
	case *wire.Submitted:
		f.submitted(p, at, m)
	case *wire.Delivered:
		if !m.Same {
			p.last = p.last[:0]
			for _, h := range m.Handles {
				if q := p.sequences[h]; q != nil {
					p.last = append(p.last, q)
				}
			}
		}
		f.delivered(p, at, m.Key)
	case *wire.Answered:
		if q := p.sequences[m.Handle]; q != nil {
			delete(p.sequences, m.Handle)
			q.reason = m.Reason
			f.answered(q, at, m.By == wire.ByClient)
		}
	}
}

func (f *front) submitted(p *process, at int64, m *wire.Submitted) {
	q := f.sequence(m.ID)
	q.external, q.parent, q.prompt = m.External, m.Parent, int(m.Prompt)
	q.exchange = f.exchanges[exchangeKey{p.source, m.HTTP}]
	if q.arrival == 0 {
		q.arrival = float64(at) / 1e9 // until the engine tells better
	}
	p.sequences[m.Handle] = q
	if m.Parent != "" {
		if f.parents[m.Parent] == nil {
			f.parents[m.Parent] = &parent{}
		}
		f.parents[m.Parent].open++
		f.parents[m.Parent].sequences++
	}
}

// sequence is the one of an id, which is made when it is first heard of.
func (f *front) sequence(id string) *sequence {
	q := f.sequences[id]
	if q == nil {
		q = &sequence{id: id}
		f.sequences[id] = q
	}
	return q
}

// release forgets a sequence of which nobody will say more.
func (f *front) release(q *sequence) {
	if q.left && q.answered {
		delete(f.sequences, q.id)
	}
}

// delivered takes the output of an engine: the one that has sent a message with this timestamp.
func (f *front) delivered(p *process, at int64, key float64) {
	for _, e := range f.engines {
		i := slices.IndexFunc(e.sent, func(m message) bool { return m.key == key })
		if i < 0 {
			continue
		}
		for _, earlier := range e.sent[:i] { // those had nothing for anybody
			e.tell(at, &earlier.state)
		}
		m := e.sent[i]
		e.sent = slices.Delete(e.sent, 0, i+1)
		f.take(e, p.last, at, &m)
		e.tell(at, &m.state)
		return
	}
}

// take works through a message as vLLM's statistics of an iteration do.
func (f *front) take(e *engine, of []*sequence, at int64, m *message) {
	o := output{receipt: float64(at) / 1e9}
	var emits map[uint32]int
	if len(m.emits) > 0 {
		emits = make(map[uint32]int, len(m.emits))
		for _, x := range m.emits {
			emits[x.Handle] = int(x.Tokens)
		}
	}
	for _, q := range of {
		if q.answered || q.engine != e {
			continue
		}
		tokens := 1 // as a rule
		if n, other := emits[q.handle]; other {
			tokens = n
		}
		q.receipt = o.receipt
		q.output += tokens
		o.tokens += tokens
		told, _ := slices.BinarySearch(q.lost, m.preemptions+1)
		o.lost += told
		q.preempted += told
		q.lost = q.lost[told:]
		if q.started {
			o.later = append(o.later, m.key-q.lastAt)
		} else {
			q.started, q.firstAt, q.firstReceipt = true, m.key, o.receipt
			o.prompts += q.prompt
			o.cached += q.cached
			o.first = append(o.first, q)
		}
		q.lastAt = m.key
	}
	e.counts.output(e.version, &o)
	for _, l := range f.hears {
		l.output(e, at, &o)
	}
}

// answered ends a sequence for the front end. One whose client went is forgotten without a word: vLLM's statistics never see its end.
func (f *front) answered(q *sequence, at int64, gone bool) {
	q.answered = true
	p := f.parents[q.parent]
	if p == nil {
		p = &parent{sequences: 1, open: 1}
	}
	p.open--
	if !gone && q.engine != nil {
		p.most = max(p.most, q.output)
		q.engine.counts.ended(q, p)
		for _, l := range f.hears {
			l.ended(q, at)
		}
	}
	if p.open == 0 {
		delete(f.parents, q.parent)
	}
	f.release(q)
}

// tell passes on the scheduler's state.
func (e *engine) tell(at int64, s *state) {
	e.counts.state(s)
	for _, l := range e.front.hears {
		l.state(e, at, s)
	}
}
