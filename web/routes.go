package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/diagnose"
	"github.com/whylate/whylate/query"
)

// A param's place.
const (
	inQuery  = "query"
	inPath   = "path"
	inHeader = "header"
)

// param is one argument of a route. Kind is how it is written: text, time, duration or number.
type param struct {
	name, in, kind, about, example string
}

// route is one thing that can be asked. The table below is the only list of them: the server is built from it, and openapi.json is
// held against it.
type route struct {
	method, path string
	name         string // operationId
	about        string
	role         Role
	params       []param
	answer       any // a value of the answer's type
	media        string
	ask          func(context.Context, api.Service, *arguments) (any, error) // answers with JSON
	serve        func(*Handler, http.ResponseWriter, *http.Request, *arguments) error
}

const (
	jsonType = "application/json"
	sseType  = "text/event-stream"
	base     = "/api/v1"
)

var (
	selection = []param{
		{"at", inQuery, "time", "Only requests that were there at this moment.", "2026-11-29T14:05:00Z"},
		{"over", inQuery, "duration", "Only requests whose E2E is longer.", "2s"},
		{"from", inQuery, "time", "Only requests that arrived at or after this moment.", "2026-11-29T14:00:00Z"},
		{"to", inQuery, "time", "Only requests that arrived before this moment.", "2026-11-29T15:00:00Z"},
		{"class", inQuery, "text", "Only requests of this class: as their client named it, or 8 to 16 digits that its label (a keyed hash) begins with.", "chat"},
		{"tenant", inQuery, "text", "Only requests of this tenant: 8 to 16 digits that its label (a keyed hash) begins with.", "5f0c1a2b"},
		{"route", inQuery, "text", "Only requests of this route: 8 to 16 digits that its label (a keyed hash) begins with.", "5f0c1a2b"},
	}
	limited = param{"limit", inQuery, "number", "At most so many rows, 1 to 10000; 100 if not given.", "20"}
	engine  = param{"engine", inQuery, "text", "A beginning of the engine's id or incarnation. Needed where there are several engines.", "chat/0@5f0c"}
)

// sortKeys names what a request may be judged by.
func sortKeys() string { return strings.Join(query.Keys(), ", ") }

