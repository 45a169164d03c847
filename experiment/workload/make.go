package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/whylate/whylate/experiment"
)

// Independently makes requests that share nothing. It has no end: cut it.
func Independently(at Arrivals, lengths Lengths, seed uint64) experiment.Stream {
	random := rand.New(rand.NewPCG(seed, forLengths))
	return endless(func() experiment.Request {
		prompt, output := lengths(random)
		return experiment.Request{At: at(), PromptTokens: prompt, OutputTokens: output}
	})
}

// endless is a stream from a function.
type endless func() experiment.Request

func (e endless) Next() (experiment.Request, error) { return e(), nil }

// Retrieval describes requests that are asked about documents: prompts of instructions, some documents, and a question.
type Retrieval struct {
	Instructions int          // tokens that all prompts begin with
	Documents    int          // how many there are
	Length       Distribution // of a document
	PerRequest   int          // documents in a prompt, each at most once
	Skew         float64      // of popularity: the k-th document is asked about in proportion to k^−skew; 0 is even
	Question     Distribution // tokens after the documents
	Output       Distribution
}

func (o *Retrieval) check() error {
	switch {
	case o.Instructions < 0 || o.Instructions > experiment.MaxTokens:
		return fmt.Errorf("instructions of %d tokens: give 0 to %d", o.Instructions, experiment.MaxTokens)
	case o.Documents < 1 || o.Documents > 1e7:
		return fmt.Errorf("%d documents: give 1 to 10000000", o.Documents)
	case o.PerRequest < 1 || o.PerRequest > o.Documents || o.PerRequest > 1000:
		return fmt.Errorf("%d documents in a request: give 1 to 1000, and not more than there are", o.PerRequest)
	case !(o.Skew >= 0 && o.Skew <= 10):
		return fmt.Errorf("skew %v: give 0 to 10, such as 1", o.Skew)
	}
	return nil
}

// Retrieve makes requests about shared documents. It has no end: cut it.
func Retrieve(at Arrivals, o Retrieval, seed uint64) (experiment.Stream, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(seed, forLengths))
	total, upTo := 0.0, make([]float64, o.Documents)
	for k := range upTo {
		total += math.Pow(float64(k+1), -o.Skew)
		upTo[k] = total
	}
	document := func(k int) experiment.PrefixRun {
		own := mixed(mixed(seed, forSharing), uint64(k)+1)
		return experiment.PrefixRun{Hash: experiment.Hash(own), Tokens: o.Length.draw(rand.New(rand.NewPCG(own, forLengths)))}
	}
	return endless(func() experiment.Request {
		r := experiment.Request{At: at(), OutputTokens: o.Output.draw(random)}
		if o.Instructions > 0 {
			r.Prefix = append(r.Prefix, experiment.PrefixRun{Hash: experiment.Hash(mixed(seed, forSharing)), Tokens: o.Instructions})
		}
		var chosen []int
		for len(chosen) < min(o.PerRequest, o.Documents) {
			k, _ := slices.BinarySearch(upTo, random.Float64()*total)
			for k = min(k, o.Documents-1); slices.Contains(chosen, k); {
				k = (k + 1) % o.Documents // the next popular one that is not in the prompt yet
			}
			chosen = append(chosen, k)
			r.Prefix = append(r.Prefix, document(k))
		}
		for _, run := range r.Prefix {
			r.PromptTokens += run.Tokens
		}
		r.PromptTokens += o.Question.draw(random)
		return r
	}), nil
}
