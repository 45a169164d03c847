package api

import "github.com/whylate/whylate/account"

// EngineStatus is what an engine is doing now.
type EngineStatus string

// What an engine may be doing.
const (
	EngineWorking EngineStatus = "working" // iterations complete
	EngineIdle    EngineStatus = "idle"    // nobody is there to be served
	EngineStuck   EngineStatus = "stuck"   // an iteration was launched and does not come back
	EngineDead    EngineStatus = "dead"    // its process is gone
	EngineUnknown EngineStatus = "unknown" // nothing was recorded that would tell
)

// EngineList is the state of all engines at one moment.
type EngineList struct {
	Now     int64         `json:"now_unix_ns"`
	Engines []EngineState `json:"engines"`
}

// EngineState is what one engine incarnation is doing now. Counts are those of its newest decision.
type EngineState struct {
	ID        string       `json:"id"`
	Engine    string       `json:"engine"` // name and version
	Status    EngineStatus `json:"state"`
	Since     int64        `json:"since_unix_ns"`       // it has been in this state; 0 = not known
	Iteration uint64       `json:"iteration"`           // the newest that was decided, 0 = none
	InFlight  bool         `json:"in_flight,omitempty"` // that one, or the one before it, is not done
	Launched  int64        `json:"launched_unix_ns"`    // when the oldest iteration in flight was decided, else when the newest was
	Members   uint32       `json:"members"`             // of the newest iteration
	Running   uint32       `json:"running"`
	Waiting   uint32       `json:"waiting"`
	Inbox     int          `json:"inbox"` // reached the engine process and not yet taken up by the scheduler
	Free      uint32       `json:"free_blocks"`
	Window    int64        `json:"window_ns"`         // the time before now that the rates are of
	Tokens    float64      `json:"tokens_per_second"` // emitted
	Prefill   float64      `json:"prefill_tokens_per_second"`
	Rate      float64      `json:"iterations_per_second"`
	Oldest    *Waiter      `json:"oldest_waiter,omitempty"`
	Targets   []string     `json:"targets,omitempty"` // where metrics of it are read, as 'whylate signals join' joins them
	Untried   []string     `json:"untried,omitempty"` // its modes in which no answer was ever held against a real run
}

// Waiter is the request that has waited longest at an engine, and why.
type Waiter struct {
	Request string       `json:"request"`
	Waited  int64        `json:"waited_ns"`
	Where   account.Part `json:"where"` // inbox, queue, or the part in which it was preempted
	Why     string       `json:"why"`
}

// ImportQuery says what is imported.
type ImportQuery struct {
	Name string // of the file, for answers and gap records
}

// ImportResult says what an import did.
type ImportResult struct {
	Name      string `json:"name"`
	Bytes     int64  `json:"bytes"`            // read
	Sources   int    `json:"sources"`          // rings and streams in it
	Frames    uint64 `json:"frames"`           // in it
	New       uint64 `json:"new_frames"`       // that were not there before
	Duplicate uint64 `json:"duplicate_frames"` // that were
	Refused   uint64 `json:"refused_frames"`   // that could not be right
	Gaps      int    `json:"gaps"`             // gap records in it
	Spans     uint64 `json:"spans,omitempty"`  // in it, of a file of traces: then the counts above are of spans, and sources are requests to export
}
