package experiment

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
)

// PromptOptions says which tokens a [Prompter] draws from.
type PromptOptions struct {
	// Low and High are the least and the greatest token id used. Both zero stand for 3 and 258: the 256 byte tokens of a
	// byte-level tokenizer after its three special ones. Every model of that vocabulary or a larger one accepts them.
	Low, High int
	// Seed changes every token. Replay the same workload under a new seed to an engine that is still warm from the last
	// time, or its prefix cache will answer for prompts that it should not know.
	Seed uint64
}

// A Prompter makes prompts of exact length out of a workload's structure. Equal seeds, prefix hashes and keys give equal
// tokens on every machine and in every version. It may be used by several goroutines at once.
type Prompter struct {
	low, width uint64
	seed       uint64
}

// NewPrompter returns a prompter, or an error that says what is wrong with the range of tokens.
func NewPrompter(o PromptOptions) (*Prompter, error) {
	if o.Low == 0 && o.High == 0 {
		o.Low, o.High = 3, 258
	}
	if o.Low < 0 || o.High <= o.Low || o.High > 1<<31-1 {
		return nil, fmt.Errorf("prompt token ids %d to %d: give a range of two ids or more within the model's vocabulary, such as 3 to 258", o.Low, o.High)
	}
	return &Prompter{low: uint64(o.Low), width: uint64(o.High - o.Low + 1), seed: o.Seed}, nil
}

// AppendTokens appends r's prompt as exactly r.PromptTokens token ids. The tokens of a prefix run depend on its hash alone,
// those that follow on the key, which is the request's id in a replay.
func (p *Prompter) AppendTokens(dst []int32, r *Request, key string) []int32 {
	for n, draw := range p.runs(r, key) {
		for range n {
			dst = append(dst, int32(p.low+below(draw.Uint64(), p.width)))
		}
	}
	return dst
}

// alphabet holds the characters of a text prompt: one byte, so one byte-level token, each, and nothing that a tokenizer or a
// chat template would strip or escape.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._"

// AppendText appends r's prompt as exactly r.PromptTokens characters of one byte each. With a byte-level tokenizer that is as
// many tokens; with any other it is fewer, and only the shared prefixes stay true.
func (p *Prompter) AppendText(dst []byte, r *Request, key string) []byte {
	for n, draw := range p.runs(r, key) {
		for range n {
			dst = append(dst, alphabet[below(draw.Uint64(), uint64(len(alphabet)))])
		}
	}
	return dst
}

// What a generator is seeded for, so that a hash and a key that happen to be the same number differ.
const (
	forPrefix = 0x70726566
	forKey    = 0x6b65790a
)

// runs yields the parts of a prompt: how many tokens, and the generator to draw them from.
func (p *Prompter) runs(r *Request, key string) func(yield func(int, *rand.PCG) bool) {
	return func(yield func(int, *rand.PCG) bool) {
		rest := r.PromptTokens
		for _, run := range r.Prefix {
			if !yield(min(run.Tokens, rest), rand.NewPCG(p.seed^forPrefix, uint64(run.Hash))) {
				return
			}
			rest -= min(run.Tokens, rest)
		}
		h := fnv.New64a()
		h.Write([]byte(key))
		yield(rest, rand.NewPCG(p.seed^forKey, h.Sum64()))
	}
}

// below maps a random number to one below n, without a division and the same in every version of Go.
func below(random, n uint64) uint64 {
	high, _ := bits.Mul64(random, n)
	return high
}
