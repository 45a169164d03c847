package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/whylate/whylate/adapter/dcgm"
	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/ledger"
)

// deviceWatch is what has been told of a device.
type deviceWatch struct {
	state  ledger.DeviceState
	errors int64           // time of the newest error told
	held   map[uint64]bool // faults that hold its clocks down
}

// devicesOf tells of GPUs: states, errors, and faults that hold clocks down. What was so when the server first saw a device is told only where
// it is wrong.
func (w *watcher) devicesOf(b *ledger.Book) (out []api.Event) {
	if w.devices == nil {
		w.devices = map[ledger.DeviceID]*deviceWatch{}
	}
	for _, d := range b.Devices {
		was := w.devices[d.ID]
		if was == nil {
			was = &deviceWatch{state: ledger.DeviceAnswers, errors: d.First - 1, held: map[uint64]bool{}}
			w.devices[d.ID] = was
		}
		tell := func(at int64, text string) {
			out = append(out, api.Event{Kind: api.EventDevice, At: at, Device: d.ID.UUID, Text: fmt.Sprintf("%s (a sample every %s): %s", deviceName(d), d.Every.Round(time.Millisecond), text)})
		}
		if d.State != was.state {
			was.state = d.State
			tell(d.Since, strings.TrimSuffix(d.State.String()+": "+d.Why, ": "))
		}
		for _, e := range d.Errors {
			if e.At > was.errors {
				was.errors = e.At
				tell(e.At, fmt.Sprintf("XID %d (%s). %s", e.XID, dcgm.XID(int(e.XID)), dcgm.Remedy(int(e.XID))))
			}
		}
		for _, h := range d.Held {
			why := dcgm.Holds(h.Bit)[0]
			if why.Ask == "" || was.held[h.Bit] == (h.Since != 0) {
				continue
			}
			was.held[h.Bit] = h.Since != 0
			if h.Since != 0 {
				tell(h.Since, why.Name+" holds its clocks down; look at "+why.Ask)
			} else {
				tell(h.Last, why.Name+" no longer holds its clocks down")
			}
		}
	}
	return out
}

// deviceName is how a GPU is called in sentences.
func deviceName(d *ledger.Device) string {
	switch {
	case d.ID.UUID == "":
		return "the GPU driver of " + d.ID.Host
	case d.Parent != "":
		return fmt.Sprintf("instance %s of GPU %d of %s", d.Profile, d.Index, d.ID.Host)
	}
	return fmt.Sprintf("GPU %d of %s", d.Index, d.ID.Host)
}
