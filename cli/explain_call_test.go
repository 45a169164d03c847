package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/api/client"
)

// What spans alone tell of a call (L1), as text and as JSON; and how its answer was judged, once, though its evaluation is sent twice.
func TestGoldenOfACall(t *testing.T) {
	s := startServe(t, filepath.Join(t.TempDir(), "data"))
	s.client(t, "http", client.Options{})
	server := "http://" + s.address
	if status, _, errOut := run(t, "import", "../testdata/cases/C39-otlp-sibling-server-and-engine.otlp.json", "--server", server); status != ExitOK {
		t.Fatal(errOut)
	}
	const trace = "00000000000000000000000000000c39"
	golden(t, "explain-call", "explain", trace, "--server", server)
	golden(t, "explain-call-json", "explain", trace, "--server", server, "-o", "json")

	const text = `{"resourceLogs":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"judge"}}]},"scopeLogs":[{"logRecords":[{"timeUnixNano":"1772700600000000000","eventName":"gen_ai.evaluation.result",` +
		`"traceId":"%s","spanId":"0000000000000391","attributes":[{"key":"gen_ai.evaluation.name","value":{"stringValue":"relevance"}},{"key":"gen_ai.evaluation.score.value","value":{"doubleValue":0.25}},` +
		`{"key":"gen_ai.evaluation.explanation","value":{"stringValue":"the invoice of kim"}}]}]}]}]}`
	for range 2 {
		resp, err := http.Post(server+"/v1/logs", "application/json", bytes.NewReader(fmt.Appendf(nil, text, trace)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	status, out, errOut := run(t, "explain", trace, "--server", server)
	if want := "relevance 0.25: judged by judge, 2026-03-05 08:50:00 UTC, by its span"; status != ExitOK || strings.Count(strings.Join(strings.Fields(out), " "), want) != 1 || strings.Contains(out, "invoice") {
		t.Errorf("no %q in %s%s", want, out, errOut)
	}
	if got := valuesOf(t, s, `gen_ai_evaluation_score_count{gen_ai_evaluation_name="relevance"}`); strings.Join(got, " ") != "1" {
		t.Errorf("counted as %q", got)
	}
}
