package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment/incident"
)

var briefly = []string{"--onset", "2s", "--duration", "2s", "--length", "6s"}

func TestAnIncidentIsABundleWithItsTruth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errOut := run(t, append([]string{"simulate", "long-prefill", "--severity", "0.7", "--seed", "7", "-o", dir, "--output", "json"}, briefly...)...)
	if status != ExitOK {
		t.Fatalf("status %d: %s", status, errOut)
	}
	var said struct{ Truth incident.Truth }
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "truth.json"))
	if err != nil {
		t.Fatal(err)
	}
	var written incident.Truth
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	if written.Mechanism != "M03" || written.Severity != 0.7 || written.End-written.Onset != 2e9 || written.Seed != 7 || said.Truth.Onset != written.Onset {
		t.Errorf("%+v", written)
	}
	if status, out, errOut = run(t, "look", dir); status != ExitOK || !strings.Contains(out, "the truth, which is left closed") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	if status, out, errOut = run(t, "explain", "--slowest", "tpot", "--from", dir); status != ExitOK || !strings.Contains(out, "E2E") {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
}

func TestEvidenceCanBeLeftOut(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	status, out, errOut := run(t, append([]string{"simulate", "hang", "--without", "wlc,otlp", "--sham", "-o", dir}, briefly...)...)
	if status != ExitOK || !strings.Contains(out, "without the fault") {
		t.Fatalf("status %d: %s%s", status, out, errOut)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "log manifest.json scrape truth.json" {
		t.Error(got)
	}
}

func TestIncidentsAreListed(t *testing.T) {
	status, out, _ := run(t, "simulate", "--list")
	if status != ExitOK || !strings.Contains(out, "long-prefill") || !strings.Contains(out, "long-prompts-cached") || !strings.Contains(out, "stale-scrape") {
		t.Errorf("status %d\n%s", status, out)
	}
	status, out, _ = run(t, "simulate", "--list", "--output", "json")
	var all []catalogued
	if err := json.Unmarshal([]byte(out), &all); status != ExitOK || err != nil || len(all) != len(incident.Catalogue()) {
		t.Errorf("status %d, %v, %d entries", status, err, len(all))
	}
}

func TestIncidentsAreRefusedByName(t *testing.T) {
	there := t.TempDir()
	for _, c := range []struct {
		status int
		want   string
		args   []string
	}{
		{ExitUsage, "did you mean long-prefill?", []string{"long-prefil"}},
		{ExitUsage, "no incident", []string{"quite-another-thing"}},
		{ExitUsage, "severity 2", []string{"hang", "--severity", "2"}},
		{ExitUsage, "severity NaN", []string{"hang", "--severity", "NaN"}},
		{ExitUsage, "earlier onset", []string{"hang", "--onset", "2m"}},
		{ExitUsage, "scope: replica 1", []string{"hang", "--scope", "1"}},
		{ExitUsage, "--without", []string{"hang", "--without", "pages"}},
		{ExitUsage, "must be left", []string{"hang", "--without", "wlc,otlp,log,scrape"}},
		{ExitUsage, "h100-8b", []string{"hang", "--preset", "b200"}},
		{ExitUsage, "without --like", []string{"hang", "--preset", "h100-8b", "--like", "demo"}},
		{ExitUsage, "beside --list", []string{"hang", "--list"}},
		{ExitNoSource, "absent.wlc", []string{"hang", "--like", "absent.wlc"}},
		{ExitFailed, "another directory", []string{"hang", "-o", there}},
	} {
		status, _, errOut := run(t, append([]string{"simulate"}, c.args...)...)
		if status != c.status || !strings.Contains(errOut, c.want) {
			t.Errorf("%v: status %d, want %d with %q: %s", c.args, status, c.status, c.want, errOut)
		}
	}
}

func TestAnIncidentIsPlayedLive(t *testing.T) {
	status, out, errOut := run(t, "demo", "--scenario", "long-prefill", "--length", "24s", "--speed", "40", "--once", "--listen", "127.0.0.1:0")
	var sent, answered, seen int
	_, over, _ := strings.Cut(out, "Over: ")
	fmt.Sscanf(over, "%d requests, %d answered; the server has seen %d.", &sent, &answered, &seen)
	if status != ExitOK || !strings.Contains(out, "The fault begins after 500ms") || sent < 50 || answered != sent || seen != sent {
		t.Errorf("status %d\n%s%s", status, out, errOut)
	}
	for want, args := range map[string][]string{
		"did you mean hang?": {"--scenario", "hng"},
		"--speed 0":          {"--scenario", "hang", "--speed", "0"},
		"pages of a bundle":  {"--scenario", "stale-scrape"},
		"severity 7":         {"--scenario", "hang", "--severity", "7"},
	} {
		if status, _, errOut := run(t, append([]string{"demo", "--listen", "127.0.0.1:0"}, args...)...); status != ExitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: status %d, want %q: %s", args, status, want, errOut)
		}
	}
}
