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
	By    string        // what to sort by, the worst first: "ttft", "tpot", "e2e", a part's name, or "" for arrival, the newest first
	At    time.Time     // only requests that were there at this moment; zero = all
	Over  time.Duration // only requests whose E2E is longer
	From  time.Time     // only requests that arrived at or after this; zero = all
	To    time.Time     // only requests that arrived before this; zero = all
	Class string        // only requests of this class, as their client named it
	Limit int           // at most so many; 0 = all
}

// Keys are what a selector may sort by.
func Keys() []string {
	keys := []string{"ttft", "tpot", "e2e"}
	for _, p := range account.Parts {
		keys = append(keys, string(p))
	}
	return keys
}

// Select returns the accounts of the requests that match, in the selector's order. Requests that no server saw have no
// account and are left out.
func (l *Ledger) Select(s Selector) ([]*account.Account, error) {
	key, err := Key(s.By)
	if err != nil {
		return nil, err
	}
	var out []*account.Account
	for _, r := range l.Book.Requests {
		if r.Received == 0 && len(r.Sequences) == 0 || s.Class != "" && r.Class != s.Class {
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
		out = append(out, a)
	}
	if key == nil {
		slices.Reverse(out) // the newest first
	} else {
		slices.SortStableFunc(out, func(a, b *account.Account) int { return cmp.Compare(key(b), key(a)) })
	}
	if s.Limit > 0 && len(out) > s.Limit {
		out = out[:s.Limit]
	}
	return out, nil
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
