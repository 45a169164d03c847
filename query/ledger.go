// Package query is the library of named questions: who is this request, which are the slowest, who sat in this iteration. It
// is the only reader of what is kept; judgement (package diagnose) asks here and nowhere else.
package query

import (
	"fmt"
	"strings"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/ledger"
)

// Ledger answers questions about one book. It is not safe for concurrent use: models and accounts are made on first use and kept.
type Ledger struct {
	Book     *ledger.Book
	ids      index
	models   map[*ledger.Engine]*fitted
	odd      map[*ledger.Engine][]account.Odd
	accounts map[*ledger.Request]made
}

// made is an account and the model that it was made with.
type made struct {
	*account.Account
	model *account.Model
}

// fitted is a model and what it was fitted on.
type fitted struct {
	model *account.Model // nil: there were too few iterations
	rows  int
}

// Open makes a book answerable.
func Open(b *ledger.Book) *Ledger {
	l := &Ledger{models: map[*ledger.Engine]*fitted{}}
	l.Refresh(b)
	return l
}

// Refresh goes on with a later state of the same live book. Models are kept until an engine has a quarter more iterations than
// they were fitted on: an account must not change under the reader's eyes for every iteration.
func (l *Ledger) Refresh(b *ledger.Book) {
	l.Book = b
	l.odd = map[*ledger.Engine][]account.Odd{}
	l.ids.refresh(b.Requests)
	old := l.accounts
	l.accounts = map[*ledger.Request]made{}
	if len(old) > mostKept {
		return
	}
	for _, r := range b.Requests {
		if a, ok := old[r]; ok && a.State == account.Finished && a.To < b.Now-settled {
			l.accounts[r] = a
		}
	}
}

// settled is how long after its end, in ns, an account is made anew when more is known: sources do not arrive in step. mostKept bounds how many
// are kept, at about a kilobyte each.
const (
	settled  = 10e9
	mostKept = 200_000
)

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
	More    int // further ones that are not listed
}

func (e *Ambiguous) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q may mean any of %d requests; give more of the id:", e.ID, len(e.Matches)+e.More)
	shown := e.Matches[:min(len(e.Matches), 10)]
	for _, r := range shown {
		fmt.Fprintf(&b, "\n  %s", strings.Join(r.IDs(), "  "))
	}
	if n := len(e.Matches) + e.More - len(shown); n > 0 {
		fmt.Fprintf(&b, "\n  … and %d more", n)
	}
	return b.String()
}

// Find returns the request that has id as one of its ids, or as the beginning of one if that is true of no other request.
// It fails with *[NotFound] or *[Ambiguous].
func (l *Ledger) Find(id string) (*ledger.Request, error) {
	exact, prefix := l.ids.find(id)
	switch {
	case len(exact) == 1:
		return exact[0], nil
	case len(exact) > 1:
		return nil, &Ambiguous{ID: id, Matches: exact}
	case len(prefix) == 1:
		return prefix[0], nil
	case len(prefix) > 1:
		return nil, &Ambiguous{ID: id, Matches: prefix}
	}
	return nil, &NotFound{id, len(l.Book.Requests)}
}

// Model returns the iteration-time model of e, nil if there were too few iterations to fit one.
func (l *Ledger) Model(e *ledger.Engine) *account.Model {
	f := l.models[e]
	if f == nil || 4*len(e.Iterations) > 5*f.rows {
		f = &fitted{rows: len(e.Iterations)}
		if m, ok := account.Fit(e); ok {
			f.model = &m
		}
		l.models[e] = f
	}
	return f.model
}

// UseModel gives an engine the model that its accounts were made with: of a slice of an engine none could be fitted. m may be nil.
func (l *Ledger) UseModel(e *ledger.Engine, m *account.Model) {
	l.models[e] = &fitted{model: m, rows: len(e.Iterations)}
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
	var m *account.Model
	if e := EngineOf(r); e != nil {
		m = l.Model(e)
	}
	a, ok := l.accounts[r]
	if !ok || a.model != m {
		a = made{account.Of(r, m, l.Book.Now), m}
		l.accounts[r] = a
	}
	return a.Account
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

// SetNow moves the moment up to which what has not ended is told. Accounts of what has ended do not change by it.
func (l *Ledger) SetNow(unixNS int64) {
	if unixNS <= l.Book.Now {
		return
	}
	l.Book.Now = unixNS
	for r, a := range l.accounts {
		if a.State != account.Finished {
			delete(l.accounts, r)
		}
	}
}
