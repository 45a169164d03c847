package simulate

// find collects the cached blocks a request begins with: never all of its tokens, since the last must be computed.
func (s *Scheduler) find(q *Sequence) []int32 {
	s.hits = s.hits[:0]
	if !s.settings.PrefixCaching {
		return s.hits
	}
	for i := range (q.Tokens - 1) / s.settings.BlockSize {
		b, ok := s.pool.lookup(q.Hash(i))
		if !ok {
			break
		}
		s.hits = append(s.hits, b)
	}
	return s.hits
}

// grow gives a running sequence blocks for its next tokens, and says whether there were enough.
func (s *Scheduler) grow(q *Sequence, tokens int) bool {
	missing := s.blocks(q.Computed+tokens) - len(q.Blocks)
	if missing > s.pool.free {
		return false
	}
	s.take(q, missing)
	s.cache(q, min(q.Computed+tokens, q.Tokens))
	return true
}

// admit gives a waiting sequence the blocks it hit and those for its first tokens. If there are not enough, it says how many it needs.
func (s *Scheduler) admit(q *Sequence, hits []int32, tokens int) (need int, ok bool) {
	needed := 0 // blocks that are free now and no longer after
	for _, b := range hits {
		if s.pool.refs[b] == 0 {
			needed++
		}
	}
	if s.rules.Watermark && len(s.running) > 0 {
		needed += s.settings.WatermarkBlocks
	}
	if need = needed + max(s.blocks(q.Tokens)-len(hits), 0); s.settings.ReserveInput && need > s.pool.free {
		return need, false
	}
	end := len(hits)*s.settings.BlockSize + tokens
	missing := s.blocks(end) - len(hits)
	if need = needed + max(missing, 0); need > s.pool.free {
		return need, false
	}
	for _, b := range hits {
		s.pool.share(b)
	}
	q.Blocks = append(q.Blocks, hits...)
	q.Cached = len(hits)
	s.take(q, missing)
	s.cache(q, min(end, q.Tokens))
	return need, true
}

// blocks is how many hold some first tokens of a sequence.
func (s *Scheduler) blocks(tokens int) int {
	return (min(tokens, s.settings.MaxLength) + s.settings.BlockSize - 1) / s.settings.BlockSize
}

func (s *Scheduler) take(q *Sequence, blocks int) {
	for range blocks {
		b, lost := s.pool.take()
		q.Blocks = append(q.Blocks, b)
		if lost && s.watcher != nil {
			s.watcher.Evicted(s.pool.user[b], s.pool.hash[b])
		}
	}
}

// cache makes the full blocks of a sequence's first tokens known to the prefix cache.
func (s *Scheduler) cache(q *Sequence, tokens int) {
	if !s.settings.PrefixCaching {
		return
	}
	full, first := tokens/s.settings.BlockSize, q.Cached
	for ; q.Cached < full; q.Cached++ {
		s.pool.cache(q.Blocks[q.Cached], q.Hash(q.Cached))
	}
	if n := q.Cached - first; n > 0 && s.watcher != nil {
		s.watcher.Filled(q, first, n)
	}
}
