package simulate

// pool is the KV cache: blocks, who holds them, in which order the free ones are used, and which of them the prefix cache knows.
// Block 0 is never given out.
type pool struct {
	refs       []int32
	next, prev []int32 // the free blocks in the order of their use; block 0 is both ends
	free       int

	hash           []uint64
	user           []uint32 // number of the sequence that gave it back last
	known          []bool   // whether hash means anything
	later, earlier []int32  // blocks of the same hash in a circle, in the order in which they were cached
	first          map[uint64]int32
	uncachedFirst  bool
	atOnce, atLast []int32 // scratch of release
}

func newPool(blocks int, uncachedFirst bool) *pool {
	ints := make([]int32, 5*blocks)
	p := &pool{refs: ints[:blocks], next: ints[blocks : 2*blocks], prev: ints[2*blocks : 3*blocks], later: ints[3*blocks : 4*blocks],
		earlier: ints[4*blocks:], hash: make([]uint64, blocks), user: make([]uint32, blocks), known: make([]bool, blocks), first: make(map[uint64]int32, blocks), uncachedFirst: uncachedFirst}
	for b := 1; b < blocks; b++ {
		p.append(int32(b))
	}
	return p
}

// link puts a free block between two that follow each other.
func (p *pool) link(b, after, before int32) {
	p.prev[b], p.next[b] = after, before
	p.next[after], p.prev[before] = b, b
	p.free++
}

func (p *pool) append(b int32) { p.link(b, p.prev[0], 0) }

func (p *pool) unlink(b int32) {
	p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b]
	p.free--
}

// take gives out the block that is next in order, and says whether something that was cached in it is lost.
func (p *pool) take() (b int32, lost bool) {
	b = p.next[0]
	p.unlink(b)
	if lost = p.known[b]; lost {
		p.forget(b)
	}
	p.refs[b] = 1
	return b, lost
}

// share gives a cached block to one more holder.
func (p *pool) share(b int32) {
	if p.refs[b] == 0 {
		p.unlink(b)
	}
	p.refs[b]++
}

// release takes blocks from a holder: the last of a sequence is reused before its first.
func (p *pool) release(user uint32, blocks []int32) {
	p.atOnce, p.atLast = p.atOnce[:0], p.atLast[:0]
	for i := len(blocks) - 1; i >= 0; i-- {
		b := blocks[i]
		p.user[b] = user
		if p.refs[b]--; p.refs[b] > 0 {
			continue
		}
		if p.uncachedFirst && !p.known[b] {
			p.atOnce = append(p.atOnce, b)
		} else {
			p.atLast = append(p.atLast, b)
		}
	}
	for i := len(p.atOnce) - 1; i >= 0; i-- {
		p.link(p.atOnce[i], 0, p.next[0])
	}
	for _, b := range p.atLast {
		p.append(b)
	}
}

// lookup finds the block that was cached first under a hash, of those that still are.
func (p *pool) lookup(hash uint64) (int32, bool) {
	b, ok := p.first[hash]
	return b, ok
}

// cache makes a block known under its hash. Several may be.
func (p *pool) cache(b int32, hash uint64) {
	if p.known[b] {
		if p.hash[b] == hash {
			return
		}
		p.forget(b)
	}
	p.known[b], p.hash[b] = true, hash
	first, ok := p.first[hash]
	if !ok {
		p.first[hash], p.later[b], p.earlier[b] = b, b, b
		return
	}
	last := p.earlier[first]
	p.later[last], p.earlier[b] = b, last
	p.later[b], p.earlier[first] = first, b
}

func (p *pool) forget(b int32) {
	p.known[b] = false
	next := p.later[b]
	if next == b {
		delete(p.first, p.hash[b])
		return
	}
	p.later[p.earlier[b]], p.earlier[next] = next, p.earlier[b]
	if p.first[p.hash[b]] == b {
		p.first[p.hash[b]] = next
	}
}

// forgetAll empties the prefix cache; the order of the free blocks stays.
func (p *pool) forgetAll() {
	clear(p.first)
	clear(p.known)
}
