package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Selector chooses requests by what they suffered.
type Selector struct {
	By   string        // what to sort by, the worst first: "ttft", "tpot", "e2e", a part's name, or "" for arrival, the newest first
	At   time.Time     // only requests that were there at this moment; zero = all
	Over time.Duration // only requests whose E2E is longer
	From time.Time     // only requests that arrived at or after this; zero = all
	To   time.Time     // only requests that arrived before this; zero = all
	// Only requests of this class, tenant and route; "" = all. A class is as the client named it, or like tenant and route the first
	// digits of a label.
	Class, Tenant, Route string
	Limit                int // at most so many; 0 = all
}

// wants reports whether a request is of the class, tenant and route that are asked for.
func (s *Selector) wants(r *ledger.Request) bool {
	return (s.Class == "" || r.Class == s.Class || r.Labels.Class.Is(s.Class)) && (s.Tenant == "" || r.Labels.Tenant.Is(s.Tenant)) &&
		(s.Route == "" || r.Labels.Route.Is(s.Route))
}

// Keys are what a selector may sort by.
func Keys() []string {
	keys := []string{"ttft", "tpot", "e2e"}
	for _, p := range account.Parts {
		keys = append(keys, string(p))
	}
	return keys
}

// Selection is what a selector chose.
type Selection struct {
	Accounts  []*account.Account // in the selector's order, as far as its limit goes
	Matched   int
	Statement account.Statement // of all that match
}

// Select chooses requests. Those that no server saw have no account and are left out.
func (l *Ledger) Select(s Selector) (Selection, error) {
	key, err := Key(s.By)
	if err != nil {
		return Selection{}, err
	}
	var all []*account.Account
	for _, r := range l.Book.Requests {
		if r.Received == 0 && len(r.Sequences) == 0 || !s.wants(r) {
			continue
		}
		a := l.Account(r)
		if !s.At.IsZero() && (s.At.UnixNano() < a.From || s.At.UnixNano() > a.To) {
			continue
		}
		if !s.From.IsZero() && a.From < s.From.UnixNano() || !s.To.IsZero() && a.From >= s.To.UnixNano() {
			continue
		}
		if time.Duration(a.E2E()) <= s.Over && s.Over > 0 {
			continue
		}
		all = append(all, a)
	}
	return Selection{Accounts: first(all, key, s.Limit), Matched: len(all), Statement: account.StatementOf(all)}, nil
}

// first returns the first limit accounts (0 = all) in the order of a key, the largest first, and of equal ones in the order given; without a
// key in the reverse of the order given.
func first(all []*account.Account, key func(*account.Account) int64, limit int) []*account.Account {
	if limit <= 0 || limit > len(all) {
		limit = len(all)
	}
	if key == nil {
		out := slices.Clone(all[len(all)-limit:])
		slices.Reverse(out)
		return out
	}
	type keyed struct {
		key int64
		at  int
	}
	order := func(a, b keyed) int { return cmp.Or(cmp.Compare(b.key, a.key), cmp.Compare(a.at, b.at)) }
	best := make([]keyed, 0, min(2*limit, len(all))) // twice as many as are wanted at most, so that it is seldom sorted
	for i, a := range all {
		if best = append(best, keyed{key(a), i}); len(best) == cap(best) {
			slices.SortFunc(best, order)
			best = best[:min(limit, len(best))]
		}
	}
	slices.SortFunc(best, order)
	out := make([]*account.Account, 0, limit)
	for _, k := range best[:min(limit, len(best))] {
		out = append(out, all[k.at])
	}
	return out
}

// Key returns what a list is sorted by, in ns, the largest first: see Selector.By. It is nil for arrival.
func Key(by string) (func(*account.Account) int64, error) {
	switch by {
	case "":
		return nil, nil
	case "ttft":
		return func(a *account.Account) int64 {
			if a.TTFT == 0 && a.State != account.Finished {
				return a.E2E() // no token yet: it has waited at least so long
			}
			return a.TTFT
		}, nil
	case "tpot":
		return func(a *account.Account) int64 { return a.TPOT }, nil
	case "e2e":
		return (*account.Account).E2E, nil
	}
	for _, p := range account.Parts {
		if string(p) == by {
			return func(a *account.Account) int64 { return a.Line(p).NS }, nil
		}
	}
	return nil, fmt.Errorf("cannot sort by %q: choose one of %s", by, strings.Join(Keys(), ", "))
}

// ClientOnly returns the requests that a client sent and no server recorded.
func (l *Ledger) ClientOnly() []*ledger.Request {
	var out []*ledger.Request
	for _, r := range l.Book.Requests {
		if r.Received == 0 && len(r.Sequences) == 0 {
			out = append(out, r)
		}
	}
	return out
}
