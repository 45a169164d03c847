package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"github.com/whylate/whylate/experiment/simulate"
)

// line is one line of truth.jsonl: what the scheduler's own state said after one call. Which fields a line has depends on Event.
type line struct {
	Event string `json:"e"` // run, queued, grammar, pause, reset, state, scheduled, done, drafted, finished, end

	Number   int             `json:"number"`
	Attempt  int             `json:"attempt"` // after runs that the engine itself ended
	Weather  string          `json:"weather"`
	Seed     int64           `json:"seed"`
	Settings json.RawMessage `json:"settings"`
	Depth    int             `json:"depth"`

	ID       string   `json:"id"`
	Prompt   uint32   `json:"prompt"`
	Max      uint32   `json:"max"`
	Priority int32    `json:"priority"`
	Session  bool     `json:"session"`
	Grammar  bool     `json:"grammar"`
	Adapter  int      `json:"adapter"`
	Hashes   []uint64 `json:"hashes"`   // of the prompt's full blocks
	External string   `json:"external"` // "" where it did not come through the engine's input
	Reason   uint8    `json:"reason"`
	Output   uint32   `json:"output"`

	N         uint64               `json:"n"`
	Alias     uint64               `json:"alias"`
	Running   uint32               `json:"running"`
	Waiting   uint32               `json:"waiting"`
	Free      uint32               `json:"free"`
	Members   map[string][4]uint32 `json:"members"` // tokens, before, total known, prompt
	New       map[string]uint32    `json:"new"`     // first admissions: prompt tokens from cache
	Drafts    map[string]uint32    `json:"drafts"`
	Preempted []preemption         `json:"preempted"`
	Waits     []string             `json:"waits"`   // live, and no member
	Reasons   map[string][2]uint8  `json:"reasons"` // reason and code of each of them; only where the iteration was traced
	Head      *string              `json:"head"`
	Need      uint32               `json:"need"`

	Emitted   map[string]uint32    `json:"emitted"`
	Discarded uint32               `json:"discarded"`
	Rejected  map[string]uint32    `json:"rejected"` // drafts
	Finished  map[string][2]uint32 `json:"finished"` // reason and tokens emitted in all
	Accepted  map[string]int       `json:"accepted"` // drafts, of those that had some and sampled

	Fails   bool           `json:"fails"` // grammar: it does not compile
	Pause   uint8          `json:"state"`
	Drafted map[string]int `json:"drafted"` // offered to running sequences

	State *state `json:"before"` // state: what the next decision depends on

	Evicted    map[string]uint32 `json:"evicted"` // last user, "" where nobody had been: blocks of the prefix cache
	Iterations int               `json:"iterations"`
	Traced     int               `json:"traced"`
	Failure    string            `json:"failure"` // an assertion of the engine's own ended the run
}

// state is a scheduler's, before a decision.
type state struct {
	Step    int                   `json:"step"`
	Running []standing            `json:"running"`
	Waiting []standing            `json:"waiting"`
	Held    []standing            `json:"held"`
	Free    []int32               `json:"free"`
	Cached  []simulate.CachedHash `json:"cached"`
}

// standing is how far a sequence has come.
type standing struct {
	ID           string   `json:"id"`
	Tokens       int      `json:"tokens"`
	Computed     int      `json:"computed"`
	Placeholders int      `json:"placeholders"`
	Drafts       int      `json:"drafts"`
	InFlight     int      `json:"in_flight"`
	Stale        int      `json:"stale"`
	Next         int      `json:"next"`
	Cached       int      `json:"cached"`
	Drop         bool     `json:"drop"`
	Prefilling   bool     `json:"prefilling"`
	Blocks       []int32  `json:"blocks"`
	Hashes       []uint64 `json:"hashes"`
}

// preemption is one victim. By, Free and Blocks are known only where the iteration was traced; of a reset, Blocks.
type preemption struct {
	Victim string  `json:"victim"`
	Lost   uint32  `json:"lost"`
	Output uint32  `json:"output"`
	Reset  bool    `json:"reset"`
	By     *string `json:"by"`
	Free   *uint32 `json:"free"`
	Blocks *uint32 `json:"blocks"`
}

// lines yields the truth of one run, in the order in which it happened.
func lines(path string) ([]line, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []line
	in := bufio.NewScanner(f)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var l line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, len(all)+1, err)
		}
		all = append(all, l)
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(all) == 0 || all[len(all)-1].Event != "end" {
		return nil, fmt.Errorf("%s: cut short: its last line is not the end of a run", path)
	}
	return all, nil
}
