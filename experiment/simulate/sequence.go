package simulate

// Request is a sequence as it arrives. Of n > 1 each is a request of its own.
type Request struct {
	ID       string
	Prompt   int      // tokens
	Max      int      // tokens of output at most
	Length   int      // tokens after which the output ends by itself; 0 = never before Max
	Priority int      // the smallest goes first
	Arrival  int64    // of equal priority, the earliest goes first
	Adapter  int      // 0 = none
	Grammar  bool     // waits until GrammarReady
	Hashes   []uint64 // of the full blocks of its tokens, of its output as far as that is known: equal hashes are equal tokens from the beginning to the block's end
}

// Progress is how far a sequence has come.
type Progress struct {
	Tokens       int  // known: prompt and output
	Computed     int  // or being computed by what is in flight, drafts taken for accepted
	Placeholders int  // output that is in flight
	Drafts       int  // offered for its next iteration
	InFlight     int  // tokens scheduled and not completed
	Stale        int  // of them, from before its last preemption
	Discard      int  // outputs to throw away
	Next         int  // first step in which it may decode
	Cached       int  // blocks that the prefix cache knows
	Drop         bool // what is stale is thrown away
	Prefilling   bool // its last iteration ended before the end of what was known
	Blocks       []int32
}

// Sequence is a request in the scheduler.
type Sequence struct {
	Request
	Progress
	state   state
	grammar grammar
	number  uint32 // of its arrival
}

type state uint8

const (
	waiting state = iota
	running
	finished
)

type grammar uint8

const (
	grammarNone grammar = iota
	grammarCompiling
	grammarFailed
)

// Finished says whether it has left the scheduler.
func (q *Sequence) Finished() bool { return q.state == finished }

// Output is the number of its output tokens.
func (q *Sequence) Output() int { return q.Tokens - q.Prompt }

// Number is that of its arrival at this scheduler, from 1.
func (q *Sequence) Number() uint32 { return q.number }

// Hash names the tokens up to the end of a full block. What nobody gave a hash for, as output, is taken to be unlike any other's.
func (q *Sequence) Hash(block int) uint64 {
	if block < len(q.Hashes) {
		return q.Hashes[block]
	}
	return mix(uint64(q.number)<<32 | uint64(uint32(block)))
}

// mix spreads a number over 64 bits, different ones to different ones (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// before is the order of the line, with priorities.
func before(a, b *Sequence) bool {
	switch {
	case a.Priority != b.Priority:
		return a.Priority < b.Priority
	case a.Arrival != b.Arrival:
		return a.Arrival < b.Arrival
	}
	return a.ID < b.ID
}
