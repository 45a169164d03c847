package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/whylate/whylate/account"
	"github.com/whylate/whylate/adapter/genai"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/store"
)

// live is what the spans in memory tell, mapped again when others have come, but never more than a sixth of the time.
type live struct {
	mu      sync.Mutex
	calls   []*genai.Call
	shifts  []genai.Shift // between clocks, as they and the sealed ones before them tell
	changed uint64
	until   time.Time
	mapped  bool
}

// live are the calls of the spans that are not sealed yet.
func (s *Server) live() []*genai.Call {
	calls, _ := s.liveView()
	return calls
}

// liveView also says which clocks are known to be apart.
func (s *Server) liveView() ([]*genai.Call, []genai.Shift) {
	l, t := &s.liveCalls, s.spans.traces
	l.mu.Lock()
	defer l.mu.Unlock()
	t.mu.Lock()
	changed := t.changed
	t.mu.Unlock()
	began := s.set.Now()
	if l.mapped && (changed == l.changed || began.Before(l.until)) {
		return l.calls, l.shifts
	}
	spans, clk := t.all(nil)
	v := genai.CallsAfter(spans, clk)
	l.calls, l.shifts, l.changed, l.mapped = v.Calls, v.Shifts, changed, true
	took := s.set.Now().Sub(began)
	l.until = began.Add(6 * took)
	return l.calls, l.shifts
}

