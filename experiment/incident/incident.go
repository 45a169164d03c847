package incident

import (
	"fmt"
	"slices"
	"time"
)

// Incident is an entry of the catalogue.
type Incident struct {
	Name      string
	Mechanism string // M01 … M33; "" of what is no fault of serving: a twin, a fault of telemetry
	TwinOf    string // of a twin: the incident that it resembles
	What      string // one sentence
	Needs     string // the evidence without which it cannot be told from its rivals
	Moves     []Movement
	Keeps     []string // signals that must not move
	Cure      *Intervention

	stage func(*stage) // builds what it is played on, and plans the fault
	after []spoil      // what becomes of the bundle once it is written
}

// Telemetry reports whether only the evidence is at fault.
func (i *Incident) Telemetry() bool { return i.Mechanism == "" && i.TwinOf == "" }

// OfPages reports whether it shows in a bundle's metrics pages only, which are spoilt once they are written.
func (i *Incident) OfPages() bool { return len(i.after) > 0 }

// Twin is the harmless twin of an incident, nil if it has none.
func (i *Incident) Twin() *Incident {
	for k := range catalogue {
		if catalogue[k].TwinOf == i.Name {
			return &catalogue[k]
		}
	}
	return nil
}

// Params say how an incident is played.
type Params struct {
	Severity float64       // above 0, up to 1
	Seed     uint64        // of all that is left to chance
	Onset    time.Duration // of the fault, since the run began
	Duration time.Duration // of the fault; it ends with the run at the latest
	Length   time.Duration // for which requests arrive
	Replicas int           // as many as the incident needs, or more
	Scope    int           // the replica that has the fault, where it is one replica's
	Sham     bool          // everything but the fault
	Begin    time.Time     // when the run begins; zero = 1 January 2026
	Version  string        // of the program that plays
}

// Defaults are of a run that takes a second or two to make.
func Defaults() Params {
	return Params{Severity: 0.7, Seed: 1, Onset: 20 * time.Second, Duration: 25 * time.Second, Length: time.Minute, Replicas: 1}
}

// Validate names the first parameter that cannot be played, and what to give instead.
func (p *Params) Validate() error {
	switch {
	case !(p.Severity > 0 && p.Severity <= 1):
		return fmt.Errorf("severity %v: give more than 0, up to 1", p.Severity)
	case p.Length <= 0 || p.Length > 24*time.Hour:
		return fmt.Errorf("length %v: give how long requests arrive, up to 24h", p.Length)
	case p.Onset < 0:
		return fmt.Errorf("onset %v: give 0 or more", p.Onset)
	case p.Onset >= p.Length:
		return fmt.Errorf("onset %v: the run is over by then, it takes %v: give an earlier onset, or a longer run", p.Onset, p.Length)
	case p.Duration <= 0:
		return fmt.Errorf("duration %v: give how long the fault lasts", p.Duration)
	case p.Replicas < 1 || p.Replicas > 64:
		return fmt.Errorf("%d replicas: give 1 to 64", p.Replicas)
	case p.Scope < 0 || p.Scope >= p.Replicas:
		return fmt.Errorf("scope: replica %d: there are %d, give 0 to %d", p.Scope, p.Replicas, p.Replicas-1)
	}
	return nil
}

// end is when the fault is over.
func (p *Params) end() time.Duration { return min(p.Onset+p.Duration, p.Length) }

// Catalogue is all there is: incidents, each followed by its twin, then faults of telemetry.
func Catalogue() []Incident { return slices.Clone(catalogue) }

// Named is the incident of a name, nil if there is none.
func Named(name string) *Incident {
	if k := slices.IndexFunc(catalogue, func(i Incident) bool { return i.Name == name }); k >= 0 {
		return &catalogue[k]
	}
	return nil
}

var catalogue []Incident

func init() {
	catalogue = slices.Concat(ofLoad, ofCache, ofDevices, ofHosts, ofDeaths, ofDecoding, ofClients, ofFleets, ofTelemetry)
}
