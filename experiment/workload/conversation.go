package workload

import (
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/whylate/whylate/experiment"
)

// Conversation describes conversations of several turns: each prompt is all that was said before, and something new.
type Conversation struct {
	Instructions int           // tokens that all conversations begin with
	Turns        float64       // mean number of turns, 1 or more (geometrically distributed)
	Say          Distribution  // tokens that a user adds in a turn
	Answer       Distribution  // tokens of an answer
	Think        time.Duration // mean time from an answer to the next turn (exponentially distributed)
	Most         int           // tokens of prompt and answer at which a conversation ends; 0 is no limit
}

// Converse begins conversations at the times of the arrivals, until end; 0 is none. The next turn follows when the answer to
// the last one has ended. What a conversation says hangs on the seed and its number only, not on when others are answered.
//
// Each piece of a conversation is a run of its prefix, the answers as well. On a real engine the answers are other tokens than
// those that a replay makes up for them, so its cache knows a prompt up to the last answer.
func Converse(at Arrivals, o Conversation, end time.Duration, seed uint64) (experiment.Source, error) {
	switch {
	case o.Instructions < 0 || o.Instructions > experiment.MaxTokens:
		return nil, fmt.Errorf("instructions of %d tokens: give 0 to %d", o.Instructions, experiment.MaxTokens)
	case !(o.Turns >= 1 && o.Turns <= 1e6):
		return nil, fmt.Errorf("%v turns: give 1 or more on average, such as 5", o.Turns)
	case o.Think < 0:
		return nil, fmt.Errorf("think time %v: give 0 or more", o.Think)
	}
	return &converse{at: at, o: o, end: end, seed: seed, under: make(map[string]*conversation)}, nil
}

type converse struct {
	at    Arrivals
	o     Conversation
	end   time.Duration
	seed  uint64
	begun int
	under map[string]*conversation // by the id of the request under way
}

// conversation is one that goes on.
type conversation struct {
	number uint64
	turn   int
	prefix []experiment.PrefixRun
	length int // tokens said so far
	random *rand.Rand
}

func (c *converse) Next() (experiment.Request, error) {
	at := c.at()
	if c.end > 0 && at >= c.end {
		return experiment.Request{}, io.EOF
	}
	k := &conversation{number: uint64(c.begun)}
	c.begun++
	k.random = rand.New(rand.NewPCG(mixed(c.seed, k.number), forLengths))
	if c.o.Instructions > 0 {
		k.say(experiment.Hash(mixed(c.seed, forSharing)), c.o.Instructions)
	}
	return c.turn(k, at), nil
}

// turn makes the conversation's next request.
func (c *converse) turn(k *conversation, at time.Duration) experiment.Request {
	k.turn++
	k.say(k.piece(c.seed, 0), c.o.Say.draw(k.random))
	r := experiment.Request{
		At: at, PromptTokens: k.length, OutputTokens: c.o.Answer.draw(k.random),
		Prefix: k.prefix[:len(k.prefix):len(k.prefix)], ID: fmt.Sprintf("talk-%d-%d", k.number, k.turn),
	}
	c.under[r.ID] = k
	return r
}

func (c *converse) Finished(r *experiment.Request, at time.Duration) (experiment.Request, bool, error) {
	k := c.under[r.ID]
	if k == nil {
		return experiment.Request{}, false, nil
	}
	delete(c.under, r.ID)
	goesOn := k.random.Float64()*c.o.Turns >= 1 // with probability 1 − 1/turns
	think := exponential(k.random, c.o.Think)
	k.say(k.piece(c.seed, 1), r.OutputTokens)
	if !goesOn || c.end > 0 && at+think >= c.end {
		return experiment.Request{}, false, nil
	}
	next := c.turn(k, at+think)
	if most := c.o.Most; most > 0 && next.PromptTokens+next.OutputTokens > most || next.PromptTokens > experiment.MaxTokens {
		delete(c.under, next.ID)
		return experiment.Request{}, false, nil
	}
	return next, true, nil
}

// say adds a piece to what was said.
func (k *conversation) say(hash experiment.Hash, tokens int) {
	k.prefix = append(k.prefix, experiment.PrefixRun{Hash: hash, Tokens: tokens})
	k.length += tokens
}

// piece names what the user (0) or the answer (1) says in this turn.
func (k *conversation) piece(seed uint64, who uint64) experiment.Hash {
	return experiment.Hash(mixed(mixed(seed, k.number+1), uint64(k.turn)<<1|who))
}
