package web_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/google/go-cmp/cmp"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/query"
	"github.com/whylate/whylate/web"
)

var update = flag.Bool("update", false, "write openapi.json anew")

// example is an address that shows a route, on the crowd.
var example = map[string]string{
	"listRequests":   "/api/v1/requests?sort=ttft&limit=2",
	"explainRequest": "/api/v1/requests/short",
	"explainWorst":   "/api/v1/explain?slowest=queue",
	"listIterations": "/api/v1/iterations?first=62&last=63",
	"showIteration":  "/api/v1/iterations/62",
	"listOdd":        "/api/v1/odd",
	"listEngines":    "/api/v1/engines",
	"listDevices":    "/api/v1/devices",
	"overview":       "/api/v1/overview",
	"listGaps":       "/api/v1/gaps",
	"spansOfRequest": "/api/v1/requests/short/spans?ids=no",
	"listSources":    "/api/v1/sources",
	"listChanges":    "/api/v1/changes",
	"listTargets":    "/api/v1/targets",
	"listSignals":    "/api/v1/signals",
	"joinIdentities": "/api/v1/identities",
	"storeState":     "/api/v1/store",
	"verifyStore":    "/api/v1/store/verify",
	"compactStore":   "/api/v1/store/compact",
}

var anEvent = api.Event{ID: "run:1", Kind: api.EventRequest, At: scenario.Epoch + 1e9, Engine: "test/0@01234567", Request: "short", NS: 527_000_000, Text: "short took 527 ms; most of it was the queue."}

