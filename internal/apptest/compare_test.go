package apptest

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
)

// compared is how much of a server's answers was held against those of a file.
type compared struct{ requests, finished, explained, iterations, details int }

// sameAnswers holds what a server says of an engine against what the same frames say that were read as a file: each request and iteration
// once, with the same figures. What a model fitted says is left out: a period is sealed under the model of its day. Where detail is
// gone by its retention, rich is false, and only the list is compared.
func sameAnswers(t testing.TB, file, srv api.Service, f *feed, rich bool) (n compared) {
	t.Helper()
	ctx := context.Background()
	want, got := requestsOf(t, file, f), requestsOf(t, srv, f)
	if len(want) != len(got) {
		t.Errorf("%s: %d requests, the file has %d", f.source.Name, len(got), len(want))
	}
	k := 0
	for name, w := range want {
		g, there := got[name]
		if !there {
			t.Errorf("request %s is lost", name)
			continue
		}
		n.requests++
		if w.State != account.Finished { // its time goes on
			w.E2E, w.TPOT, w.Largest, w.Share = g.E2E, g.TPOT, g.Largest, g.Share
		} else {
			n.finished++
		}
		w.Share, g.Share = 0, 0 // a quotient: it is compared as the parts, below
		w.IDs, g.IDs = nil, nil // a sealed row has those of the request, and not those of its sequences
		if d := cmp.Diff(w, g); d != "" {
			t.Errorf("request %s (-file +server):\n%s", name, d)
		}
		if k++; w.State == account.Finished && rich && k%3 == 0 {
			sameAccount(t, file, srv, name)
			n.explained++
		}
	}
	if !rich {
		return n
	}
	its := iterationsOf(t, file, f)
	back := iterationsOf(t, srv, f)
	if len(its) != len(back) {
		t.Errorf("%s: %d iterations, the file has %d", f.source.Name, len(back), len(its))
	}
	for i := range min(len(its), len(back)) {
		if d := cmp.Diff(its[i], back[i]); d != "" {
			t.Errorf("%s (-file +server):\n%s", f.source.Name, d)
		}
		n.iterations++
		if i%41 != 0 {
			continue
		}
		var members [2][]api.MemberRow
		for j, s := range []api.Service{file, srv} {
			d, err := s.Iteration(ctx, api.IterationQuery{Engine: f.engine, Number: its[i].Number})
			if err != nil {
				t.Fatal(err)
			}
			members[j] = d.Members
			for m := range members[j] {
				members[j][m].Share, members[j][m].Marginal = 0, 0 // modelled
			}
		}
		if d := cmp.Diff(members[0], members[1]); d != "" {
			t.Errorf("%s, members of iteration %d (-file +server):\n%s", f.source.Name, its[i].Number, d)
		}
		n.details++
	}
	return n
}

