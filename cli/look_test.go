package cli

import (
	"strings"
	"testing"
)

func TestLook(t *testing.T) {
	status, out, errOut := run(t, "look", "../testdata/cases/C28-llamacpp-minus-nan.prom")
	if status != ExitOK || !strings.Contains(out, "llama.cpp: 1 target") || !strings.Contains(out, "line 18: -nan") {
		t.Errorf("%d: %s%s", status, out, errOut)
	}
	status, out, errOut = run(t, "look", "../testdata/cases/C28-llamacpp-minus-nan.prom", "-o", "json")
	if status != ExitOK || !strings.Contains(out, `"producer": "llamacpp"`) {
		t.Errorf("%d: %s%s", status, out, errOut)
	}
	status, out, errOut = run(t, "look", "../testdata/cases/C55-sglang-log-zoo.server.log", "--zone", "UTC")
	if status != ExitOK || !strings.Contains(out, "SGLang: 1 log") || !strings.Contains(out, "09:00:16 UTC") {
		t.Errorf("%d: %s%s", status, out, errOut)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"look --server http://127.0.0.1:1", ExitFailed, "no whylate server answers"}, {"look nowhere.prom", ExitFailed, "nowhere.prom"}, {"look x --every 0s", ExitUsage, "--every"}, {"look x --zone Nowhere", ExitUsage, "--zone"},
		{"look http://127.0.0.1:1 --token-file a --user b", ExitUsage, "not both"}, {"look http://127.0.0.1:1 --cert-file a", ExitUsage, "belong together"}, {"look http://127.0.0.1:1", ExitFailed, "nobody answers"},
	} {
		if status, _, errOut := run(t, strings.Fields(c.args)...); status != c.status || !strings.Contains(errOut, c.says) {
			t.Errorf("%s: %d, %s", c.args, status, errOut)
		}
	}
}

func TestSignals(t *testing.T) {
	status, out, errOut := run(t, "signals", "../testdata/cases/C31-vllm-renames-mixed-fleet.pod-old.prom", "../testdata/cases/C31-vllm-renames-mixed-fleet.pod-new.prom")
	for _, want := range []string{"kv.usage", "vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc", "Not sent", "How often does a running request lose its blocks?"} {
		if !strings.Contains(out, want) {
			t.Errorf("%d: no %q in\n%s%s", status, want, out, errOut)
		}
	}
}

func TestTree(t *testing.T) {
	status, out, errOut := run(t, "explain", "--tree")
	for _, want := range []string{"gateway", "inbox", "no metric tells of it; the probe does", "request.queue_time (s)", "vllm:request_queue_time_seconds"} {
		if status != ExitOK || !strings.Contains(out, want) {
			t.Errorf("%d: no %q in\n%s%s", status, want, out, errOut)
		}
	}
}

func TestLookHeaders(t *testing.T) {
	for given, want := range map[string]string{"X-Scope-OrgID: team-a": "", "X-Scope-OrgID": "give 'NAME: VALUE'", "a b: c": "give 'NAME: VALUE'", "authorization: Bearer x": "--token-file"} {
		h, err := (&lookFlags{headers: []string{given}}).header()
		switch {
		case want == "" && (err != nil || h.Get("X-Scope-OrgID") != "team-a"):
			t.Errorf("%s: %v, %v", given, h, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", given, err)
		}
	}
}
