package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
)

func TestChangesArePrinted(t *testing.T) {
	at := time.Date(2026, 11, 29, 14, 5, 0, 0, time.UTC)
	l := &api.ChangeList{Matched: 3, Changes: []api.Change{{At: at.UnixNano(), Kind: api.ChangeSetting, Engine: "chat/0@5f0c", Subject: "max_num_seqs", From: "128", To: "256", Text: "max_num_seqs is 256, was 128\x1b[31m"}}}
	var b bytes.Buffer
	(&env{out: &b}).printChanges(l)
	if got := b.String(); !strings.Contains(got, "2026-11-29 14:05:00") || !strings.Contains(got, "chat/0@5f0c") || !strings.Contains(got, "is 256, was 128") || !strings.Contains(got, "2 more") || strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
	if status, out, errOut := run(t, "changes", "--from", "demo"); status != ExitOK || !strings.Contains(out, "No change was recorded") {
		t.Errorf("exit %d: %s%s", status, out, errOut)
	}
	for since, want := range map[string]time.Time{"2h": at.Add(-2 * time.Hour), "14:00Z": at.Add(-5 * time.Minute), "2026-11-29T13:00:00Z": at.Add(-65 * time.Minute), "-2h": {}, "soon": {}} {
		got, err := sinceOf(since, at)
		if !got.Equal(want) || (err != nil) != want.IsZero() {
			t.Errorf("--since %s: %v, %v", since, got, err)
		}
	}
}
