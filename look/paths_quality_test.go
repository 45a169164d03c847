package look

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

// How answers were judged is what came between two pages, by evaluation and model.
func TestQualityPath(t *testing.T) {
	page := func(a, b, none, some int) string {
		return fmt.Sprintf(`# TYPE gen_ai_evaluation_score histogram
gen_ai_evaluation_score_sum{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/a"} %d
gen_ai_evaluation_score_count{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/a"} %d
gen_ai_evaluation_score_bucket{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/a",le="+Inf"} %d
gen_ai_evaluation_score_sum{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/b"} %d
gen_ai_evaluation_score_count{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/b"} %d
gen_ai_evaluation_score_bucket{gen_ai_evaluation_name="relevance",gen_ai_response_model="acme/b",le="+Inf"} %d
# TYPE gen_ai_evaluation_results_total counter
gen_ai_evaluation_results_total{gen_ai_evaluation_name="relevance",gen_ai_evaluation_score_label="pass"} 9
gen_ai_evaluation_results_total{gen_ai_evaluation_name="toxicity",gen_ai_evaluation_score_label="none"} %d
gen_ai_evaluation_results_total{gen_ai_evaluation_name="toxicity",gen_ai_evaluation_score_label="some"} %d
`, 3*a/4, a, a, b/4, b, b, none, some)
	}
	quality := func(pages ...string) PathState {
		t.Helper()
		var inputs []Input
		for i, p := range pages {
			inputs = append(inputs, Input{Name: fmt.Sprintf("judge.t%d.prom", i), Target: "judge", Order: int64(i), Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(p)), nil }})
		}
		s, err := Read(context.Background(), inputs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return qualityPath(s)
	}
	for name, c := range map[string]struct {
		got  PathState
		want string
	}{
		"one page":  {quality(page(40, 20, 5, 0)), "relevance 0.25 on average in 20 answers (acme/b), 0.75 in 40 (acme/a); toxicity 5 × none"},
		"two pages": {quality(page(40, 20, 5, 0), page(80, 20, 8, 2)), "relevance 0.75 on average in 40 answers (acme/a); toxicity 3 × none, 2 × some"},
	} {
		if c.got.State != Seen || c.got.Text != c.want {
			t.Errorf("%s: %s %q, not %q", name, c.got.State, c.got.Text, c.want)
		}
	}
	if p := quality("up 1\n"); p.State != NotSeen || !strings.Contains(p.Switch, "no evaluation") {
		t.Errorf("%+v", p)
	}
}
