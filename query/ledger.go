// Package query is the library of named questions: who is this request, which are the slowest, who sat in this iteration. It
// is the only reader of what is kept; judgement (package diagnose) asks here and nowhere else.
package query

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Ledger answers questions about one book. It is not safe for concurrent use: models and accounts are made on first use and kept.
type Ledger struct {
	Book     *ledger.Book
	ids      []idEntry // sorted by id
	models   map[*ledger.Engine]*account.Model
	odd      map[*ledger.Engine][]account.Odd
	accounts map[*ledger.Request]*account.Account
}

type idEntry struct {
	id string
	r  *ledger.Request
}

// Open makes a book answerable.
func Open(b *ledger.Book) *Ledger {
	l := &Ledger{Book: b, models: map[*ledger.Engine]*account.Model{}, odd: map[*ledger.Engine][]account.Odd{}, accounts: map[*ledger.Request]*account.Account{}}
	for _, r := range b.Requests {
		for _, id := range IDs(r) {
			l.ids = append(l.ids, idEntry{id, r})
		}
	}
	slices.SortStableFunc(l.ids, func(a, b idEntry) int { return cmp.Compare(a.id, b.id) })
	return l
}

// IDs returns every id under which a person may know the request, the most telling first, each once.
func IDs(r *ledger.Request) []string {
	ids := []string{r.RequestID, r.ResponseID}
	for _, q := range r.Sequences {
		ids = append(ids, q.External, q.Parent, q.ID)
		if r.ResponseID == "" && strings.HasPrefix(q.External, "cmpl-") && r.RequestID != "" {
			ids = append(ids, "cmpl-"+r.RequestID) // the completion id in the response body
		}
	}
	ids = append(ids, r.TraceID)
	var out []string
	for _, id := range ids {
		if id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Name is the id by which answers call a request: the client's own if there is one.
func Name(r *ledger.Request) string {
	if r == nil {
		return "unknown"
	}
	if ids := IDs(r); len(ids) > 0 {
		return ids[0]
	}
	return "unknown"
}

// NotFound says that no request has an id.
type NotFound struct {
	ID    string
	Count int // requests that were looked through
}

func (e *NotFound) Error() string {
	return fmt.Sprintf("no request has an id that is or begins with %q (looked through %d requests); list them with 'whylate requests'", e.ID, e.Count)
}

// Ambiguous says that an id begins the ids of several requests.
type Ambiguous struct {
	ID      string
	Matches []*ledger.Request
}

func (e *Ambiguous) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q may mean any of %d requests; give more of the id:", e.ID, len(e.Matches))
	for i, r := range e.Matches {
		if i == 10 {
			fmt.Fprintf(&b, "\n  … and %d more", len(e.Matches)-i)
			break
		}
		fmt.Fprintf(&b, "\n  %s", strings.Join(IDs(r), "  "))
	}
	return b.String()
}

// Find returns the request that has id as one of its ids, or as the beginning of one if that is true of no other request.
// It fails with *[NotFound] or *[Ambiguous].
func (l *Ledger) Find(id string) (*ledger.Request, error) {
	from, _ := slices.BinarySearchFunc(l.ids, id, func(e idEntry, id string) int { return cmp.Compare(e.id, id) })
	var exact, prefix []*ledger.Request
	for _, e := range l.ids[from:] {
		if id == "" || !strings.HasPrefix(e.id, id) {
			break
		}
		if e.id == id && !slices.Contains(exact, e.r) {
			exact = append(exact, e.r)
		}
		if !slices.Contains(prefix, e.r) {
			prefix = append(prefix, e.r)
		}
	}
	switch {
	case len(exact) == 1:
		return exact[0], nil
	case len(exact) > 1:
		return nil, &Ambiguous{id, exact}
	case len(prefix) == 1:
		return prefix[0], nil
	case len(prefix) > 1:
		return nil, &Ambiguous{id, prefix}
	}
	return nil, &NotFound{id, len(l.Book.Requests)}
}

// Model returns the iteration-time model of e, nil if there were too few iterations to fit one.
func (l *Ledger) Model(e *ledger.Engine) *account.Model {
	m, ok := l.models[e]
	if !ok {
		if fitted, good := account.Fit(e); good {
			m = &fitted
		}
		l.models[e] = m
	}
	return m
}

// Odd returns the odd iterations of e, the largest excess first.
func (l *Ledger) Odd(e *ledger.Engine) []account.Odd {
	o, ok := l.odd[e]
	if !ok {
		o = account.FindOdd(e, l.Model(e))
		l.odd[e] = o
	}
	return o
}

// Account returns the account of r up to the newest time of the book.
func (l *Ledger) Account(r *ledger.Request) *account.Account {
	a := l.accounts[r]
	if a == nil {
		var m *account.Model
		if e := EngineOf(r); e != nil {
			m = l.Model(e)
		}
		a = account.Of(r, m, l.Book.Now)
		l.accounts[r] = a
	}
	return a
}

// EngineOf is the engine that served the request, nil if none took it up.
func EngineOf(r *ledger.Request) *ledger.Engine {
	for _, q := range r.Sequences {
		if q.Engine != nil {
			return q.Engine
		}
	}
	return nil
}
