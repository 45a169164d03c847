package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/internal/engineenv"
)

// fleet is a 'whylate serve' beside the capture that takes in what the engine sends anyhow, its metrics page and its spans, and what it said.
type fleet struct {
	server   *engineenv.Server
	dir      string // of the server
	receiver string // its address of OTLP over gRPC
	said     said
}

// said is what the served program answered while the engine lived. It is kept beside the captures.
type said struct {
	Traced        bool // the engine's environment has the exporter of spans
	Up            float64
	Before, After counters // around the quiet load
	Page          counters // at its end, by the engine's own page
	Requests      api.RequestList
	Explained     map[string]explained // by the request id of the client
	Engine, Own   looked               // at the engine's /metrics while it works, and at the server's own /prometheus
	Exported      string               // why requests could not be exported, "" if they could
}

// counters are two of the engine's, the sum over their series.
type counters struct{ Tokens, FirstTokens float64 }

const (
	tokensName      = "vllm:generation_tokens_total"
	firstTokensName = "vllm:time_to_first_token_seconds_count"
)

// explained is of one answer what the checks read.
type explained struct {
	Error string
	Level string
	Calls []struct {
		Producer string
		Trace    string
		Output   int64
	}
}

// looked is of one look what the checks read.
type looked struct {
	Error string
	Found []struct {
		Producer string
		Models   []string
	}
	Facts []struct{ Weight, Text string }
}

// served is the folder of the server in that of the run, and in it what it said and what it exported.
const (
	servedDir    = "served"
	saidFile     = "said.json"
	exportedFile = "requests.jsonl"
)

// exporter is what vLLM imports to send spans over gRPC.
const exporter = "import opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.grpc.trace_exporter"

// serve starts the server before there is an engine: an exporter that finds nobody waits long before it tries again.
func (s *smoke) serve(ctx context.Context, python, rings string) (*fleet, error) {
	port, err := engineenv.FreePort()
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: filepath.Join(s.Dir, servedDir), receiver: fmt.Sprintf("127.0.0.1:%d", port)}
	f.said.Traced = exec.CommandContext(ctx, python, "-c", exporter).Run() == nil
	settings := fmt.Sprintf("otlp:\n  grpc: %s\nscrape:\n  interval: 5s\n  jobs:\n    - job_name: vllm\n      file_sd_configs: [{files: [targets.json]}]\n", f.receiver)
	f.server, err = engineenv.Serve(ctx, s.binary, f.dir, rings, settings)
	return f, err
}

// args are what the engine must be told to send its spans.
func (f *fleet) args() []string {
	if !f.said.Traced {
		return nil
	}
	return []string{"--otlp-traces-endpoint", "http://" + f.receiver}
}

// follow names the engine to the scraper.
func (f *fleet) follow(e *engineenv.Engine) error {
	targets, err := json.Marshal([]map[string][]string{{"targets": {strings.TrimPrefix(e.URL, "http://")}}})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, "targets.json"), targets, 0o600)
}

// query is the value of a PromQL query that has one, over HTTP.
func (f *fleet) query(q string) (float64, error) {
	resp, err := http.Get(f.server.URL + "/prometheus/api/v1/query?query=" + url.QueryEscape(q))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var answer struct {
		Error string
		Data  struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return 0, fmt.Errorf("%s: %s: %w", q, resp.Status, err)
	}
	if len(answer.Data.Result) != 1 {
		return 0, fmt.Errorf("%s: %d results %s", q, len(answer.Data.Result), answer.Error)
	}
	text, _ := answer.Data.Result[0].Value[1].(string)
	return strconv.ParseFloat(text, 64)
}

// counters are those of an engine at rest, by its page and by PromQL. The scrape that has them is waited for; where none comes, the
// check of the two says so.
func (f *fleet) counters(ctx context.Context, e *engineenv.Engine) (page, asked counters, err error) {
	text, err := e.Metrics()
	if err != nil {
		return page, asked, err
	}
	page.Tokens, _ = engineenv.Counter(text, tokensName)
	page.FirstTokens, _ = engineenv.Counter(text, firstTokensName)
	engineenv.Await(ctx, 15*time.Second, func() bool {
		var tokens, first error
		asked.Tokens, tokens = f.query(`sum({__name__="` + tokensName + `",job="vllm"})`)
		asked.FirstTokens, first = f.query(`sum({__name__="` + firstTokensName + `",job="vllm"})`)
		return tokens == nil && first == nil && asked == page
	})
	return page, asked, nil
}

// before asks what stands before the quiet load.
func (f *fleet) before(ctx context.Context, e *engineenv.Engine) (err error) {
	_, f.said.Before, err = f.counters(ctx, e)
	return err
}

// look looks at an address as a person would.
func (s *smoke) look(ctx context.Context, address, watched string) (l looked) {
	if err := engineenv.Ask(ctx, s.binary, &l, "look", address, "--for", watched, "--every", "2s"); err != nil {
		l.Error = err.Error()
	}
	return l
}

// ask asks the server about everything, while the engine still lives and rests.
func (s *smoke) ask(ctx context.Context, f *fleet, e *engineenv.Engine) (err error) {
	if f.said.Page, f.said.After, err = f.counters(ctx, e); err != nil {
		return err
	}
	f.said.Up, _ = f.query(`up{job="vllm"}`) // without an answer it is 0, which is not up
	c, err := client.New(f.server.URL, client.Options{})
	if err != nil {
		return err
	}
	last := s.Results[len(s.Results)-1].RequestID
	if f.said.Traced { // the exporter collects spans for some seconds
		engineenv.Await(ctx, 15*time.Second, func() bool {
			x, err := c.Explain(ctx, api.ExplainQuery{ID: last})
			return err == nil && len(x.Calls) > 0
		})
	}
	list, err := c.Requests(ctx, api.RequestsQuery{})
	if err != nil {
		return err
	}
	f.said.Requests = *list
	f.said.Explained = map[string]explained{}
	for i := range s.Results {
		id := s.Results[i].RequestID
		f.said.Explained[id] = explain(ctx, c, id)
	}
	var exported struct{}
	if err := f.server.Ask(ctx, &exported, "export", "otlp", "--last", "1h", "--to", filepath.Join(f.dir, exportedFile)); err != nil {
		f.said.Exported = err.Error()
	}
	f.said.Own = s.look(ctx, f.server.URL+"/prometheus", "0s")
	b, err := json.MarshalIndent(f.said, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(f.dir, saidFile), b, 0o600)
}

func explain(ctx context.Context, c *client.Client, id string) (out explained) {
	x, err := c.Explain(ctx, api.ExplainQuery{ID: id})
	if err != nil {
		out.Error = err.Error()
		return out
	}
	out.Level = x.Basis.Level
	for _, call := range x.Calls {
		var output int64
		if call.Output != nil {
			output = *call.Output
		}
		out.Calls = append(out.Calls, struct {
			Producer string
			Trace    string
			Output   int64
		}{call.Producer, call.Trace, output})
	}
	return out
}
