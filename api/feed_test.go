package api

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

func collect(t *testing.T, ch <-chan Event, n int) (out []Event) {
	t.Helper()
	for range n {
		e, ok := <-ch
		if !ok {
			t.Fatalf("the channel closed after %d events, want %d", len(out), n)
		}
		out = append(out, e)
	}
	return out
}

func texts(es []Event) string {
	var s []string
	for _, e := range es {
		if e.Kind == EventLost {
			s = append(s, fmt.Sprintf("lost %d", e.Lost))
		} else {
			s = append(s, e.Text)
		}
	}
	return strings.Join(s, " ")
}

func publish(f *Feed, from, to int) {
	for i := from; i <= to; i++ {
		f.Publish(Event{Kind: EventGap, Text: fmt.Sprint(i)})
	}
}

func TestFeedTellsEverybodyAndResumes(t *testing.T) {
	f := NewFeed("a:b", 10, 3)
	ctx, cancel := context.WithCancel(context.Background())
	publish(f, 1, 2) // before anybody watched
	one, err := f.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	two, err := f.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	publish(f, 3, 5)
	got := collect(t, one, 3)
	if texts(got) != "3 4 5" || texts(collect(t, two, 3)) != "3 4 5" {
		t.Errorf("got %q", texts(got))
	}
	again, err := f.Watch(ctx, got[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if s := texts(collect(t, again, 2)); s != "4 5" {
		t.Errorf("resumed after 3 with %q", s)
	}
	var busy *Overloaded
	if _, err := f.Watch(ctx, ""); !errors.As(err, &busy) {
		t.Errorf("a fourth watcher of three: %v", err)
	}
	cancel()
	for range one {
	}
	for range two {
	}
	for range again {
	}
	f.Close()
	var gone *Unavailable
	if _, err := f.Watch(context.Background(), ""); !errors.As(err, &gone) {
		t.Errorf("watching a closed feed: %v", err)
	}
}

func TestFeedTellsWhatIsLost(t *testing.T) {
	f := NewFeed("run", 10, 3)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	publish(f, 1, 1)
	slow, err := f.Watch(ctx, "run:1")
	if err != nil {
		t.Fatal(err)
	}
	publish(f, 2, 500) // nobody reads: publishing waits for nobody
	var lost, seen uint64
	last := 1
	for e := range slow {
		if e.Kind == EventLost {
			lost += e.Lost
			last += int(e.Lost)
			continue
		}
		seen++
		var n int
		fmt.Sscan(e.Text, &n)
		if n != last+1 {
			t.Fatalf("event %d follows %d", n, last)
		}
		if last = n; n == 500 {
			break
		}
	}
	if seen+lost != 499 || lost < 400 {
		t.Errorf("%d seen and %d lost of 499", seen, lost)
	}

	// Of another run of the server nothing is known but that something is missing; a watcher that is only late is told how much.
	for since, want := range map[string]string{"older:77": "lost 0 491 492", "run:400": "lost 90 491 492", "run:9999": "lost 0 491 492"} {
		ch, err := f.Watch(ctx, since)
		if err != nil {
			t.Fatal(err)
		}
		got := collect(t, ch, 3)
		if s := texts(got); s != want {
			t.Errorf("since %s: %q, want %q", since, s, want)
		}
		if got[0].ID != "run:490" {
			t.Errorf("since %s: lost has the id %s, so that resuming after it would not be right", since, got[0].ID)
		}
		if since == "older:77" { // three watch at most
			continue
		}
		break
	}
	for _, since := range []string{"x", "run:", "run:x", ":", "run:-1", "run:99999999999999999999999"} {
		var wrong *InvalidArgument
		if _, err := f.Watch(ctx, since); err == nil || !errors.As(err, &wrong) && !strings.Contains(err.Error(), "watch already") {
			t.Errorf("since %q: %v", since, err)
		}
	}
}

func TestFeedClosesItsWatchers(t *testing.T) {
	f := NewFeed("run", 10, 3)
	ch, err := f.Watch(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	publish(f, 1, 1)
	f.Close()
	publish(f, 2, 2)
	if s := texts(collect(t, ch, 1)); s != "1" {
		t.Errorf("got %q", s)
	}
	if e, ok := <-ch; ok {
		t.Errorf("%v came after the end", e)
	}
}

func TestFeedUnderManyHands(t *testing.T) {
	f := NewFeed("run", 64, 100)
	var publishers, watchers sync.WaitGroup
	for range 8 {
		ch, err := f.Watch(context.Background(), "")
		if err != nil {
			t.Fatal(err)
		}
		watchers.Go(func() {
			total := uint64(0)
			for e := range ch {
				total += max(e.Lost, 1)
				if e.Kind == EventLost && e.Lost == 0 {
					t.Error("lost nothing")
				}
			}
			if total != 4000 {
				t.Errorf("%d of 4000 events seen or known to be lost", total)
			}
		})
	}
	for range 4 {
		publishers.Go(func() { publish(f, 1, 1000) })
	}
	publishers.Wait()
	f.Close()
	watchers.Wait()
	if n := f.Watchers(); n != 0 {
		t.Errorf("%d still watch", n)
	}
}