// requestsOf lists the requests of one feed by name, and fails where a name comes twice.
func requestsOf(t testing.TB, s api.Service, f *feed) map[string]api.RequestRow {
	t.Helper()
	list, err := s.Requests(context.Background(), api.RequestsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	if list.Matched != len(list.Requests) {
		t.Errorf("%d requests match, %d are listed", list.Matched, len(list.Requests))
	}
	out := map[string]api.RequestRow{}
	for _, r := range list.Requests {
		if !isOf(f, r.Name) {
			continue
		}
		if _, twice := out[r.Name]; twice {
			t.Errorf("request %s is there twice", r.Name)
		}
		out[r.Name] = r
	}
	return out
}

func isOf(f *feed, name string) bool {
	prefix := f.name + "-"
	return len(name) > len(prefix) && name[:len(prefix)] == prefix
}

// sameAccount compares what was measured of one request, and checks that what was modelled adds up to it.
func sameAccount(t testing.TB, file, srv api.Service, name string) {
	t.Helper()
	var said [2]string
	for i, s := range []api.Service{file, srv} {
		x, err := s.Explain(context.Background(), api.ExplainQuery{ID: name})
		if err != nil {
			t.Errorf("explain %s: %v", name, err)
			return
		}
		a := x.Account
		total := int64(0)
		for j := range a.Lines {
			l := &a.Lines[j]
			total += l.NS
			sum := int64(0)
			for _, split := range l.Splits {
				sum += split.NS
			}
			if len(l.Splits) > 0 && sum != l.NS {
				t.Errorf("%s: the splits of %s make %d of %d", name, l.Part, sum, l.NS)
			}
			l.Splits = nil
		}
		if total != a.E2E() {
			t.Errorf("%s: the parts make %d of %d", name, total, a.E2E())
		}
		said[i] = indented(t, struct {
			Request diagnose.Request
			Account *account.Account
		}{x.Request, a})
	}
	if d := cmp.Diff(said[0], said[1]); d != "" {
		t.Errorf("explain %s (-file +server):\n%s", name, d)
	}
}

// iterationsOf lists all iterations of an engine, as somebody does who asks for some at a time, and checks that each comes once.
func iterationsOf(t testing.TB, s api.Service, f *feed) (out []api.IterationRow) {
	t.Helper()
	out = iterationsFrom(t, s, f)
	for i, it := range out {
		if it.Number != uint64(i+1) {
			t.Fatalf("%s: iteration %d where %d is due", f.engine, it.Number, i+1)
		}
	}
	return out
}

// iterationsFrom lists the iterations of an engine from the first that is there.
func iterationsFrom(t testing.TB, s api.Service, f *feed) (out []api.IterationRow) {
	t.Helper()
	for from := uint64(1); ; {
		list, err := s.Iterations(context.Background(), api.IterationsQuery{Engine: f.engine, From: from, Limit: 200})
		if err != nil {
			if len(out) > 0 { // beyond the last
				return out
			}
			t.Fatalf("iterations of %s from %d: %v", f.engine, from, err)
		}
		for _, it := range list.Iterations {
			from = it.Number + 1
			it.Expected = 0
			out = append(out, it)
		}
		if len(list.Iterations) == 0 {
			return out
		}
	}
}

// settle waits until what was acknowledged can be asked about: it is on disk before it is in the answers.
func settle(t testing.TB, srv, file api.Service, feeds ...*feed) {
	t.Helper()
	for _, f := range feeds {
		want := len(requestsOf(t, file, f))
		await(t, "the requests of "+f.source.Name, func() bool { return len(requestsOf(t, srv, f)) >= want })
	}
}

// healthy checks that nothing went wrong inside a server, and that it took no frame twice.
func healthy(t testing.TB, srv api.Service) {
	t.Helper()
	o := overview(t, srv)
	for _, f := range o.Faults {
		t.Errorf("%s failed %d times: %s", f.What, f.Count, f.Last)
	}
	for _, s := range o.Sources {
		if s.Refused > 0 {
			t.Errorf("%s: %d frames were refused", s.Name, s.Refused)
		}
	}
}

// cutTails counts the torn ends of the log that a server has found.
func cutTails(t testing.TB, srv api.Service) (n int) {
	t.Helper()
	for _, g := range gapsOf(t, srv) {
		if strings.Contains(g.Why, "was cut at byte") {
			n++
		}
	}
	return n
}

// overview asks what there is.
func overview(t testing.TB, srv api.Service) *api.Overview {
	t.Helper()
	o, err := srv.Overview(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func gapsOf(t testing.TB, srv api.Service) []ledger.Gap { return overview(t, srv).Gaps }

// framesOf is how many frames of a feed a server has taken up, since it has read its log.
func framesOf(t testing.TB, srv api.Service, f *feed) int {
	t.Helper()
	for _, s := range overview(t, srv).Sources {
		if s.Name == f.source.Name {
			return int(s.Frames)
		}
	}
	return 0
}

// noGaps checks that nothing is missing but torn ends of the log, of which nothing was acknowledged.
func noGaps(t testing.TB, srv api.Service) {
	t.Helper()
	for _, g := range gapsOf(t, srv) {
		if !strings.Contains(g.Why, "was cut at byte") {
			t.Errorf("a gap: %s", g)
		}
	}
}
