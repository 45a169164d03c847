package agent

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/ingest/stream"
)

// Settings are what an agent needs to know. A value of 0 means the default, which is said with each.
type Settings struct {
	// RingDir is where the probes put their rings. It need not exist yet.
	RingDir string
	// Server is how to come to the server, and who this agent says that it is.
	Server stream.Dialer
	// Key keys block hashes; see [LoadKey].
	Key []byte
	// SpoolDir is where data go that the memory has no room for. It is made if it is missing.
	SpoolDir string
	// SpoolLimit is how many bytes may lie there. Beyond it the oldest are dropped. Default 1 GiB.
	SpoolLimit int64
	// MemoryLimit is how many bytes of frames the agent holds in memory until they are acknowledged. Default 8 MiB.
	MemoryLimit int64
	// Window is how many of them may be on their way at once. Default 2 MiB.
	Window int64
	// PollEvery is how often the rings are read. Default 100 ms.
	PollEvery time.Duration
	// BeatEvery is how often it is judged what the writers are doing. Default 1 s.
	BeatEvery time.Duration
	// HeartbeatEvery is how often that is said if it does not change. Default 10 s.
	HeartbeatEvery time.Duration
	// Retention is how long the ring of a dead writer is kept, as its flight recorder. Default 1 h.
	Retention time.Duration
	// DeadLimit is how many bytes the rings of dead writers may have after their retention, if they are not acknowledged. Default 1 GiB.
	DeadLimit int64
	// MaxBackoff is the longest pause between two attempts to connect. Default 30 s.
	MaxBackoff time.Duration
	Liveness   LivenessSettings
	// GPU says how the host's GPUs are sampled; nil means that they are not.
	GPU *gpu.Settings
	// Jitter spreads pauses: it gives a number from 0 to 1. Nil means none.
	Jitter func() float64
	// Log is where the agent says what happens; nil means nowhere.
	Log *slog.Logger
}

// withDefaults fills in what is not set.
func (s Settings) withDefaults() Settings {
	s.SpoolLimit = cmp.Or(s.SpoolLimit, 1<<30)
	s.MemoryLimit = cmp.Or(s.MemoryLimit, 8<<20)
	s.Window = cmp.Or(s.Window, 2<<20)
	s.PollEvery = cmp.Or(s.PollEvery, 100*time.Millisecond)
	s.BeatEvery = cmp.Or(s.BeatEvery, time.Second)
	s.HeartbeatEvery = cmp.Or(s.HeartbeatEvery, 10*time.Second)
	s.Retention = cmp.Or(s.Retention, time.Hour)
	s.DeadLimit = cmp.Or(s.DeadLimit, 1<<30)
	s.MaxBackoff = cmp.Or(s.MaxBackoff, 30*time.Second)
	if s.Jitter == nil {
		s.Jitter = func() float64 { return 0 }
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return s
}
