package api

// EventKind says what happened.
type EventKind string

// What may happen.
const (
	EventRequest   EventKind = "request"   // a request ended; Text says how
	EventOdd       EventKind = "odd"       // an iteration took far longer than its work explains
	EventEngine    EventKind = "engine"    // an engine appeared or changed its state; State is the new one
	EventGap       EventKind = "gap"       // records are missing
	EventChange    EventKind = "change"    // an engine was restarted, or something about it changed
	EventPreempted EventKind = "preempted" // a request lost its blocks
	EventDevice    EventKind = "device"    // a GPU changed its state, an error of its driver came, or a fault began or ceased to hold its clocks down; Device is its UUID
	EventSealed    EventKind = "sealed"    // a period was sealed
	EventLost      EventKind = "lost"      // Lost events before this one were not delivered; 0 = an unknown number
	// EventOffline is told by a client, not by a server: the connection broke, and Text says why. The client tries again.
	EventOffline EventKind = "offline"
)

// Event is one thing that happened. Beyond what its kind always has, fields are set where they apply.
type Event struct {
	ID        string       `json:"id"` // what Watch takes as since; opaque
	Kind      EventKind    `json:"kind"`
	At        int64        `json:"at_unix_ns"`
	Engine    string       `json:"engine,omitempty"`
	Device    string       `json:"device,omitempty"`
	Request   string       `json:"request,omitempty"`
	Iteration uint64       `json:"iteration,omitempty"`
	NS        int64        `json:"ns,omitempty"` // request: its E2E; odd: above expectation
	State     EngineStatus `json:"state,omitempty"`
	Lost      uint64       `json:"lost,omitempty"`
	Text      string       `json:"text"` // one sentence
}
