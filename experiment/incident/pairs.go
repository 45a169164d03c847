package incident

// Pair is two incidents that are taken for each other, and what tells them apart.
type Pair struct {
	A, B  string
	Alike []string // signals that both move the same way
	Apart []string // signals that do not do the same in both
}

// Pairs are those of the catalogue of diagnosis (§4) that can be played: all but that of a slow device and a slow link between devices,
// since no link is simulated.
var Pairs = []Pair{
	{"thermal-throttling", "batch-growth", []string{TTFT}, []string{HeldHeat, Clock, PrefillRes, Arrivals}},
	{"thermal-throttling", "power-cap", []string{Clock, PrefillRes}, []string{HeldHeat, HeldPower, Temperature, PowerLimit}},
	{"thermal-throttling", "hardware-slowdown", []string{Clock, PrefillRes}, []string{Residual, MemoryClock, HeldHeat}},
	{"long-prefill", "collection-pauses", []string{ITLTail}, []string{Computed, HostTime}},
	{"kv-pressure", "eviction-storm", []string{Computed, TTFTTail}, []string{Preemptions, Hits}},
	{"saturation", "config-change", []string{Queue, TTFT}, []string{Arrivals, Changes}},
	{"host-bound", "hardware-slowdown", []string{Step, ITL}, []string{HostTime, Residual}},
	{"graph-miss", "batch-growth", []string{Running, Step, ITL}, []string{Graphs}},
	{"speculation-collapse", "hardware-slowdown", []string{TPOT}, []string{Accepted, Step}},
	{"slow-client", "hardware-slowdown", []string{ITLTail}, []string{Unread, Step}},
	{"cold-start", "config-change", []string{TTFTTail}, []string{Changes, Longest}},
	{"retry-storm", "saturation", []string{Queue, TTFTTail}, []string{Attempts, Arrivals}},
}