var routes = []route{
	{method: "GET", path: "/requests", name: "listRequests", role: Viewer, answer: &api.RequestList{},
		about: "Lists requests with the largest part of each one's time, and where the time of all that match went.",
		params: append([]param{
			{"sort", inQuery, "text", "The worst first, by one of: " + sortKeys() + ". Not given: in order of arrival.", "ttft"}, limited,
			{"page", inQuery, "text", "The next_page of the list before.", "100"}}, selection...),
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			q := requestsQuery(a, "sort")
			q.Limit, q.Page = a.limit(), a.text("page")
			return answer(ctx, a, q, s.Requests)
		}},
	{method: "GET", path: "/requests/{id}", name: "explainRequest", role: Viewer, answer: &diagnose.Explanation{},
		about:  "Explains one request: the account of its time, findings with who is responsible, and what the answer rests on. Up to now, if it has not ended.",
		params: []param{{"id", inPath, "text", "Any id the request has: X-Request-Id, the response's id, the engine's own, a trace id; or a beginning of one that is unique.", "cli-7"}},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, api.ExplainQuery{ID: a.text("id")}, s.Explain)
		}},
	{method: "GET", path: "/explain", name: "explainWorst", role: Viewer, answer: &diagnose.Explanation{},
		about: "Explains the worst of the requests that match.",
		params: append([]param{{"slowest", inQuery, "text", "Worst in one of: " + sortKeys() + "; e2e if not given.", "ttft"},
			{"id", inQuery, "text", "This request instead: for an id that cannot stand in a path, such as a slash.", "cli-7"}}, selection...),
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			if id := a.text("id"); id != "" {
				if len(a.query) > 1 {
					a.wrong("id", id, "an id names the request; give nothing else beside it")
				}
				return answer(ctx, a, api.ExplainQuery{ID: id}, s.Explain)
			}
			return answer(ctx, a, api.ExplainQuery{RequestsQuery: requestsQuery(a, "slowest")}, s.Explain)
		}},
	{method: "GET", path: "/requests/{id}/spans", name: "spansOfRequest", role: Viewer, answer: &api.Spans{},
		about: "Gives a request that is over as OpenTelemetry spans: an ExportTraceServiceRequest in protobuf, in base64. Its ids are the same whenever it is asked for.",
		params: []param{{"id", inPath, "text", "Any id the request has, or a beginning of one that is unique.", "cli-7"},
			{"ids", inQuery, "text", "'no' leaves out ids, and sentences that may hold some.", "no"}},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			spanner, ok := s.(api.Spanner)
			if !ok {
				return nil, &api.Unsupported{What: "this server gives no spans", Remedy: "ask one that holds the records ('whylate serve')"}
			}
			if ids := a.text("ids"); ids != "" && ids != "no" && ids != "yes" {
				a.wrong("ids", ids, "say yes or no")
			}
			return answer(ctx, a, api.SpansQuery{ID: a.text("id"), IDs: a.text("ids") != "no"}, spanner.Spans)
		}},
	{method: "GET", path: "/iterations", name: "listIterations", role: Viewer, answer: &api.IterationList{},
		about: "Lists iterations of one engine, the first first.",
		params: []param{engine,
			{"first", inQuery, "number", "From this iteration on.", "100"},
			{"last", inQuery, "number", "Up to this iteration.", "140"},
			{"request", inQuery, "text", "Only those in the life of this request (any of its ids).", "cli-7"}, limited},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, api.IterationsQuery{Engine: a.text("engine"), From: a.number("first"), To: a.number("last"), Request: a.text("request"), Limit: a.limit()}, s.Iterations)
		}},
	{method: "GET", path: "/iterations/{number}", name: "showIteration", role: Viewer, answer: &api.IterationDetail{},
		about:  "Shows one iteration: who was in it, what each cost, what was new, who waited for it and why.",
		params: []param{{"number", inPath, "number", "The iteration's number, from 1.", "3"}, engine},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, api.IterationQuery{Engine: a.text("engine"), Number: a.number("number")}, s.Iteration)
		}},
	{method: "GET", path: "/odd", name: "listOdd", role: Viewer, answer: &api.OddList{},
		about: "Lists the iterations of all engines that took far longer than their work explains, the largest excess first.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, nothing{}, bare(s.Odd))
		}},
	{method: "GET", path: "/engines", name: "listEngines", role: Viewer, answer: &api.EngineList{},
		about: "Says what each engine is doing now: working, idle, stuck or dead; its batch, its rates, and who has waited longest and why.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, nothing{}, bare(s.Engines))
		}},
	{method: "GET", path: "/devices", name: "listDevices", role: Viewer, answer: &api.DeviceList{},
		about: "Says what each GPU that is sampled does: its newest readings with their age and over which time each was measured, what holds its clocks down, errors of its driver with what they mean, and which engine's processes compute on it. " +
			"No claim about a GPU is finer than its interval.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, nothing{}, bare(s.Devices))
		}},
	{method: "GET", path: "/overview", name: "overview", role: Viewer, answer: &api.Overview{},
		about: "Says what there is: the span of time, engines with their settings, sources, gaps.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, nothing{}, bare(s.Overview))
		}},
	{method: "GET", path: "/gaps", name: "listGaps", role: Viewer, answer: &api.GapList{},
		about:  "Lists what is known to be missing: who, how many, when, why, and what to do.",
		params: []param{limited},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			limit := a.limit()
			return answer(ctx, a, nothing{}, bare(func(ctx context.Context) (*api.GapList, error) {
				o, err := s.Overview(ctx)
				if err != nil {
					return nil, err
				}
				return &api.GapList{Matched: len(o.Gaps), Gaps: o.Gaps[:min(limit, len(o.Gaps))]}, nil
			}))
		}},
	{method: "GET", path: "/sources", name: "listSources", role: Viewer, answer: &api.SourceList{},
		about: "Lists the rings, streams and files that answers rest on, with what was lost and refused of each.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, nothing{}, bare(func(ctx context.Context) (*api.SourceList, error) {
				o, err := s.Overview(ctx)
				if err != nil {
					return nil, err
				}
				return &api.SourceList{Sources: o.Sources}, nil
			}))
		}},
	{method: "GET", path: "/changes", name: "listChanges", role: Viewer, answer: &api.ChangeList{},
		about: "Lists what changed about the engines, the newest first: restarts, and beside each what differs from the incarnation before it (version, probe, model, settings, ranks); engines whose process is gone. Kinds that recorded does not name are not recorded here.",
		params: []param{{"from", inQuery, "time", "Only changes at or after this moment.", "2026-11-29T14:00:00Z"},
			{"to", inQuery, "time", "Only changes before this moment.", "2026-11-29T15:00:00Z"}, limited},
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			return answer(ctx, a, api.ChangesQuery{From: a.moment("from"), To: a.moment("to"), Limit: a.limit()}, s.Changes)
		}},
	{method: "POST", path: "/changes", name: "tellChange", role: Operator, answer: &api.Change{},
		about: "Keeps a change that no engine tells of itself: a deployment, a flag, weights, a prompt template. The body is the change as JSON; kind and subject are needed, at_unix_ns 0 or none is now. " +
			"One whose id is known is not kept twice, so it may be told again. It answers with the change as it is kept, when it is durable.",
		serve: (*Handler).tellChange},
	{method: "GET", path: "/events", name: "watchEvents", role: Viewer, answer: &api.Event{}, media: sseType,
		about: "Streams what happens (server-sent events): id is the event's id, event its kind, data one JSON object. Comments keep a quiet stream alive. " +
			"Who reads too slowly misses events and gets one of the kind 'lost' that says how many.",
		params: []param{{"since", inQuery, "text", "Begin after the event with this id; Last-Event-ID does the same. Not given: what happens from now on.", "1c9f:42"},
			{"Last-Event-ID", inHeader, "text", "As since; browsers send it when they reconnect.", "1c9f:42"}},
		serve: (*Handler).events},
	{method: "POST", path: "/import", name: "importCapture", role: Operator, answer: &api.ImportResult{},
		about:  "Takes in the capture file (.wlc), file of OTLP traces or zip of a run bundle that is the body. What is there already changes nothing, so an import may be repeated. It answers when what it took is kept; of a bundle it says what became of captures, scrapes, logs and changes, and which files were not taken, and why.",
		params: []param{{"name", inQuery, "text", "What the file is called.", "incident.wlc"}},
		serve:  (*Handler).importCapture},
	{method: "GET", path: "/targets", name: "listTargets", role: Viewer, answer: &api.TargetList{},
		about: "Lists the addresses whose metrics pages the server reads: how the last reading of each went, what its page held that had to be left out, and what to do.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			scraper, err := scraper(s)
			if err != nil {
				return nil, err
			}
			return answer(ctx, a, nothing{}, bare(scraper.Targets))
		}},
	{method: "GET", path: "/signals", name: "listSignals", role: Viewer, answer: &api.SignalList{},
		about: "Lists what arrives: registered signals with native names, how fresh and by which way; what their producers could send and do not, with the question that stays open; what arrives without a use, with its cost; what was refused; and facts about it.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			observer, err := observer(s)
			if err != nil {
				return nil, err
			}
			return answer(ctx, a, nothing{}, bare(observer.Signals))
		}},
	{method: "GET", path: "/identities", name: "joinIdentities", role: Viewer, answer: &api.Identities{},
		about: "Lists the engines, gateways and devices that the ledger, series and spans speak of, says which are one, by what, and where that is only likely; and which hosts' clocks are apart.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			observer, err := observer(s)
			if err != nil {
				return nil, err
			}
			return answer(ctx, a, nothing{}, bare(observer.Identities))
		}},
	{method: "GET", path: "/store", name: "storeState", role: Viewer, answer: &api.StoreState{},
		about: "Lists the sealed periods, the damaged ones with what is wrong with them, and says how large the log is.",
		ask: func(ctx context.Context, s api.Service, a *arguments) (any, error) {
			k, err := keeper(s)
			if err != nil {
				return nil, err
			}
			return answer(ctx, a, nothing{}, bare(k.StoreState))
		}},
	{method: "POST", path: "/store/verify", name: "verifyStore", role: Operator, answer: &api.StoreVerified{},
		about: "Reads everything that is sealed and holds it against its checksums. It answers at the end, after as long as that takes, and stops when the caller hangs up.",
		serve: (*Handler).verifyStore},
	{method: "POST", path: "/store/compact", name: "compactStore", role: Operator, answer: &api.StoreCompacted{},
		about:  "Merges small neighbouring periods; meanwhile nothing is sealed. It answers at the end, after as long as that takes, and stops when the caller hangs up: what is merged by then stays so.",
		params: []param{{"rows", inQuery, "number", "Merge while a period has fewer iterations than this; 1000000 if not given.", "2000000"}},
		serve:  (*Handler).compactStore},
	{method: "GET", path: "/store/export", name: "exportStore", role: Operator, answer: &api.ExportEnd{}, media: tarType,
		about: "Streams everything that is sealed as a tar archive of plain Parquet (TABLE/PERIOD.parquet) with the description of the columns (tables.md). " +
			"Its last file is export.json: without it, or with an error in it, the export is not whole.",
		serve: (*Handler).exportStore},
}

// nothing is the question of those who ask without arguments.
type nothing struct{}

func bare[A any](ask func(context.Context) (A, error)) func(context.Context, nothing) (A, error) {
	return func(ctx context.Context, _ nothing) (A, error) { return ask(ctx) }
}

// answer asks, unless an argument is wrong.
func answer[Q, A any](ctx context.Context, a *arguments, q Q, ask func(context.Context, Q) (A, error)) (any, error) {
	if a.err != nil {
		return nil, a.err
	}
	return ask(ctx, q)
}

func requestsQuery(a *arguments, sort string) api.RequestsQuery {
	return api.RequestsQuery{Sort: a.text(sort), At: a.moment("at"), Over: a.duration("over"), From: a.moment("from"), To: a.moment("to"), Class: a.text("class"), Tenant: a.text("tenant"), Route: a.text("route")}
}
