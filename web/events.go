package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/whylate/whylate/api"
)

// retry is how long a browser waits before it connects again, in milliseconds.
const retry = 2000

// events streams what happens. The service drops events of who reads too slowly; who takes nothing at all is let go.
func (h *Handler) events(w http.ResponseWriter, r *http.Request, a *arguments) error {
	since := a.text("since")
	if a.err != nil {
		return a.err
	}
	if since == "" {
		since = r.Header.Get("Last-Event-ID")
	}
	leave, err := enter(h.streams, "event streams are open")
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := h.whileAllowed(r, Viewer)
	defer done()
	happened, err := h.svc.Watch(ctx, since)
	if err != nil {
		return err
	}
	h.metrics.streams.Inc()
	defer h.metrics.streams.Dec()

	out := &stream{w: w, control: http.NewResponseController(w), timeout: h.opts.WriteTimeout}
	head := w.Header()
	head.Set("Content-Type", sseType)
	head.Set("X-Accel-Buffering", "no") // a proxy that buffers would make live late
	if out.send(fmt.Sprintf("retry: %d\n\n", retry)) != nil {
		return nil
	}
	quiet := time.NewTicker(h.opts.Heartbeat)
	defer quiet.Stop()
	for {
		select {
		case e, open := <-happened:
			if !open {
				return nil
			}
			if e.Kind == api.EventLost {
				h.metrics.lost.Add(float64(e.Lost))
			}
			if out.event(e) != nil {
				return nil // whoever watched is gone
			}
			quiet.Reset(h.opts.Heartbeat)
		case <-quiet.C:
			if out.send(": quiet\n\n") != nil {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// stream writes server-sent events, each within a time.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (s *stream) event(e api.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.send(fmt.Sprintf("id: %s\nevent: %s\ndata: %s\n\n", oneLine(e.ID), oneLine(string(e.Kind)), data))
}

// oneLine keeps a field of an event from becoming two.
func oneLine(s string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "\x00", " ").Replace(s)
}

func (s *stream) send(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout)) // not every connection has deadlines
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.control.Flush()
}
