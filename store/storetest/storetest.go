// Package storetest is what every body of package store must pass: one call of [Run] in its tests.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ingest"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// Open opens a body on a directory; a second call on the same directory, after Close, finds what was there.
type Open func(t *testing.T, dir string) (store.Store, error)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"append, replay, forget", appendReplayForget},
		{"append is idempotent", appendTwice},
		{"replay gives what an assembler needs", replayAssembles},
		{"a sealed request has the account of the live one", sameAccounts},
		{"a sealed slice has the same members and waits", sameSlices},
		{"whatever the ledger says is sealed", everyFact},
		{"merging changes no answer", compaction},
		{"merging goes on for ever", steadyCompaction},
		{"the ledger may change while it is written", copied},
		{"find by any id", find},
		{"list sorts, filters and pages", list},
		{"seal refuses what is not over, and seals once", sealRefuses},
		{"requests that no engine took up", withoutEngine},
		{"calls that spans told of", spanCalls},
		{"the log of spans", spanLog},
		{"retention", retention},
		{"two at once", locking},
		{"export", export},
		{"export file by file", exportFiles},
		{"export into a directory", exportInto},
		{"describe an engine", describe},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open) })
	}
}

func must(t *testing.T, open Open, dir string) store.Store {
	t.Helper()
	s, err := open(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var ctx = context.Background()

// Random is the book of a random run of n iterations.
func Random(t testing.TB, seed uint64, n int) *ledger.Book {
	t.Helper()
	run, _, err := scenario.Random(seed, n, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	b, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Over reports whether a sequence is over by an iteration, and no run of it goes on.
func Over(through uint64) func(*ledger.Sequence) bool {
	return func(q *ledger.Sequence) bool {
		_, last := store.Span(q)
		return q.Finished != 0 && last <= through
	}
}

// SealAll seals a book's first engine in periods that end at the given iterations, and returns its model and the requests sealed.
func SealAll(t testing.TB, s store.Store, b *ledger.Book, ends ...uint64) (*account.Model, []*ledger.Request) {
	t.Helper()
	e := b.Engines[0]
	var m *account.Model
	if fitted, ok := account.Fit(e); ok {
		m = &fitted
	}
	var sealed []*ledger.Request
	after := uint64(0)
	done := map[*ledger.Request]bool{}
	for _, end := range ends {
		var left []*ledger.Request
		for _, r := range b.Requests {
			if !done[r] {
				left = append(left, r)
			}
		}
		p := store.Cut(e, left, m, after, end, Over(end))
		if p == nil {
			continue
		}
		if _, err := s.Seal(ctx, p); err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Requests {
			done[r] = true
			sealed = append(sealed, r)
		}
		after = end
	}
	return m, sealed
}

// Ref finds a request by its own id.
func Ref(t testing.TB, s store.Store, r *ledger.Request) store.RequestRef {
	t.Helper()
	refs, err := s.Find(ctx, r.Name(), 2)
	if err != nil || len(refs) == 0 || !refs[0].Exact || refs[0].Name != r.Name() {
		t.Fatalf("find %s: %+v, %v", r.Name(), refs, err)
	}
	return refs[0]
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func sameAccounts(t *testing.T, open Open) {
	for seed := range uint64(3) {
		s := must(t, open, filepath.Join(t.TempDir(), "data"))
		b := Random(t, seed, 400)
		m, sealed := SealAll(t, s, b, 97, 98, 250, b.Engines[0].Completed())
		if len(sealed) < 20 {
			t.Fatalf("only %d requests sealed", len(sealed))
		}
		CheckAccounts(t, s, m, sealed, b.Now)
	}
}

// CheckAccounts holds every request's sealed account against the live one, and the sums in its row against both.
func CheckAccounts(t testing.TB, s store.Store, m *account.Model, sealed []*ledger.Request, now int64) {
	t.Helper()
	for _, r := range sealed {
		got, err := s.Load(ctx, Ref(t, s, r))
		if err != nil {
			t.Fatalf("load %s: %v", r.Name(), err)
		}
		want, have := account.Of(r, m, now), account.Of(got.Request, got.Model, now)
		if diff := cmp.Diff(text(t, want), text(t, have)); diff != "" {
			t.Fatalf("%s, -live +sealed:\n%s", r.Name(), diff)
		}
		if diff := cmp.Diff(m, got.Model); diff != "" {
			t.Fatalf("model, -live +sealed:\n%s", diff)
		}
		row := got.Row
		if row.E2E != want.E2E() || row.TTFT != want.TTFT || row.TPOT != want.TPOT || row.From != want.From || row.Queue != want.Line(account.Queue).NS || row.Decode != want.Line(account.Decode).NS {
			t.Fatalf("%s: the row's sums %+v are not those of its account\n%s", r.Name(), row, text(t, want))
		}
		if diff := cmp.Diff(r.IDs(), got.Request.IDs()); diff != "" {
			t.Fatalf("ids, -live +sealed:\n%s", diff)
		}
		if r.Labels != got.Request.Labels {
			t.Fatalf("%s: labels %v, sealed %v", r.Name(), r.Labels, got.Request.Labels)
		}
	}
}

// presence tells for each iteration who was in it with how much, and who waited why.
func presence(e *ledger.Engine, from, to uint64) map[string]string {
	out := map[string]string{}
	name := func(q *ledger.Sequence) string {
		if q == nil {
			return "-"
		}
		return q.ID + "/" + q.Request.Name()
	}
	for _, q := range e.Sequences {
		for i := range q.Stints {
			s := &q.Stints[i]
			for n := max(s.First, from); n <= min(s.Last, to); n++ {
				drafts, rejected := s.DraftsIn(n)
				out[fmt.Sprintf("%d %s", n, name(q))] += fmt.Sprintf("%v %d of %v, drafts %d − %d;", s.Phase, s.TokensIn(n), ledger.MemberWork(s, n, n)[ledger.WorkDecodeContext], drafts, rejected)
			}
		}
		for _, s := range q.Skips {
			for n := max(s.First, from); n <= min(s.Last, to); n++ {
				out[fmt.Sprintf("%d %s", n, name(q))] += fmt.Sprintf("waits %v head %s away %v;", s.Reason, name(s.Head), s.Away)
			}
		}
	}
	for n := from; n <= to; n++ {
		it := *e.Row(n)
		d := e.Between(n, n)
		it.Sums, it.Head, it.Execution = ledger.Sums{}, nil, nil
		out[fmt.Sprintf("%d", n)] = fmt.Sprintf("%+v %+v head %s tile %d", it, d, name(e.Row(n).Head), e.TileStart(n))
		if x := e.Row(n).Execution; x != nil {
			out[fmt.Sprintf("%d execution", n)] = fmt.Sprintf("%+v", *x)
		}
	}
	for _, p := range e.Preemptions {
		if p.Iteration >= from && p.Iteration <= to {
			out[fmt.Sprintf("%d preempts %s", p.Iteration, name(p.Victim))] = fmt.Sprintf("for %s at %d lost %d output %d free %d blocks %d", name(p.Preemptor), p.At, p.Lost, p.Output, p.FreeBlocks, p.Blocks)
		}
	}
	for _, v := range e.Evictions {
		if v.Iteration >= from && v.Iteration <= to {
			out[fmt.Sprintf("%d evictions", v.Iteration)] += fmt.Sprintf("%d of %s at %d;", v.Blocks, name(v.Seq), v.At)
		}
	}
	for _, h := range e.Holdings {
		if h.Iteration >= from && h.Iteration <= to {
			var who []string
			for _, k := range h.Holders {
				who = append(who, fmt.Sprintf("%s %d %v", name(k.Seq), k.Blocks, k.Weight))
			}
			out[fmt.Sprintf("%d holders", h.Iteration)] = fmt.Sprintf("%s needs %d of %d: %v", name(h.Head), h.Need, h.Free, who)
		}
	}
	return out
}

func sameSlices(t *testing.T, open Open) {
	for seed := range uint64(6) {
		s := must(t, open, filepath.Join(t.TempDir(), "data"))
		b := Facts(Random(t, seed, 600))
		e := b.Engines[0]
		SealAll(t, s, b, 97, 250, 430, 500)
		for _, span := range [][2]uint64{{1, 1}, {1, 500}, {90, 100}, {97, 98}, {98, 98}, {240, 440}, {499, 500}} {
			checkSlice(t, s, e, span[0], span[1])
		}
	}
}

func checkSlice(t testing.TB, s store.Store, e *ledger.Engine, from, to uint64) {
	t.Helper()
	got, err := s.Slice(ctx, e.ID, from, to)
	if err != nil {
		t.Fatal(err)
	}
	if got.Began != 1 {
		t.Errorf("the engine began with iteration %d", got.Began)
	}
	if diff := cmp.Diff(presence(e, from, to), presence(got.Engine, from, to)); diff != "" {
		t.Fatalf("iterations %d to %d, -live +sealed:\n%s", from, to, diff)
	}
	if diff := cmp.Diff(account.Firsts(e), got.Firsts); diff != "" && to == e.Last() {
		t.Errorf("firsts: %s", diff)
	}
}

func compaction(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	b := Facts(Random(t, 3, 600))
	m, sealed := SealAll(t, s, b, 50, 97, 98, 250, 430, 500)
	before := map[string]store.RequestRef{}
	for _, r := range sealed {
		before[r.Name()] = Ref(t, s, r)
	}
	for _, rows := range []int64{100, 300, 1000} {
		if _, err := s.Compact(ctx, rows, 2); err != nil {
			t.Fatal(err)
		}
		CheckAccounts(t, s, m, sealed, b.Now)
		for _, span := range [][2]uint64{{1, 500}, {90, 100}, {240, 440}} {
			checkSlice(t, s, b.Engines[0], span[0], span[1])
		}
		for name, ref := range before { // references stay good
			if got, err := s.Load(ctx, ref); err != nil || got.Request.Name() != name {
				t.Fatalf("%s by its old reference: %v", name, err)
			}
		}
	}
	ps, err := s.Periods(ctx)
	if err != nil || len(ps) != 1 || ps[0].First != 1 || ps[0].Last != 500 {
		t.Fatalf("%+v, %v", ps, err)
	}
	s.Close()
	CheckAccounts(t, must(t, open, dir), m, sealed, b.Now)
}

// steadyCompaction seals small periods for a long time, and merges after each.
func steadyCompaction(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b := Random(t, 5, 1300)
	e := b.Engines[0]
	const step, rows, fan = 20, 640, 4
	written := 0
	for through := uint64(step); through <= 1280; through += step {
		p := store.Cut(e, b.Requests, nil, through-step, through, func(q *ledger.Sequence) bool { return false })
		if _, err := s.Seal(ctx, p); err != nil {
			t.Fatal(err)
		}
		before, err := s.Periods(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Compact(ctx, rows, fan); err != nil {
			t.Fatal(err)
		}
		after, err := s.Periods(ctx)
		if err != nil {
			t.Fatal(err)
		}
		known := map[string]bool{}
		for _, p := range before {
			known[p.ID] = true
		}
		for _, p := range after {
			if n := p.Last - p.First + 1; n > rows {
				t.Fatalf("a period of %d iterations", n)
			} else if !known[p.ID] {
				written += int(n)
			}
		}
		if len(after) > 12 {
			t.Fatalf("%d periods after %d iterations", len(after), through)
		}
	}
	// Four times as large each time: 20, 80, 320, and what is left of 640.
	if most := 4 * 1280; written > most {
		t.Errorf("%d iterations were merged %.1f times", 1280, float64(written)/1280)
	}
	checkSlice(t, s, e, 1, 1280)
}

// copied changes the ledger as soon as the store allows it.
func copied(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b, fresh := Facts(Random(t, 6, 300)), Facts(Random(t, 6, 300))
	e := b.Engines[0]
	p := store.Cut(e, b.Requests, nil, 0, 250, func(q *ledger.Sequence) bool { return false })
	calls := 0
	p.Copied = func() {
		calls++
		for i := range e.Iterations {
			e.Iterations[i] = ledger.Iteration{}
		}
		clear(e.Evictions)
		for _, q := range e.Sequences {
			*q = ledger.Sequence{}
		}
	}
	if _, err := s.Seal(ctx, p); err != nil || calls != 1 {
		t.Fatalf("%d calls, %v", calls, err)
	}
	checkSlice(t, s, fresh.Engines[0], 1, 250)
}

func find(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b, err := named(40).Book()
	if err != nil {
		t.Fatal(err)
	}
	_, sealed := SealAll(t, s, b, b.Engines[0].Completed())
	if len(sealed) != 40 {
		t.Fatalf("%d requests sealed", len(sealed))
	}
	all := map[string]*ledger.Request{}
	for _, r := range sealed {
		for _, id := range r.IDs() {
			all[id] = r
		}
	}
	for id, r := range all {
		for n := 1; n <= len(id); n += 1 + n/4 {
			want := map[string]bool{}
			for other, q := range all {
				if strings.HasPrefix(other, id[:n]) {
					want[q.Name()] = true
				}
			}
			if q := all[id[:n]]; q != nil { // the beginning of one is the whole of another
				want = map[string]bool{q.Name(): true}
			}
			refs, err := s.Find(ctx, id[:n], 1000)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, ref := range refs {
				got[ref.Name] = true
			}
			if !maps.Equal(want, got) {
				t.Fatalf("%q: want %v, got %v", id[:n], want, got)
			}
		}
		if refs, err := s.Find(ctx, id, 1); err != nil || len(refs) != 1 || refs[0].Name != r.Name() || !refs[0].Exact {
			t.Fatalf("%q: %+v, %v", id, refs, err)
		}
		if refs, err := s.Find(ctx, id+"x", 10); err != nil || len(refs) != 0 {
			t.Fatalf("%q: %+v, %v", id+"x", refs, err)
		}
	}
	for _, r := range sealed {
		for _, q := range r.Sequences {
			if known, err := s.Has(ctx, q.Engine.ID, q.ID); err != nil || !known {
				t.Fatalf("sequence %s is sealed, and is not known: %v", q.ID, err)
			}
			if known, err := s.Has(ctx, q.Engine.ID, q.ID+"x"); err != nil || known {
				t.Fatalf("sequence %s is not sealed, and is known: %v", q.ID+"x", err)
			}
		}
	}
	if known, err := s.Has(ctx, ledger.EngineID{Incarnation: "another"}, sealed[0].Sequences[0].ID); err != nil || known {
		t.Errorf("another engine has the sequence: %v", err)
	}
	if _, err := s.Find(ctx, "", 10); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an empty id: %v", err)
	}
}

// named is a run of n requests with front end, client and several sequences each.
func named(n int) *scenario.Run {
	text := "engine vllm max_num_seqs=4\n"
	for k := range n {
		at := k * 100
		id := fmt.Sprintf("%08x-req-%d", uint32(k)*2654435761, k)
		text += fmt.Sprintf(`%[1]dms client %[2]s first=%[3]dms class=c%[4]d output=3
%[1]dms http %[2]s trace=00-%032[5]x-00000000000000aa-01
%[6]dms submit %[2]s prompt=8
%[6]dms arrive %[2]s
%[6]dms queue %[2]s prompt=8
%[6]d..%[7]dms iter %[2]s:8
%[7]d..%[8]dms iter %[2]s
%[8]d..%[9]dms iter %[2]s end=%[2]s:length
%[9]dms first %[2]s
%[9]dms last %[2]s
`, at, id, at+40, k%3, k+1, at+2, at+10+k%7, at+20+k%7, at+30+k%7)
	}
	run, err := scenario.Parse(text)
	if err != nil {
		panic(err)
	}
	return run
}

func list(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b, err := named(60).Book()
	if err != nil {
		t.Fatal(err)
	}
	Facts(b)
	tenant, class := b.Requests[1].Labels.Tenant, b.Requests[1].Labels.Class.String()
	m, sealed := SealAll(t, s, b, 40, 90, b.Engines[0].Completed())
	accounts := map[string]*account.Account{}
	for _, r := range sealed {
		accounts[r.Name()] = account.Of(r, m, b.Now)
	}
	keys := map[string]func(*account.Account) int64{"": func(a *account.Account) int64 { return a.From }, "from": func(a *account.Account) int64 { return a.From },
		"e2e": (*account.Account).E2E, "ttft": func(a *account.Account) int64 { return a.TTFT }, "tpot": func(a *account.Account) int64 { return a.TPOT }}
	for _, p := range account.Parts {
		keys[string(p)] = func(a *account.Account) int64 { return a.Line(p).NS }
	}
	middle := accounts[sealed[30].Name()]
	for by, key := range keys {
		for _, f := range []store.Filter{{}, {Class: "c1"}, {Class: class[:12]}, {Tenant: tenant.Short()}, {Tenant: tenant.String(), Class: "c1"}, {Route: "00000000"}, {Route: "ffffffff"}, {Over: middle.E2E()}, {From: middle.From}, {To: middle.From}, {At: middle.From + 5e6}, {Engine: &b.Engines[0].ID}, {Engine: &ledger.EngineID{Replica: "other"}}} {
			var want []int64
			names := map[string]bool{}
			for _, r := range sealed {
				a := accounts[r.Name()]
				if f.Class != "" && r.Class != f.Class && !r.Labels.Class.Is(f.Class) || f.Tenant != "" && !r.Labels.Tenant.Is(f.Tenant) || f.Route != "" && !r.Labels.Route.Is(f.Route) ||
					a.E2E() <= f.Over && f.Over > 0 || a.From < f.From || f.To != 0 && a.From >= f.To ||
					f.At != 0 && (a.From > f.At || a.To < f.At) || f.Engine != nil && *f.Engine != b.Engines[0].ID {
					continue
				}
				want = append(want, key(a))
				names[r.Name()] = true
			}
			slices.SortFunc(want, func(a, b int64) int { return int(min(max(b-a, -1), 1)) })
			f.Sort, f.Limit = by, 7
			var got []int64
			for {
				page, err := s.List(ctx, f)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Rows {
					got = append(got, key(accounts[r.Ref.Name]))
					if !names[r.Ref.Name] {
						t.Fatalf("%+v: %s does not match, or comes twice", f, r.Ref.Name)
					}
					delete(names, r.Ref.Name)
				}
				if f.Page = page.Next; f.Page == "" {
					break
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%+v: %s", f, diff)
			}
		}
	}
	if _, err := s.List(ctx, store.Filter{Sort: "beauty"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("an unknown key: %v", err)
	}
	if _, err := s.List(ctx, store.Filter{Page: "x"}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a page that is none: %v", err)
	}
}

func sealRefuses(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b := Random(t, 1, 200)
	e := b.Engines[0]
	bad := func(what string, p *store.Period) {
		t.Helper()
		if _, err := s.Seal(ctx, p); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad("iterations that are not there", &store.Period{Engine: e, First: 100, Last: 300})
	bad("backwards", &store.Period{Engine: e, First: 100, Last: 90})
	bad("iterations without an engine", &store.Period{First: 1, Last: 2})
	for _, r := range b.Requests {
		if r.Sequences[0].Finished == 0 {
			bad("a request that is not over", &store.Period{Engine: e, First: 1, Last: 100, Requests: []*ledger.Request{r}})
			break
		}
	}
	p := store.Cut(e, b.Requests, nil, 0, 100, Over(100))
	first, err := s.Seal(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Seal(ctx, p)
	if err != nil || again.ID != first.ID {
		t.Errorf("sealed again: %+v, %v", again, err)
	}
	bad("an overlap", store.Cut(e, nil, nil, 50, 150, Over(150)))
	// After a restart the log tells again of requests that were sealed: they are not sealed twice.
	next := store.Cut(e, b.Requests, nil, 100, 200, Over(200))
	if _, err := s.Seal(ctx, next); err != nil {
		t.Fatal(err)
	}
	for _, r := range next.Requests {
		if refs, err := s.Find(ctx, r.Name(), 10); err != nil || len(refs) == 0 || len(refs) > 1 && refs[1].Exact {
			t.Errorf("%s: %+v, %v", r.Name(), refs, err)
		}
	}
}

func withoutEngine(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	refused := &ledger.Request{RequestID: "refused", Received: 100, LastByte: 2100, Status: 400, End: ledger.EndComplete}
	lost := &ledger.Request{RequestID: "lost", Clients: []ledger.Client{{Sent: 500, Ended: 900, Outcome: ledger.OutcomeConnection, Error: "refused", Gaps: []uint32{1, 2, math.MaxInt32}}}}
	if _, err := s.Seal(ctx, &store.Period{Requests: []*ledger.Request{refused, lost}, Gaps: []ledger.Gap{{Producer: "x", Why: "y", At: 7}}}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*ledger.Request{refused, lost} {
		got, err := s.Load(ctx, Ref(t, s, r))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, got.Request); diff != "" {
			t.Errorf("-live +sealed:\n%s", diff)
		}
	}
	page, err := s.List(ctx, store.Filter{})
	if err != nil || len(page.Rows) != 1 || page.Rows[0].Row.RequestID != "refused" || page.Rows[0].Row.E2E != 2000 {
		t.Errorf("%+v, %v", page, err)
	}
}

func retention(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	b := Random(t, 2, 400)
	e := b.Engines[0]
	_, sealed := SealAll(t, s, b, 200, 400)
	split := e.Row(200).End
	policy := store.Policy{Detail: time.Hour, Requests: 24 * time.Hour}
	if r, err := s.Retain(ctx, policy, time.Unix(0, split)); err != nil || r != (store.Retained{}) {
		t.Fatalf("nothing is old: %+v, %v", r, err)
	}
	r, err := s.Retain(ctx, policy, time.Unix(0, split).Add(time.Hour+1))
	if err != nil || r.Details != 1 || r.Periods != 0 || r.Bytes == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	check := func(s store.Store) {
		t.Helper()
		early, late := sealed[0], sealed[len(sealed)-1]
		if _, err := s.Load(ctx, Ref(t, s, early)); !errors.Is(err, store.ErrExpired) {
			t.Errorf("load without detail: %v", err)
		}
		if _, err := s.Load(ctx, Ref(t, s, late)); err != nil {
			t.Errorf("load with detail: %v", err)
		}
		if _, err := s.Slice(ctx, e.ID, 10, 20); !errors.Is(err, store.ErrExpired) {
			t.Errorf("slice without detail: %v", err)
		}
		page, err := s.List(ctx, store.Filter{Limit: 1000})
		if err != nil || len(page.Rows) != len(sealed) {
			t.Errorf("%d of %d listed: %v", len(page.Rows), len(sealed), err)
		}
		if ps, err := s.Verify(ctx); err != nil || len(ps) != 2 || ps[0].Damaged+ps[1].Damaged != "" || ps[0].Detail || !ps[1].Detail {
			t.Errorf("%+v, %v", ps, err)
		}
	}
	check(s)
	s.Close()
	s = must(t, open, dir)
	check(s)
	r, err = s.Retain(ctx, policy, time.Unix(0, split).Add(25*time.Hour))
	if err != nil || r.Periods != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if refs, err := s.Find(ctx, sealed[0].Name(), 1); err != nil || len(refs) != 0 {
		t.Errorf("%+v, %v", refs, err)
	}
	if ps, err := s.Periods(ctx); err != nil || len(ps) != 0 {
		t.Errorf("%+v, %v", ps, err)
	}
}

func locking(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	if _, err := open(t, dir); !errors.Is(err, store.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := s.Periods(ctx); !errors.Is(err, store.ErrClosed) {
		t.Errorf("periods after close: %v", err)
	}
	must(t, open, dir)
}

func export(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	b := Random(t, 2, 200)
	SealAll(t, s, b, 100, 200)
	dir := filepath.Join(t.TempDir(), "export")
	if err := s.Export(ctx, dir); err != nil {
		t.Fatal(err)
	}
	for _, table := range store.Tables {
		files, err := filepath.Glob(filepath.Join(dir, table.Name, "*.parquet"))
		if want := map[bool]int{false: 2, true: 0}[table.Private]; err != nil || len(files) != want {
			t.Errorf("%s: %v, %v", table.Name, files, err)
		}
	}
	if err := s.Export(ctx, dir); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("into a directory that is there: %v", err)
	}
}

// collector is a sink that writes down what it is given.
type collector struct {
	names []string
	got   []string
}

func (c *collector) Source(s wire.Source) (uint16, error) {
	c.names = append(c.names, s.Name)
	return uint16(len(c.names) - 1), nil
}

func (c *collector) name(id uint16) string {
	if int(id) < len(c.names) {
		return c.names[id]
	}
	return "log"
}

func (c *collector) Frame(id uint16, f wire.Frame) error {
	c.got = append(c.got, fmt.Sprintf("%s %d", c.name(id), f.Sequence))
	return nil
}

func (c *collector) Gap(id uint16, g wire.Gap) error {
	c.got = append(c.got, fmt.Sprintf("%s gap %d-%d %s", c.name(id), g.From, g.To, g.Why))
	return nil
}

// Notice is a numbered frame of a source.
func Notice(source string, n uint64) store.Record {
	b, err := wire.Append(nil, n, &wire.Notice{Time: int64(n), Code: 3, Text: fmt.Sprintf("%s %d", source, n)})
	if err != nil {
		panic(err)
	}
	f, _, err := wire.ParseFrame(b)
	if err != nil {
		panic(err)
	}
	return store.Record{Source: wire.Source{Name: source, Hello: json.RawMessage(`{"protocol": [1, 0]}`)}, Frame: f}
}

// Replayed is what a log tells from a position on, as lines.
func Replayed(t testing.TB, s store.Store, from store.Position) ([]string, store.Position) {
	t.Helper()
	c := &collector{}
	at, err := s.Replay(ctx, from, c)
	if err != nil {
		t.Fatal(err)
	}
	return c.got, at
}

func appendReplayForget(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	first, err := s.Append(ctx, []store.Record{Notice("a", 1), Notice("b", 1), Notice("a", 2)})
	if err != nil {
		t.Fatal(err)
	}
	gap := store.Record{Source: Notice("a", 1).Source, Gap: &wire.Gap{From: 3, To: 4, Count: 2, Why: "for a reason"}}
	second, err := s.Append(ctx, []store.Record{gap, Notice("a", 5)})
	if err != nil || !first.Before(second) {
		t.Fatalf("%v, %v, %v", first, second, err)
	}
	all := []string{"a 1", "b 1", "a 2", "a gap 3-4 for a reason", "a 5"}
	check := func(from store.Position, want []string) {
		t.Helper()
		got, at := Replayed(t, s, from)
		if diff := cmp.Diff(want, got); diff != "" || at != second {
			t.Errorf("from %v to %v (want %v), -want +got:\n%s", from, at, second, diff)
		}
	}
	check(store.Position{}, all)
	check(first, all[3:])
	check(second, nil)
	s.Close()
	s = must(t, open, dir)
	check(store.Position{}, all)
	check(first, all[3:])
	if n := s.Kept(gap.Source); n != 5 {
		t.Errorf("kept %d", n)
	}
	third, err := s.Append(ctx, []store.Record{Notice("b", 2)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(ctx, third); err != nil {
		t.Fatal(err)
	}
	got, _ := Replayed(t, s, store.Position{})
	if got[len(got)-1] != "b 2" {
		t.Errorf("after forgetting: %v", got)
	}
	s.Close()
	s = must(t, open, dir)
	if n := s.Kept(gap.Source); n != 5 {
		t.Errorf("kept %d after forgetting", n)
	}
}

func appendTwice(t *testing.T, open Open) {
	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	for range 3 {
		for n := uint64(1); n < 4; n++ {
			if _, err := s.Append(ctx, []store.Record{Notice("a", n), Notice("a", n+1)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	got, _ := Replayed(t, s, store.Position{})
	if diff := cmp.Diff([]string{"a 1", "a 2", "a 3", "a 4"}, got); diff != "" {
		t.Error(diff)
	}
	other := Notice("a", 1) // a source of the same name that says another hello is another source
	other.Source.Hello = json.RawMessage(`{"protocol":[1,1]}`)
	if _, err := s.Append(ctx, []store.Record{other}); err != nil {
		t.Fatal(err)
	}
	if got, _ := Replayed(t, s, store.Position{}); len(got) != 5 {
		t.Errorf("%v", got)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.Append(cancelled, []store.Record{Notice("a", 9)}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func replayAssembles(t *testing.T, open Open) {
	dir := filepath.Join(t.TempDir(), "data")
	s := must(t, open, dir)
	run, _, err := scenario.Random(7, 300, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range Frames(t, 7, 300, 50) {
		if _, err := s.Append(ctx, batch); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	a := ingest.New()
	if _, err := must(t, open, dir).Replay(ctx, store.Position{}, a); err != nil {
		t.Fatal(err)
	}
	want, err := run.Book()
	if err != nil {
		t.Fatal(err)
	}
	e, g := want.Engines[0], a.Book().Engines[0]
	if diff := cmp.Diff(presence(e, 1, e.Completed()), presence(g, 1, g.Completed())); diff != "" {
		t.Errorf("-straight +through the log:\n%s", diff)
	}
}

// Frames are the engine's frames of a random run, in batches of at most n records.
func Frames(t testing.TB, seed uint64, iterations, n int) [][]store.Record {
	t.Helper()
	run, _, err := scenario.Random(seed, iterations, scenario.PlainCost)
	if err != nil {
		t.Fatal(err)
	}
	source := wire.Source{Name: run.Engine.Name, Hello: run.Engine.HelloJSON()}
	var all []store.Record
	for _, b := range run.Engine.Frames {
		f, _, err := wire.ParseFrame(b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, store.Record{Source: source, Frame: f})
	}
	return slices.Collect(slices.Chunk(all, n))
}