// callIDs are the ids by which a call may be a request of the ledger: its own, what engines make of them, and its trace.
func callIDs(c *genai.Call) []string {
	ids := []string{c.RequestID, c.ResponseID, c.Trace.String(), genai.PlainID(c.RequestID)}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// known reports whether the hot period has a request with one of the ids, as a whole id.
func (h *hot) known(ids []string) bool {
	return slices.ContainsFunc(ids, func(id string) bool {
		r, err := h.l.Find(id)
		return err == nil && slices.Contains(r.IDs(), id)
	})
}

// checkSealed is up to how many calls it is looked whether their requests are sealed already: each look asks every period.
const checkSealed = 2000

// standings says of each call whether the ledger has its request.
func (s *Server) standings(ctx context.Context, calls []*genai.Call) (views map[*genai.Call]bool, err error) {
	views = map[*genai.Call]bool{}
	unlock := s.hot.lock()
	if len(s.hot.l.Book.Requests) > 0 {
		for _, c := range calls {
			views[c] = s.hot.known(callIDs(c))
		}
	}
	unlock()
	periods, err := s.store.Periods(ctx)
	if err != nil {
		return nil, err
	}
	if len(calls) > checkSealed || !slices.ContainsFunc(periods, func(p store.PeriodInfo) bool { return p.Rows["calls"] < p.Requests }) {
		return views, nil
	}
	for _, c := range calls {
		for _, id := range callIDs(c) {
			if views[c] {
				break
			}
			refs, err := s.store.Find(ctx, id, 10)
			if err != nil {
				return nil, err
			}
			views[c] = slices.ContainsFunc(refs, func(r store.RequestRef) bool { return r.Exact && r.Level != 1 })
		}
	}
	return views, nil
}

// callRows are the calls in memory as rows of a list, as far as they match and are in no other.
func (s *Server) callRows(ctx context.Context, q api.RequestsQuery, sealed []store.Listed) (rows []api.RequestRow, err error) {
	if q.Class != "" || q.Tenant != "" || q.Route != "" { // which spans do not tell
		return nil, nil
	}
	calls := s.live()
	if len(calls) == 0 {
		return nil, nil
	}
	type key struct {
		trace string
		from  int64
	}
	there := map[key]bool{}
	for i := range sealed {
		there[key{sealed[i].Row.TraceID, sealed[i].Row.From}] = true
	}
	views, err := s.standings(ctx, calls)
	if err != nil {
		return nil, err
	}
	f := filterOf(q, 0)
	for _, c := range calls {
		r := store.RowOfCall(store.Call{Call: c})
		if views[c] || there[key{r.TraceID, r.From}] || r.From < f.From || f.To != 0 && r.From >= f.To || f.Over > 0 && r.E2E <= f.Over || f.At != 0 && (r.From > f.At || r.From+r.E2E < f.At) {
			continue
		}
		rows = append(rows, sealedRow(&store.Listed{Ref: store.RequestRef{Name: callName(c)}, Row: r}, q.Sort))
	}
	return rows, nil
}

func callName(c *genai.Call) string {
	if ids := callIDs(c); len(ids) > 0 {
		return ids[0]
	}
	return c.Trace.String()
}

// callStatement says of how many requests the calls of a list speak; nil if there are none.
func callStatement(rows []api.RequestRow) *api.CallStatement {
	var weights []float64
	var sum int64
	for _, r := range rows {
		if r.Level == 1 {
			weights = append(weights, r.Weight)
			sum += r.E2E
		}
	}
	d := genai.DenominatorOf(weights)
	if d.Of == 0 {
		return nil
	}
	out := &api.CallStatement{Calls: d.Of, Known: d.Known, Denominator: d.String(), E2E: sum / int64(d.Of)}
	if d.Known {
		out.Estimate, out.Error = d.Total, d.Error
	}
	return out
}

// callsWith are the calls that have one of the ids as a whole, in memory and sealed, the newest first.
func (s *Server) callsWith(ctx context.Context, ids []string) (out []diagnose.Call, rows []store.RequestRow, err error) {
	type key struct {
		trace string
		from  int64
	}
	there := map[key]bool{}
	add := func(c *genai.Call, r store.RequestRow, amendment bool) {
		k := key{r.TraceID, r.From}
		if there[k] && !amendment {
			return
		}
		there[k] = true
		d := diagnose.CallOf(c)
		d.Amendment = amendment
		out, rows = append(out, d), append(rows, r)
	}
	looked := map[store.RequestRef]bool{}
	for _, id := range ids {
		refs, err := s.store.Find(ctx, id, 20)
		if err != nil {
			return nil, nil, storeError(err)
		}
		for _, ref := range refs {
			if ref.Level != 1 || !ref.Exact || looked[ref] {
				continue
			}
			looked[ref] = true
			slice, err := s.store.Load(ctx, ref)
			if err != nil {
				return nil, nil, storeError(err)
			}
			for _, c := range slice.Calls {
				add(c, slice.Row, false)
			}
		}
	}
	for _, c := range s.live() {
		if slices.ContainsFunc(callIDs(c), func(id string) bool { return slices.Contains(ids, id) }) {
			add(c, store.RowOfCall(store.Call{Call: c}), false)
		}
	}
	return out, rows, nil
}

// besides puts the calls that share an id with an explained request beside it.
func (s *Server) besides(ctx context.Context, x *diagnose.Explanation) error {
	calls, _, err := s.callsWith(ctx, x.Request.IDs)
	if err == nil && len(calls) > 0 {
		x.Beside(calls)
	}
	return err
}

// explainCalls explains what spans alone tell of an id, or of the one id that begins so; nil if they tell nothing.
func (s *Server) explainCalls(ctx context.Context, id string) (*diagnose.Explanation, error) {
	calls, rows, err := s.callsWith(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 {
		whole, err := s.wholeID(ctx, id)
		if err != nil || whole == "" {
			return nil, err
		}
		if calls, rows, err = s.callsWith(ctx, []string{whole}); err != nil || len(calls) == 0 {
			return nil, err
		}
	}
	own := slices.IndexFunc(rows, func(r store.RequestRow) bool { return r.Seen != 0 })
	if own > 0 {
		calls[0], calls[own] = calls[own], calls[0]
		rows[0], rows[own] = rows[own], rows[0]
	}
	for i := range rows[1:] {
		if own >= 0 && rows[i+1].Seen != 0 { // several requests in one trace
			var names []*ledger.Request
			for j := range rows {
				names = append(names, &ledger.Request{RequestID: calls[j].IDs[0]})
			}
			return nil, &query.Ambiguous{ID: id, Matches: names}
		}
		calls[i+1].Amendment = true
	}
	return diagnose.ExplainCalls(callAccount(&rows[0]), callHead(&rows[0], &calls[0]), calls), nil
}

// wholeID is the one id that begins with prefix among calls, "" if there is none.
func (s *Server) wholeID(ctx context.Context, prefix string) (string, error) {
	found := map[string]string{} // by trace
	for _, c := range s.live() {
		for _, id := range callIDs(c) {
			if strings.HasPrefix(id, prefix) {
				found[c.Trace.String()] = id
			}
		}
	}
	refs, err := s.store.Find(ctx, prefix, 11)
	if err != nil {
		return "", storeError(err)
	}
	for _, ref := range refs {
		if ref.Level != 1 {
			return "", nil // the ledger's own
		}
		slice, err := s.store.Load(ctx, ref)
		if err != nil {
			return "", storeError(err)
		}
		found[slice.Row.TraceID] = slice.Row.TraceID
	}
	if len(found) > 1 {
		var names []*ledger.Request
		for _, id := range found {
			names = append(names, &ledger.Request{RequestID: id})
		}
		slices.SortFunc(names, func(a, b *ledger.Request) int { return strings.Compare(a.RequestID, b.RequestID) })
		return "", &query.Ambiguous{ID: prefix, Matches: names}
	}
	for _, id := range found {
		return id, nil
	}
	return "", nil
}

// callAccount is the account of a call: its parts, without splits.
func callAccount(r *store.RequestRow) *account.Account {
	a := &account.Account{From: r.From, To: r.From + r.E2E, State: account.Finished, TTFT: r.TTFT, TTFTEnd: r.TTFTEnds, TPOT: r.TPOT, Output: uint32(r.Output), TailOutput: uint32(r.TailOutput)}
	for i, ns := range store.PartColumns(r) {
		l := account.Line{Part: account.Parts[i], NS: *ns, Seen: *ns != 0 || account.Parts[i] == account.Unexplained}
		if r.E2E > 0 {
			l.Share = float64(*ns) / float64(r.E2E)
		}
		a.Lines = append(a.Lines, l)
	}
	return a
}

func callHead(r *store.RequestRow, c *diagnose.Call) diagnose.Request {
	return diagnose.Request{Name: c.IDs[0], IDs: c.IDs, Status: int(r.Status), End: ledger.End(r.End), Sequences: 1, Prompt: uint32(r.Prompt), Cached: uint32(r.Cached), Output: uint32(r.Output), Received: r.From}
}

// isNotFound reports an answer that nobody has such a request.
func isNotFound(err error) bool {
	var missing *query.NotFound
	return errors.As(err, &missing)
}
