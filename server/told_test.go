package server

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/internal/vfs"
)

// What was told and answered is there after the power was lost; what is told twice is there once.
func TestToldChangesSurvive(t *testing.T) {
	disk, now := vfs.NewMemory(), time.Unix(1_800_000_000, 0)
	open := func() (*running, *Told) {
		told, err := OpenTold(disk, "/data")
		if err != nil {
			t.Fatal(err)
		}
		return startWith(t, disk, Settings{Now: func() time.Time { return now }, Told: told}), told
	}
	s, told := open()
	for range 2 {
		kept, err := s.Tell(context.Background(), api.Change{Kind: api.ChangeDeployment, Subject: "chat", From: "v41", To: "v42", ID: "deploy-7"})
		if err != nil || kept.At != now.UnixNano() || kept.Text != "deployment chat is v42, was v41" {
			t.Fatalf("%+v, %v", kept, err)
		}
	}
	if _, err := s.Tell(context.Background(), api.Change{Kind: api.ChangePrompt, Subject: "summarise", At: now.Add(-time.Hour).UnixNano()}); err != nil {
		t.Fatal(err)
	}
	s.stop()
	if err := told.Close(); err != nil {
		t.Fatal(err)
	}
	disk = disk.Crash(rand.New(rand.NewPCG(1, 2)))
	s, told = open()
	list, err := s.Changes(context.Background(), api.ChangesQuery{})
	if err != nil || list.Matched != 2 || list.Changes[0].ID != "deploy-7" || list.Changes[1].Kind != api.ChangePrompt {
		t.Errorf("%+v, %v", list, err)
	}
	s.stop()
	told.Close()
}

// A line that the power cut in two was never answered.
func TestTornChangeIsCutOff(t *testing.T) {
	disk := vfs.NewMemory()
	if err := disk.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create("/data/changes.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(`{"id":"a","kind":"other","subject":"x","at_unix_ns":1}` + "\n" + `{"id":"b","ki`)); err != nil {
		t.Fatal(err)
	}
	told, err := OpenTold(disk, "/data")
	if err != nil || len(told.List()) != 1 {
		t.Fatalf("%v, %v", told, err)
	}
	if _, err := told.Tell(api.Change{ID: "c", Kind: api.ChangeOther, Subject: "y"}); err != nil {
		t.Fatal(err)
	}
	told.Close()
	if told, err = OpenTold(disk, "/data"); err != nil || len(told.List()) != 2 || told.List()[1].ID != "c" {
		t.Errorf("%v, %v", told, err)
	}
	told.Close()
}

func TestUnsoundChangesAreRefused(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	good := api.Change{Kind: api.ChangeOther, Subject: "x", At: now.UnixNano()}
	if err := sound(&good, now); err != nil {
		t.Fatal(err)
	}
	for field, spoil := range map[string]func(*api.Change){
		"kind": func(c *api.Change) { c.Kind = "restart" }, "subject": func(c *api.Change) { c.Subject = "" }, "to": func(c *api.Change) { c.To = "a\nb" },
		"text": func(c *api.Change) { c.Text = strings.Repeat("x", 501) }, "from": func(c *api.Change) { c.From = "\xff" }, "at_unix_ns": func(c *api.Change) { c.At = now.Add(48 * time.Hour).UnixNano() },
	} {
		c := good
		spoil(&c)
		var wrong *api.InvalidArgument
		if err := sound(&c, now); !errors.As(err, &wrong) || wrong.Argument != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}
