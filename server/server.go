package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/identity"
	"github.com/whylate/whylate/ingest/stream"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/look"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// Settings say how a server works. Zero values have the meaning given.
type Settings struct {
	DataDir   string        // where the store lies, for the room on its disk; "" = not told
	Rings     string        // directory of this host's rings; "" = they are not read
	Poll      time.Duration // how often they are looked at; 0 = 20 ms
	SealEvery time.Duration // 0 = 2 min
	HotPeriod time.Duration // how much stays in memory beyond what is alive; 0 = 5 min
	// HotIterations is how many iterations of all engines together stay in memory, whatever the hot period; 0 = 4,000,000.
	HotIterations int
	FullEvery     time.Duration // how often it is looked whether there are more; 0 = 1 s
	InFlight      int64         // bytes on disk that may wait to be taken up; 0 = 256 MiB
	SpanQuiet     time.Duration // a trace is sealed so long after its last span; 0 = 30 s
	SpanAge       time.Duration // and at most so long after its first; 0 = 5 min
	HotSpans      int           // spans in memory; above it the traces that were quiet longest are sealed; 0 = 500,000
	Retention     store.Policy
	Told          *Told            // changes that are told from outside; nil = they are not taken
	Judged        *Judged          // how answers were judged; nil = that is not kept
	Log           *slog.Logger     // nil = slog.Default()
	Now           func() time.Time // nil = time.Now
	Epoch         string           // names this run; "" = the time of its start
	Outlets       []*Outlet        // whoever is told of requests that are over
	// GPU says how this host's GPUs are sampled; nil = they are not.
	GPU *gpu.Settings
	// Faults tells what goes wrong in the process beside the server, as long as it does. May be nil.
	Faults func() []api.Fault
	// Targets tells what the process scrapes. Nil: it scrapes nothing.
	Targets func() *api.TargetList
	// Series gives the time series that the process keeps. Nil, or a nil answer: it keeps none.
	Series   func() *metrics.DB
	Host     string           // on which the process runs, as engines of this host tell it; "" = not known
	Aliases  []identity.Alias // of things that somebody has told to be one
	Promises []look.Promise   // objectives, and the signals that tell of them
	// Sends reports whether an agent is sending a source to this server: then its ring is left to the agent. Nil: none does.
	Sends func(source string) bool
}

