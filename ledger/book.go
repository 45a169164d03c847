package ledger

// Book is a set of records held in memory: what one or more sources told, put together and on one time line.
// It is read-only once it has been handed out.
type Book struct {
	Engines  []*Engine
	Requests []*Request // in order of first sight
	Gaps     []Gap      // of sources that belong to no engine; the engines have their own
	Notices  []string   // what the producers said about themselves
	Sources  []Source
	Devices  []*Device // GPUs that were sampled, by host and index
	// Processes are those of engines, by the kernel that runs them.
	Processes map[ProcessID]EngineID
	Beats     map[EngineID]Beat // what the readers of the schedulers' rings said last
	Newest    int64             // the newest time that a record tells
	Now       int64             // what "up to now" means for an unfinished request: Newest, or the present where the book is live
}

// Source is one ring, stream or file that the book was made from.
type Source struct {
	Name     string `json:"name"`
	Producer string `json:"producer"` // name and version
	Role     string `json:"role"`
	Thread   string `json:"thread,omitempty"`
	Frames   uint64 `json:"frames"`
	Lost     uint64 `json:"lost"`    // frames known to be missing
	Refused  uint64 `json:"refused"` // frames that could not be right
	Unknown  uint64 `json:"unknown"` // frames of types this version does not know
	// Uncertainty is half the width of the interval in which its clock's true offset lies, in ns.
	Uncertainty int64 `json:"clock_uncertainty_ns"`
}

// Coverage is the share of frames that arrived and were taken up, between 0 and 1.
func (b *Book) Coverage() float64 {
	var seen, missing uint64
	for _, s := range b.Sources {
		seen += s.Frames - s.Refused
		missing += s.Lost + s.Refused
	}
	if seen+missing == 0 {
		return 0
	}
	return float64(seen) / float64(seen+missing)
}

// AllGaps returns the gaps of the book and of its engines.
func (b *Book) AllGaps() []Gap {
	gaps := append([]Gap(nil), b.Gaps...)
	for _, e := range b.Engines {
		gaps = append(gaps, e.Gaps...)
	}
	return gaps
}

// Beat is what the reader of a scheduler's ring says of its writer, also while the writer itself says nothing.
type Beat struct {
	At        int64
	State     BeatState
	Iteration uint64 // the last launched; of a stuck one the one that does not end
	Since     int64  // the state began
}

// BeatState is what a writer is doing. The numbers are those of the wire (message 20).
type BeatState uint8

const (
	BeatWorking BeatState = 1
	BeatIdle    BeatState = 2
	BeatStuck   BeatState = 3
	BeatDead    BeatState = 4
)
