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

// made is an account, and what it was made of: with the same it would come out the same.
type made struct {
	*account.Account
	model *account.Model
	now   int64 // matters as long as the request has not ended
	facts uint64
}

// fitted is a model and what it was fitted on.
type fitted struct {
	model *account.Model // nil: there were too few iterations
	rows  int
}

// Open makes a book answerable.
func Open(b *ledger.Book) *Ledger {
	l := &Ledger{models: map[*ledger.Engine]*fitted{}, accounts: map[*ledger.Request]made{}}
	l.Refresh(b)
	return l
}

// Refresh goes on with a later state of the same live book. Models are kept until an engine has a quarter more iterations than
// they were fitted on: an account must not change under the reader's eyes for every iteration.
func (l *Ledger) Refresh(b *ledger.Book) {
	l.Book = b
	l.odd = map[*ledger.Engine][]account.Odd{}
	l.ids.refresh(b.Requests)
}

// Forget lets go of requests that the book does not have any more.
func (l *Ledger) Forget(gone []*ledger.Request) {
	for _, r := range gone {
		delete(l.accounts, r)
	}
	l.ids.forget(gone)
}

// ForgetEngine lets go of an engine that the book does not have any more.
func (l *Ledger) ForgetEngine(e *ledger.Engine) { delete(l.models, e) }

// mostKept bounds how many accounts are kept, at about a kilobyte each.
const mostKept = 200_000

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
	facts := factsOf(r)
	if a, ok := l.accounts[r]; ok && a.model == m && a.facts == facts && (a.State == account.Finished || a.now == l.Book.Now) {
		return a.Account
	}
	a := account.Of(r, m, l.Book.Now)
	if _, ok := l.accounts[r]; ok || len(l.accounts) < mostKept { // beyond it those that are kept stay, and the others are made each time
		l.accounts[r] = made{a, m, l.Book.Now, facts}
	}
	return a
}

// factsOf is a sum over what sources have said of a request and its sequences: it changes with any of it.
func factsOf(r *ledger.Request) uint64 {
	var h uint64
	mix := func(vs ...int64) {
		for _, v := range vs {
			h = (h ^ uint64(v)) * 0x9E3779B97F4A7C15
			h ^= h >> 29
		}
	}
	mix(r.Received, r.FirstByte, r.LastByte, r.Disconnect, int64(r.Status), int64(r.End), int64(len(r.Clients)))
	for _, q := range r.Sequences {
		mix(q.Submitted, q.Arrived, q.Queued, q.Finished, q.Answered, q.Delivered, q.FirstToken, q.LastToken, int64(q.Output), int64(q.Leave),
			int64(len(q.Stints)), int64(len(q.Skips)), int64(len(q.Preemptions)))
	}
	return h
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
}
