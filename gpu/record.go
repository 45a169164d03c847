package gpu

import (
	"encoding/json"
	"fmt"

	"github.com/whylate/whylate/wire"
)

// Role is what sources of samples say that they are.
const Role = "gpu"

// About is what a source of samples says in its hello's settings.
type About struct {
	Device
	Every   int64    `json:"every_ns"`
	Body    string   `json:"through"` // nvml or nvidia-smi
	Signals []string `json:"signals"` // the names that samples number
}

// Recorder makes frames of readings, with a source for each device. Hello is what the sources have in common; Clock reads the clock pair.
type Recorder struct {
	Hello wire.Hello
	Clock func() [3]int64

	sources map[string]*recorded
}

// recorded is one device's source.
type recorded struct {
	about    Device
	body     string
	source   wire.Source
	sequence uint64
	turns    int // how often what is said of the device has changed
}

// Frame makes a reading's frame; it is the next of the source. A device about which something has changed gets another source, for what
// a source says of itself stands.
func (r *Recorder) Frame(reading Reading, opened int64) (wire.Source, uint64, []byte, error) {
	s := r.sources[reading.Device.UUID]
	switch {
	case s == nil:
		s = &recorded{}
		if r.sources == nil {
			r.sources = map[string]*recorded{}
		}
		r.sources[reading.Device.UUID] = s
		fallthrough
	case !s.about.Same(reading.Device) || s.body != reading.Body:
		*s = recorded{about: reading.Device, body: reading.Body, turns: s.turns + 1}
		var err error
		if s.source, err = r.source(reading, s.turns, opened); err != nil {
			return wire.Source{}, 0, nil, err
		}
	}
	raw, err := wire.Append(nil, s.sequence+1, &reading.Sample)
	if err != nil {
		return wire.Source{}, 0, nil, err
	}
	s.sequence++
	return s.source, s.sequence, raw, nil
}

func (r *Recorder) source(reading Reading, turn int, opened int64) (wire.Source, error) {
	h := r.Hello
	h.Protocol = [2]uint16{wire.Major, wire.Minor}
	h.Role, h.Thread = Role, reading.Device.UUID
	if h.Thread == "" {
		h.Thread = "driver"
	}
	h.Clock = r.Clock()
	text, err := json.Marshal(About{Device: reading.Device, Every: int64(reading.Every), Body: reading.Body, Signals: Names})
	if err == nil {
		err = json.Unmarshal(text, &h.Settings)
	}
	if err != nil {
		return wire.Source{}, err
	}
	b, err := json.Marshal(h)
	name := fmt.Sprintf("%.8s-%d-%d-gpu-%s-%d", h.Boot, h.PID, h.Start, h.Thread, turn)
	return wire.Source{Name: name, Hello: b, Opened: opened}, err
}

// ParseAbout reads what a source of samples says of itself.
func ParseAbout(h wire.Hello) (About, error) {
	var a About
	b, err := json.Marshal(h.Settings)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return a, fmt.Errorf("settings of a source of samples: %w", err)
	}
	return a, nil
}