func (s Settings) withDefaults() Settings {
	if s.Poll == 0 {
		s.Poll = 20 * time.Millisecond
	}
	if s.SealEvery == 0 {
		s.SealEvery = 2 * time.Minute
	}
	if s.HotPeriod == 0 {
		s.HotPeriod = 5 * time.Minute
	}
	if s.HotIterations == 0 {
		s.HotIterations = 4_000_000
	}
	if s.SpanQuiet == 0 {
		s.SpanQuiet = 30 * time.Second
	}
	if s.SpanAge == 0 {
		s.SpanAge = 5 * time.Minute
	}
	if s.HotSpans == 0 {
		s.HotSpans = 500_000
	}
	if s.FullEvery == 0 {
		s.FullEvery = time.Second
	}
	if s.InFlight == 0 {
		s.InFlight = 256 << 20
	}
	if s.Sends == nil {
		s.Sends = func(string) bool { return false }
	}
	if s.Log == nil {
		s.Log = slog.Default()
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Epoch == "" {
		s.Epoch = s.Now().UTC().Format("20060102T150405.000")
	}
	return s
}

// Server keeps what it acknowledged and answers about it: frames go to the store's log, from there into the hot period, and
// when what they tell is over into sealed periods. It is an [api.Service], an [api.Importer] and an [api.Keeper].
type Server struct {
	*Keeper
	set       Settings
	store     store.Store
	hot       *hot
	feed      *api.Feed
	queue     chan batch   // on disk, not taken up yet
	bytes     atomic.Int64 // of them
	order     sourceLocks  // held from the disk to the queue
	spans     *spans
	liveCalls live
	callers   callers
	who       kept[joined]
	arriving  kept[api.SignalList]

	mu     sync.Mutex
	sealed map[ledger.EngineID]uint64 // iterations up to here are sealed
	known  map[ledger.EngineID]store.Described
	marks  []mark // where the log was when, oldest first

	arrived arrivals

	ready   atomic.Bool
	busy    atomic.Uint64 // batches turned away
	faults  faults
	watcher watcher
}

// mark is a place in the log at a time: whatever was recorded before that time lies before that place.
type mark struct {
	at  int64
	pos store.Position
}

// New makes a server on an open store. It answers after Run has read the log.
func New(st store.Store, set Settings) *Server {
	set = set.withDefaults()
	return &Server{Keeper: NewKeeper(st), set: set, store: st, hot: newHot(set.Now), spans: newSpans(st.Spans(), set), feed: api.NewFeed(set.Epoch, 4096, 256), queue: make(chan batch, 4096), sealed: map[ledger.EngineID]uint64{}, known: map[ledger.EngineID]store.Described{}}
}

// Run reads the log, then takes in, seals and tells until ctx ends. It returns when everything that was acknowledged is on disk,
// which it was all along.
func (s *Server) Run(ctx context.Context) error {
	began := s.set.Now()
	if err := s.recover(ctx); err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	if err := s.recoverSpans(ctx); err != nil {
		return fmt.Errorf("read the log of spans: %w", err)
	}
	s.set.Log.Info("log read", "took", s.set.Now().Sub(began).String(), "log", s.store.LogInfo().Last.String())
	s.ready.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { s.takeUp(ctx) })
	wg.Go(func() { s.every(ctx, 500*time.Millisecond, s.tell) })
	wg.Go(func() { s.sealAgain(ctx) })
	for _, outlet := range s.set.Outlets {
		o := offering{outlet: outlet}
		o.begin(s)
		wg.Go(func() { s.every(ctx, offerEvery, func(ctx context.Context) { o.offer(ctx, s) }) })
	}
	wg.Go(func() { s.sealSpansAgain(ctx) })
	if s.set.Rings != "" {
		wg.Go(func() { s.followRings(ctx) })
	}
	if s.set.GPU != nil {
		wg.Go(func() { s.sampleGPUs(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	s.feed.Close()
	return nil
}

// Ready says why the server cannot answer yet, or any more.
func (s *Server) Ready(context.Context) error {
	if !s.ready.Load() {
		return &api.Unavailable{What: "the log is still being read", After: time.Second}
	}
	if s.bytes.Load() > s.set.InFlight {
		return &api.Overloaded{What: "more waits to be taken up than is allowed", After: time.Second}
	}
	return nil
}

// every calls do at regular intervals until ctx ends.
func (s *Server) every(ctx context.Context, d time.Duration, do func(context.Context)) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			do(ctx)
		}
	}
}

// accept makes records durable; when it returns nil they may be acknowledged. The records are kept: their bytes must not change.
func (s *Server) accept(ctx context.Context, records []store.Record) error {
	if len(records) == 0 {
		return nil
	}
	if s.bytes.Load() > s.set.InFlight {
		s.busy.Add(1)
		return fmt.Errorf("%w: %d bytes are on disk and wait to be taken up", stream.ErrOverloaded, s.bytes.Load())
	}
	defer s.order.lock(records)()
	pos, err := s.store.Append(ctx, records)
	if err != nil {
		s.faults.note("append to the log", err, s.set.Now())
		if errors.Is(err, store.ErrFull) { // it may be freed: the sender keeps what it has
			return fmt.Errorf("%w: %w", stream.ErrOverloaded, err)
		}
		return err
	}
	s.noteMark(pos)
	var size int64
	for i := range records {
		size += int64(len(records[i].Frame.Raw))
	}
	s.bytes.Add(size)
	s.queue <- batch{records: records} // it is on disk: not to be lost from the answers even if the sender goes away
	return nil
}

// sourceLocks keep the records of one source in the order in which they went to disk until they are queued, whoever brings them: an
// agent, the ring itself, an import. Batches of different sources share a sync, so each source has a lock, which it may share.
type sourceLocks [64]sync.Mutex

// lock takes the locks of the sources of some records, and returns what gives them back.
func (l *sourceLocks) lock(records []store.Record) func() {
	var mine uint64
	last := ""
	for i := range records {
		if name := records[i].Source.Name; i == 0 || name != last {
			last = name
			mine |= 1 << (crc32.ChecksumIEEE([]byte(name)) % uint32(len(l)))
		}
	}
	for k := range l { // always in the same order
		if mine&(1<<k) != 0 {
			l[k].Lock()
		}
	}
	return func() {
		for k := range l {
			if mine&(1<<k) != 0 {
				l[k].Unlock()
			}
		}
	}
}

// batch is what one call of accept put on disk. taken, if there is one, is closed when it can be asked about.
type batch struct {
	records []store.Record
	taken   chan struct{}
}

// takeUp feeds the hot period with what is on disk.
func (s *Server) takeUp(ctx context.Context) {
	for {
		select {
		case b := <-s.queue:
			s.take(b)
		case <-ctx.Done():
			for { // senders may still wait for a place
				select {
				case b := <-s.queue:
					s.take(b)
				case <-time.After(100 * time.Millisecond):
					return
				}
			}
		}
	}
}

func (s *Server) take(b batch) {
	if b.taken != nil {
		defer close(b.taken)
	}
	records := b.records
	if err := s.hot.take(records); err != nil {
		s.faults.note("take up records", err, s.set.Now())
	}
	var size int64
	for i := range records {
		size += int64(len(records[i].Frame.Raw))
	}
	s.bytes.Add(-size)
}

// markEvery is how finely it is known where the log was when.
const markEvery = 5 * time.Second

func (s *Server) noteMark(pos store.Position) {
	now := s.set.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.marks); n == 0 || now-s.marks[n-1].at >= int64(markEvery) {
		s.marks = append(s.marks, mark{now, pos})
	}
}

