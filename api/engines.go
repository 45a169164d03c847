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

// ImportResult says what an import did: of a capture or of traces, or of a run bundle's members.
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

	Captures []*ImportResult  `json:"captures,omitempty"`  // of a bundle: its captures and traces
	Series   []ImportedSeries `json:"series,omitempty"`    // of a bundle: its scrapes and logs
	Changes  int              `json:"changes,omitempty"`   // of a bundle: told; those that were known are among them
	NotTaken []ImportRefusal  `json:"not_taken,omitempty"` // of a bundle: files, and why
}

// ImportedSeries is what became of the scrapes of one target, or of one log.
type ImportedSeries struct {
	Kind    string `json:"kind"`   // scrapes or log
	Target  string `json:"target"` // the series' label instance
	Files   int    `json:"files"`
	From    int64  `json:"from_unix_ns"` // of the first sample
	To      int64  `json:"to_unix_ns"`   // of the last
	Samples int    `json:"samples"`      // that are kept now, those that were there already among them
	Guarded int    `json:"guarded"`      // that were folded into other series or refused: docs/metrics.md says which
	Late    int    `json:"late"`         // that the store refused: another value at a time that has one, or of a time of its own that has passed
	Lines   int    `json:"lines"`        // of a log, understood or not
	LeftOut int    `json:"left_out"`     // lines that are no sample, or have no date
	Changes int    `json:"changes"`      // that a log tells
	Note    string `json:"note,omitempty"`
}

// ImportRefusal is a file of a bundle that is not taken, or a part of one.
type ImportRefusal struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}