// failureExamples is one error for each status that is documented.
func failureExamples() []error {
	return []error{
		&api.InvalidArgument{Argument: "limit", Value: "0", Problem: "give a number from 1 to 10000; what is not listed is on the next page"},
		&api.Unauthorised{What: "the server does not know this token", Remedy: "send the header 'Authorization: Bearer TOKEN' with a token of the server's token file"},
		&api.Forbidden{What: "a token of the role viewer may not do this", Remedy: "use one of the role operator"},
		&query.NotFound{ID: "r-42", Count: 5},
		os.ErrDeadlineExceeded,
		&query.Ambiguous{ID: "r-", Matches: []*ledger.Request{{RequestID: "r-1", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736"}, {RequestID: "r-2"}}},
		&http.MaxBytesError{Limit: 64 << 30},
		&api.Overloaded{What: "64 questions are being answered already", After: time.Second},
		&api.Damaged{What: "period 7 of engine chat/0@5f0c1a2b cannot be read: iterations.parquet, block 3: wrong checksum", Remedy: "restore the directory from a copy"},
		&api.Unsupported{What: "a recording has no live events", Remedy: "ask a server that follows engines ('whylate serve')"},
		&api.Unavailable{What: "the log is being recovered: 3 of 7 segments", After: 5 * time.Second},
		context.DeadlineExceeded,
	}
}

// described makes the document from the table of routes, the Go types and their comments, and real answers.
func described(t *testing.T) []byte {
	d := newDescriber(t, "api", "account", "diagnose", "ledger", "store", "identity", "look", "signals")
	problem := d.of(reflect.TypeFor[api.ProblemBody]())
	responses := object{}
	failures := map[string]string{
		"400": "An argument is wrong: which, and what it may be.",
		"401": "The server answers only with a token, or does not know this one.",
		"403": "The token's role does not allow this.",
		"404": "No request has this id, or nothing matches.",
		"408": "The body stopped coming.",
		"409": "Several requests have an id that begins so; the first of them are named.",
		"413": "The body is longer than this server takes.",
		"429": "The server has too much to do; Retry-After says when to try again.",
		"500": "The server failed, or data that the answer needs is damaged; the rest answers.",
		"501": "This server cannot do that: a recording has no live events, data is of a newer version.",
		"503": "The server is not ready yet, or is stopping.",
		"504": "The answer took longer than the server allows.",
	}
	for _, err := range failureExamples() {
		code, p := web.ProblemOf(err)
		status := fmt.Sprint(code)
		about, ok := failures[status]
		if !ok {
			t.Fatalf("%v has the status %s, which is not described", err, status)
		}
		r := object{"description": about, "content": object{jsonType: object{"schema": problem, "example": api.ProblemBody{Error: p}}}}
		if status == "429" || status == "503" {
			r["headers"] = object{"Retry-After": object{"description": "Seconds to wait.", "schema": object{"type": "integer", "minimum": 1}}}
		}
		if status == "401" {
			r["headers"] = object{"WWW-Authenticate": object{"description": "The scheme: Bearer.", "schema": object{"type": "string"}}}
		}
		responses["Error"+status] = r
		delete(failures, status)
	}
	if len(failures) > 0 {
		t.Fatalf("no example of %v", failures)
	}
	srv := serve(t, newLive(crowdBook(t)), web.Options{})
	paths := object{}
	for _, r := range web.Routes() {
		op := object{"operationId": r.Name, "summary": strings.SplitAfterN(r.About, ".", 2)[0], "description": r.About, "tags": []string{r.Role.String()}}
		var params []object
		for _, p := range r.Params {
			o := object{"name": p.Name, "in": p.In, "description": p.About, "example": p.Example, "schema": object{"type": "string", "maxLength": web.Longest}}
			switch p.Kind {
			case "number":
				o["schema"] = object{"type": "integer", "minimum": 1}
				if p.Name == "limit" {
					o["schema"] = object{"type": "integer", "minimum": 1, "maximum": web.MaxRows, "default": 100}
				}
				o["example"] = json.Number(p.Example)
			case "duration":
				o["schema"] = object{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`}
			case "time":
				o["schema"] = object{"type": "string"}
				o["description"] = p.About + " RFC 3339, or nanoseconds since 1970."
			}
			if p.Name == "Last-Event-ID" {
				delete(o, "example")
			}
			if p.In == "path" {
				o["required"] = true
			}
			params = append(params, o)
		}
		if params != nil {
			op["parameters"] = params
		}
		schema := d.of(reflect.TypeOf(r.Answer))
		media := object{"schema": schema}
		statuses := []string{"400", "401", "403", "429", "500", "503", "504"}
		switch {
		case r.Name == "watchEvents":
			data, err := json.Marshal(anEvent)
			if err != nil {
				t.Fatal(err)
			}
			media = object{"schema": object{"type": "string", "description": "Server-sent events; data of each is an Event."}, "example": fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", anEvent.ID, anEvent.Kind, data)}
			statuses = []string{"400", "401", "403", "429", "500", "501", "503"}
		case r.Name == "importCapture":
			op["requestBody"] = object{"required": true, "description": "A capture file, as docs/formats/stream.md specifies it, OTLP traces, or the zip of a run bundle (docs/formats/bundle.md).",
				"content": object{"application/octet-stream": object{"schema": object{}}}}
			media["example"] = api.ImportResult{Name: "incident.wlc", Bytes: 8_421_376, Sources: 3, Frames: 90_112, New: 90_112}
			statuses = append(statuses, "408", "413", "501")
		case r.Name == "tellChange":
			told := api.Change{ID: "deploy-7", At: scenario.Epoch, Kind: api.ChangeDeployment, Subject: "chat", From: "v41", To: "v42"}
			op["requestBody"] = object{"required": true, "description": "The change. kind and subject are needed.", "content": object{jsonType: object{"schema": schema, "example": told}}}
			told.Source, told.Text = "told", "deployment chat is v42, was v41"
			media["example"] = told
			statuses = append(statuses, "413", "501")
		case r.Name == "exportStore":
			d.of(reflect.TypeOf(r.Answer))
			media = object{"schema": object{"type": "string", "format": "binary", "description": "A tar archive; export.json in it is an ExportEnd."}}
		default:
			resp, b := fetch(t, r.Method, srv.URL+example[r.Name], nil)
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", example[r.Name], b)
			}
			media["example"] = exampleOf(t, b)
		}
		if strings.Contains(r.Path, "/store") || r.Path == "/targets" || r.Path == "/signals" || r.Path == "/identities" || r.Name == "spansOfRequest" {
			statuses = append(statuses, "501")
		}
		if strings.Contains(r.Path, "{id}") || r.Name == "explainWorst" || r.Name == "listIterations" {
			statuses = append(statuses, "404", "409")
		}
		answers := object{"200": object{"description": "The answer.", "content": object{r.Media: media}}}
		for _, s := range statuses {
			answers[s] = object{"$ref": "#/components/responses/Error" + s}
		}
		op["responses"] = answers
		item, ok := paths[r.Path].(object)
		if !ok {
			item = object{}
			paths[r.Path] = item
		}
		item[strings.ToLower(r.Method)] = op
	}
	d.of(reflect.TypeFor[api.Event]())
	plain := func(name, about, media string, public bool) object {
		op := object{"operationId": name, "summary": about, "tags": []string{"operation"},
			"responses": object{"200": object{"description": "The answer.", "content": object{media: object{"schema": object{}}}}}}
		if public {
			op["security"] = []object{}
		} else {
			op["responses"].(object)["401"] = object{"$ref": "#/components/responses/Error401"}
		}
		return object{"get": op}
	}
	paths["/api/v1/openapi.json"] = plain("document", "This document.", jsonType, false)
	paths["/metrics"] = plain("metrics", "The server's own metrics, as Prometheus and OpenMetrics read them.", "text/plain", false)
	paths["/healthz"] = plain("healthz", "The process is up.", "text/plain", true)
	ready := plain("readyz", "The server can do its work: its log is recovered, and it is not overloaded.", "text/plain", true)
	ready["get"].(object)["responses"].(object)["503"] = object{"description": "It cannot, and why.", "content": object{"text/plain": object{"schema": object{"type": "string"}}}}
	paths["/readyz"] = ready

	doc := object{"openapi": "3.1.0",
		"info": object{"title": "whylate", "version": "1",
			"summary": "Where the time of a request went, and whose doing it was.",
			"description": "Answers are the very JSON that the command line prints with -o json. Names end in their unit: _ns are nanoseconds, _unix_ns nanoseconds since 1970 on the server's line of time, 0 meaning not known. " +
				"Unknown arguments are refused. New fields may be added to answers within version 1; fields do not change their meaning.",
			"license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"servers":  []object{{"url": "/", "description": "This server."}},
		"security": []object{{"token": []string{}}, {}},
		"tags": []object{{"name": "viewer", "description": "Needs a token of the role viewer, where the server has tokens."},
			{"name": "operator", "description": "Needs a token of the role operator, where the server has tokens."},
			{"name": "operation", "description": "For those who run the server."}},
		"paths": paths,
		"components": object{"schemas": d.schemas, "responses": responses,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "A token of the server's token file. Servers on the loopback may have none."}}}}
	var b bytes.Buffer
	if err := api.WriteJSON(&b, doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const jsonType = "application/json"

// The document in the repository is the one that routes, types and answers make. -update writes it.
func TestOpenAPIIsUpToDate(t *testing.T) {
	got := described(t)
	if *update {
		if err := os.WriteFile("openapi.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(web.Document), string(got)); d != "" {
		t.Errorf("openapi.json is not what the code serves; 'go test ./web -run OpenAPI -update' writes it (-file +code):\n%s", d)
	}
}

// document loads the document. A strict one allows only the fields that it names.
func document(t testing.TB, strict bool) *openapi3.T {
	t.Helper()
	b := web.Document
	if strict {
		var doc map[string]any
		if err := json.Unmarshal(b, &doc); err != nil {
			t.Fatal(err)
		}
		for _, s := range doc["components"].(map[string]any)["schemas"].(map[string]any) {
			if o := s.(map[string]any); o["properties"] != nil {
				o["additionalProperties"] = false
			}
		}
		var err error
		if b, err = json.Marshal(doc); err != nil {
			t.Fatal(err)
		}
	}
	doc, err := openapi3.NewLoader().LoadFromData(b)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestOpenAPIIsValid(t *testing.T) {
	doc := document(t, true)
	if err := doc.Validate(context.Background(), openapi3.EnableExamplesValidation()); err != nil {
		t.Fatal(err)
	}
	for name, s := range doc.Components.Schemas {
		if s.Value.Description == "" {
			t.Errorf("schema %s has no description", name)
		}
	}
}

// Every route is documented, every documented route is served, with the same arguments and methods.
func TestOpenAPIAndHandlersAgree(t *testing.T) {
	doc := document(t, false)
	srv := serve(t, newLive(crowdBook(t)), web.Options{})
	byPath := map[string]web.Route{}
	for _, r := range web.Routes() {
		byPath[r.Method+" "+r.Path] = r
		item := doc.Paths.Value(r.Path)
		if item == nil || item.GetOperation(r.Method) == nil {
			t.Errorf("%s %s is served and not documented", r.Method, r.Path)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			r, inTable := byPath[method+" "+path]
			if inTable {
				var want, got []string
				for _, p := range r.Params {
					want = append(want, p.In+" "+p.Name)
				}
				for _, p := range op.Parameters {
					got = append(got, p.Value.In+" "+p.Value.Name)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s %s (-served +documented):\n%s", method, path, d)
				}
			}
			address := strings.NewReplacer("{id}", "short", "{number}", "3").Replace(path)
			for _, m := range []string{"GET", "POST", "PUT", "DELETE", "PATCH"} {
				if m == "GET" && strings.HasSuffix(path, "/events") {
					continue
				}
				resp, b := fetch(t, m, srv.URL+address, nil)
				documented := item.GetOperation(m) != nil
				if served := resp.StatusCode != 405 && resp.StatusCode != 404; served != documented {
					t.Errorf("%s %s: documented %v, answered %s %s", m, path, documented, resp.Status, b)
				}
			}
		}
	}
}

// Every argument that is not documented is refused, with the list of those that are.
func TestUnknownArgumentsAreRefused(t *testing.T) {
	srv := serve(t, newLive(crowdBook(t)), web.Options{})
	for _, r := range web.Routes() {
		address := srv.URL + strings.NewReplacer("{id}", "short", "{number}", "3").Replace(r.Path)
		for query, says := range map[string]string{"?colour=red": "no such argument", "?Sort=ttft": "no such argument"} {
			resp, b := fetch(t, r.Method, address+query, nil)
			if resp.StatusCode != 400 || !strings.Contains(string(b), says) {
				t.Errorf("%s %s%s: %s %s", r.Method, r.Path, query, resp.Status, b)
			}
			for _, p := range r.Params {
				if p.In == "query" && !strings.Contains(string(b), p.Name) {
					t.Errorf("%s%s does not name %s: %s", r.Path, query, p.Name, b)
				}
			}
		}
		for _, p := range r.Params {
			if p.In != "query" {
				continue
			}
			resp, b := fetch(t, r.Method, address+"?"+p.Name+"=1&"+p.Name+"=2", nil)
			if resp.StatusCode != 400 || !strings.Contains(string(b), "give it once") {
				t.Errorf("%s with %s twice: %s %s", r.Path, p.Name, resp.Status, b)
			}
		}
	}
}

// Every real answer, on a scenario and on the run of a real engine, is as the document says, without a field that it does not name.
func TestAnswersAreAsDocumented(t *testing.T) {
	doc := document(t, true)
	seen := map[string]bool{}
	for name, svc := range map[string]api.Service{"crowd": newLive(crowdBook(t)), "demo": newLive(demo())} {
		srv := serve(t, svc, web.Options{})
		list, err := svc.Requests(context.Background(), api.RequestsQuery{})
		if err != nil {
			t.Fatal(err)
		}
		addresses := []string{"/api/v1/requests", "/api/v1/requests?sort=queue&limit=1", "/api/v1/requests?over=1000h", "/api/v1/requests?class=none", "/api/v1/requests?tenant=5f0c1a2b&route=18f6e5d4", "/api/v1/requests?tenant=acme", "/api/v1/requests?page=2&limit=2",
			"/api/v1/requests?sort=beauty", "/api/v1/requests?limit=0", "/api/v1/requests/no-such", "/api/v1/explain", "/api/v1/explain?slowest=ttft", "/api/v1/explain?class=none",
			"/api/v1/iterations", "/api/v1/iterations?limit=3", "/api/v1/iterations?engine=none", "/api/v1/iterations?first=10&last=12", "/api/v1/iterations/1", "/api/v1/iterations/999999", "/api/v1/iterations/0",
			"/api/v1/iterations/65", "/api/v1/iterations/115", "/api/v1/odd", "/api/v1/engines", "/api/v1/devices", "/api/v1/overview", "/api/v1/gaps", "/api/v1/gaps?limit=1", "/api/v1/sources", "/api/v1/changes", "/api/v1/targets", "/api/v1/signals", "/api/v1/identities", "/api/v1/store",
			"/api/v1/requests/b", "/api/v1/requests/grow", "/api/v1/requests/late/spans", "/api/v1/requests/short/spans?ids=maybe", "/healthz", "/readyz", "/api/v1/openapi.json"}
		for _, r := range list.Requests[:min(len(list.Requests), 60)] {
			addresses = append(addresses, "/api/v1/requests/"+url.PathEscape(r.Name), "/api/v1/requests/"+url.PathEscape(r.Name)+"/spans?ids=no", "/api/v1/iterations?limit=5&request="+url.QueryEscape(r.Name))
		}
		for _, a := range addresses {
			seen[checked(t, doc, srv.URL, a, name)] = true
		}
	}
	for _, r := range web.Routes() {
		if r.Media == jsonType && r.Method == "GET" && !seen[r.Name] {
			t.Errorf("no answer of %s was checked", r.Name)
		}
	}
}

// checked fetches an address, holds the answer against the document, and returns the operation's name if it was a success.
func checked(t *testing.T, doc *openapi3.T, base, address, what string) string {
	t.Helper()
	resp, body := fetch(t, "GET", base+address, nil)
	req, err := http.NewRequest("GET", base+address, nil)
	if err != nil {
		t.Fatal(err)
	}
	path, op, item := find(doc, req.URL.Path)
	if op == nil {
		t.Fatalf("%s is not documented", address)
	}
	in := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, Route: &routers.Route{Spec: doc, Path: path, PathItem: item, Method: "GET", Operation: op}},
		Status:                 resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true}}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		in.Options.ExcludeResponseBody = true
	}
	if err := openapi3filter.ValidateResponse(context.Background(), in); err != nil {
		t.Errorf("%s %s: %s is not as documented: %.600v", what, address, resp.Status, err)
	}
	if resp.StatusCode != 200 {
		return ""
	}
	return op.OperationID
}

// find finds the documented path that an address has.
func find(doc *openapi3.T, address string) (string, *openapi3.Operation, *openapi3.PathItem) {
	for path, item := range doc.Paths.Map() {
		want, got := strings.Split(path, "/"), strings.Split(address, "/")
		if slices.EqualFunc(want, got, func(w, g string) bool { return w == g || strings.HasPrefix(w, "{") }) && item.Get != nil {
			return path, item.Get, item
		}
	}
	return "", nil, nil
}

// An event's data is as documented.
func TestEventIsAsDocumented(t *testing.T) {
	schema := document(t, true).Components.Schemas["Event"].Value
	b, err := json.Marshal(anEvent)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if err := schema.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		t.Error(err)
	}
}