// AcceptBatches takes what agents send.
func (s *Server) AcceptBatches(ctx context.Context, batches []stream.Batch) error {
	var records []store.Record
	for _, b := range batches {
		if b.Gap != nil {
			records = append(records, store.Record{Source: b.Source, Gap: b.Gap})
		}
		for _, f := range b.Frames {
			raw := append([]byte(nil), f.Raw...)
			f, _, err := wire.ParseFrame(raw)
			if err != nil {
				return err
			}
			records = append(records, store.Record{Source: b.Source, Frame: f})
		}
	}
	return s.accept(ctx, records)
}

// settle waits until everything that was accepted before can be asked about.
func (s *Server) settle(ctx context.Context) error {
	b := batch{taken: make(chan struct{})}
	select {
	case s.queue <- b:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-b.taken:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Durable is the sequence of the last frame of a source that is on disk.
func (s *Server) Durable(_ context.Context, source wire.Source) (uint64, error) {
	return s.store.Kept(source), nil
}

// Import implements [api.Importer].
func (s *Server) Import(ctx context.Context, q api.ImportQuery, in io.Reader) (*api.ImportResult, error) {
	counted := &counting{in: in}
	file := bufio.NewReader(counted)
	if looksLikeSpans(file) {
		return s.importSpans(ctx, q.Name, counted, file)
	}
	before := s.store.LogInfo()
	b := &batching{ctx: ctx, accept: s.accept}
	gaps := &countingGaps{batching: b}
	if err := readCapture(file, q.Name, gaps); err != nil {
		return nil, err
	}
	if err := b.flush(); err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	after := s.store.LogInfo()
	r := &api.ImportResult{Name: q.Name, Bytes: counted.n, Sources: len(b.sources), Frames: b.frames, Gaps: gaps.n}
	r.Duplicate = min(after.Passed-before.Passed, r.Frames)
	r.New = r.Frames - r.Duplicate
	return r, nil
}

// faults remembers what went wrong, for doctor and metrics.
type faults struct {
	mu   sync.Mutex
	last map[string]api.Fault
}

func (f *faults) note(what string, err error, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]api.Fault{}
	}
	f.last[what] = api.Fault{What: what, Count: f.last[what].Count + 1, Last: err.Error(), At: at.UnixNano()}
}

// list tells what went wrong so far, in the order of the names.
func (f *faults) list() []api.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []api.Fault
	for _, name := range slices.Sorted(maps.Keys(f.last)) {
		out = append(out, f.last[name])
	}
	return out
}

type counting struct {
	in io.Reader
	n  int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.n += int64(n)
	return n, err
}

// countingGaps counts the gap records that pass.
type countingGaps struct {
	*batching
	n int
}

func (c *countingGaps) Gap(id uint16, g wire.Gap) error {
	c.n++
	return c.batching.Gap(id, g)
}
