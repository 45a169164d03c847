package cli

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/metrics"
	"github.com/whylate/whylate/server"
	"github.com/whylate/whylate/store/embedded"
)

// What a fleet's series tell is told once: each look sees it again, and so does a server that starts anew. What the server says of itself is no change.
func TestChangesThatSeriesTell(t *testing.T) {
	db, err := metrics.Open(metrics.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	begin := time.Now().Add(-40 * time.Minute).Truncate(time.Minute)
	app := db.Appendable("test").Appender(t.Context())
	put := func(at time.Time, v float64, ls ...string) {
		t.Helper()
		if _, err := app.Append(0, labels.FromStrings(ls...), at.UnixMilli(), v); err != nil {
			t.Fatal(err)
		}
	}
	for at := begin; at.Before(begin.Add(40 * time.Minute)); at = at.Add(15 * time.Second) {
		minute := at.Sub(begin).Minutes()
		for _, engine := range []string{"a:8000", "b:8000", "goes:8000", "comes:8000"} {
			if engine == "goes:8000" && minute >= 20 || engine == "comes:8000" && minute < 22 {
				continue
			}
			started, version := begin.Add(-time.Hour), "0.9.1"
			if engine == "a:8000" && minute >= 18 {
				started, version = begin.Add(18*time.Minute), "0.32.0"
			}
			put(at, float64(started.Unix()), "__name__", "process_start_time_seconds", "job", "vllm", "instance", engine)
			put(at, 1, "__name__", "python_info", "job", "vllm", "instance", engine, "version", version)
			put(at, minute, "__name__", "vllm:num_requests_running", "job", "vllm", "instance", engine, "model_name", "m", "engine", "0")
		}
		put(at, float64(begin.Add(at.Sub(begin).Truncate(10*time.Minute)).Unix()), "__name__", "process_start_time_seconds", "job", "whylate", "instance", "here")
	}
	if err := app.Commit(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	fresh := func(from, to int) (n int) {
		told, err := server.OpenTold(vfs.OS{}, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer told.Close()
		st, err := embedded.Open(t.TempDir(), embedded.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		s := server.New(st, server.Settings{Told: told})
		for minute := from; minute < to; minute++ {
			found, err := changesSeen(t.Context(), db.Detail(), begin.Add(time.Duration(minute)*time.Minute+7*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			n += s.Seen(found)
		}
		var said []string
		for _, c := range told.List() {
			said = append(said, fmt.Sprintf("%s %s: %s", c.Kind, c.Engine, c.Text))
			if c.Source == "" || c.ID == "" || c.At < begin.Add(17*time.Minute).UnixNano() || c.At > begin.Add(23*time.Minute).UnixNano() {
				t.Errorf("%+v", c)
			}
		}
		slices.Sort(said)
		if got := strings.Join(said, "\n"); to == 40 && got != "deployment comes:8000: speaks, and did not in the 10 minutes before\ndeployment goes:8000: is not seen any more\n"+
			"restart a:8000: restarted: its process began at "+begin.Add(18*time.Minute).UTC().Format(time.TimeOnly)+"\nversion a:8000: python_info is 0.32.0, was 0.9.1" {
			t.Error(got)
		}
		return n
	}
	if n := fresh(15, 40); n != 4 {
		t.Errorf("%d changes, want 4", n)
	}
	if n := fresh(15, 40); n != 0 {
		t.Errorf("%d are told again by a server that starts anew", n)
	}
}
