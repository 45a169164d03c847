package wire

import "encoding/json"

// Record is one thing that a ring or a capture yields: the opening of a source, a gap, or else a frame.
type Record struct {
	Source uint16  // whose it is; 0 in a ring, which is one source, and for a gap of the capture as a whole
	Opened *Source // a source that had not been heard of before, or not under this name
	Gap    *Gap
	Frame  Frame // if neither Opened nor Gap is set; valid until the next call
}

// Source is one stream of frames with its own sequence numbers and its own handles.
type Source struct {
	ID     uint16          `json:"-"`
	Name   string          `json:"name"`   // of the ring file, or a URL
	Hello  json.RawMessage `json:"hello"`  // the object that [ParseHello] reads; nil = not known
	Opened int64           `json:"opened"` // Unix ns
}

// Gap is what is known to be missing, and why. Absent is not zero: what a gap covers may have happened or not.
type Gap struct {
	From  uint64 `json:"from"`  // first missing sequence; 0 = not known
	To    uint64 `json:"to"`    // last one
	Count uint64 `json:"count"` // missing frames; 0 = not known, or none: a duplicate
	Why   string `json:"why"`   // one of the Why constants, or the words of another writer
	At    int64  `json:"at"`    // Unix ns, when it was noticed; 0 = not known
	Bytes int64  `json:"-"`     // that could not be read; 0 where no bytes are damaged
}

// The reasons for a gap that this package gives.
const (
	WhyOverwritten = "overwritten before it was read" // the reader came late or was too slow
	WhyDamaged     = "damaged"                        // bytes are there, but their checksum or length is wrong
	WhyMissing     = "missing"                        // the sequence numbers jump
	WhyDuplicate   = "duplicate"                      // the frame was there before; it is not given again
	WhyOutOfOrder  = "out of order"                   // the frame had been counted as missing; it is not given so late
	WhyTruncated   = "truncated"                      // the file ends too early
)

// missing is the gap from the sequence from to the sequence to.
func missing(from, to uint64, why string) *Gap {
	return &Gap{From: from, To: to, Count: to - from + 1, Why: why}
}
