package world

import (
	"hash/fnv"

	"github.com/whylate/whylate/experiment"
)

// blockHashes names the full blocks of a prompt: equal hashes are equal tokens from the beginning to the block's end. Tokens are the
// same where a [experiment.Prompter] would make them the same: in a run of a prefix by its hash and the place in it, and behind the
// runs by the request's id.
func blockHashes(r *experiment.Request, id string, adapter, block int) []uint64 {
	full := r.PromptTokens / block
	hashes := make([]uint64, 0, full)
	h := fnv.New64a()
	h.Write([]byte(id))
	own := mix(h.Sum64() ^ 0x6b6579)
	chain := mix(uint64(adapter) + 0x626c6f636b)
	run, at := 0, 0 // the run that the next token is of, and its place in it
	for range full {
		for left := block; left > 0; {
			name, rest := own, left
			if run < len(r.Prefix) {
				name, rest = mix(uint64(r.Prefix[run].Hash)), r.Prefix[run].Tokens-at
			}
			n := min(left, rest)
			chain = mix(chain ^ mix(name^uint64(at)<<20^uint64(n)))
			left -= n
			if at += n; n == rest && run < len(r.Prefix) {
				run, at = run+1, 0
			}
		}
		hashes = append(hashes, chain)
	}
	return hashes
}

// mix spreads a number over 64 bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
