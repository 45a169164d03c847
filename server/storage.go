package server

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/store"
)

// storage says how much room there is, and from what has been sealed so far how long it will do.
func (s *Server) storage(periods []store.PeriodInfo) *api.Storage {
	if s.set.DataDir == "" {
		return nil
	}
	out := &api.Storage{Dir: s.set.DataDir, Log: s.store.LogInfo().Bytes}
	var st unix.Statfs_t
	if err := unix.Statfs(s.set.DataDir, &st); err == nil {
		out.Total, out.Free = int64(st.Blocks)*st.Bsize, int64(st.Bavail)*st.Bsize
	}
	var from, to int64
	for _, p := range periods {
		out.Sealed += p.Size()
		if p.From != 0 && (from == 0 || p.From < from) {
			from = p.From
		}
		to = max(to, p.To)
	}
	span := time.Duration(to - from)
	if span < 10*time.Minute { // too little to say anything about a day
		return out
	}
	out.PerDay = int64(float64(out.Sealed) * float64(24*time.Hour) / float64(span))
	keeps := s.set.Retention.Detail
	if out.PerDay > 0 && out.Free > 0 {
		full := time.Duration(float64(out.Free) / float64(out.PerDay) * float64(24*time.Hour))
		if keeps == 0 || span+full < keeps {
			out.FullIn = int64(full)
		}
	}
	return out
}
