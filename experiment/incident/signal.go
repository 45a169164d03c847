package incident

// Signal is a measurement that a truth speaks of. How each is read off a bundle, docs/incidents.md says.
type Signal struct {
	Name string
	Code string // in the catalogue of diagnosis
	Unit string
	What string
	// What of a difference is noise: a part of what it is without the fault, and an amount.
	Share, Floor float64
}

// Signals of a stretch of time.
const (
	Arrivals     = "arrivals"
	Attempts     = "attempts"
	PromptTokens = "prompt_tokens"
	OutputTokens = "output_tokens"
	Queue        = "queue"
	BehindHead   = "behind_head"
	Running      = "running"
	Context      = "decode_context"
	Computed     = "computed_tokens"
	Usage        = "kv_usage"
	Preemptions  = "preemptions"
	Hits         = "hit_ratio"
	Evictions    = "evictions"
	Step         = "step"
	Longest      = "longest_step"
	DeviceTime   = "device_time"
	Residual     = "residual"
	PrefillRes   = "residual_prefill"
	HostTime     = "host_time"
	Deciding     = "deciding"
	Unbuffered   = "client_lag"
	Frontend     = "frontend_time"
	Graphs       = "graph_share"
	Accepted     = "accepted"
	Throughput   = "throughput"
	Clock        = "clock"
	MemoryClock  = "memory_clock"
	Temperature  = "temperature"
	PowerLimit   = "power_limit"
	HeldHeat     = "held_by_heat"
	HeldPower    = "held_by_power"
	Straggling   = "straggling"
	Unread       = "unread"
	Imbalance    = "imbalance"
	Changes      = "changes"
	Penalties    = "costly_rows"
	Grammars     = "grammar_rows"
	Failures     = "failures"
	Incarnations = "incarnations"
	DriverErrors = "driver_errors"
	TTFT         = "ttft"
	TTFTTail     = "ttft_p95"
	ITL          = "itl"
	ITLTail      = "itl_p99"
	TPOT         = "tpot"
	Goodput      = "goodput"
)

// Signals is every one of them. Those of users are of interactive requests only: nobody waits for a batch job's.
var Signals = []Signal{
	{Arrivals, "ARR", "1/s", "first attempts, by the clients' records", 0.1, 0.2},
	{Attempts, "ARR", "1", "attempts for each request", 0.03, 0},
	{PromptTokens, "ARR", "tokens", "mean prompt of what arrives", 0.15, 0},
	{OutputTokens, "ARR", "tokens", "mean answer of what ends", 0.1, 0},
	{Queue, "Q", "requests", "waiting for the scheduler, mean over time", 0.2, 0.1},
	{BehindHead, "Q", "1/s", "sequences passed over in an iteration since the head of the line did not fit", 0.2, 2},
	{Running, "RUN", "requests", "running, mean over time", 0.15, 0.5},
	{Context, "KVL", "tokens", "context of the sequences in decode, mean over iterations", 0.2, 50},
	{Computed, "CTXT", "tokens/s", "prompt tokens computed", 0.15, 50},
	{Usage, "KVU", "1", "blocks that live requests hold, mean over time", 0.15, 0.03},
	{Preemptions, "PRE", "1", "preemptions", 0, 1},
	{Hits, "HIT", "1", "prompt tokens from cache, of all that were taken up", 0.05, 0.02},
	{Evictions, "EVI", "1/s", "blocks that were evicted", 0.2, 5},
	{Step, "STEP", "ms", "mean iteration", 0.1, 0},
	{Longest, "STEP", "ms", "longest iteration", 0.7, 0},
	{DeviceTime, "GPUT", "ms", "device's time of an iteration, mean", 0.1, 0},
	{Residual, "RES", "1", "device's time of iterations without prefill, over what their work takes on a healthy engine", 0.2, 0},
	{PrefillRes, "RES", "1", "the same, of iterations with prefill", 0.25, 0},
	{HostTime, "GAP", "ms", "an iteration's time without the device's, mean", 0.25, 0.1},
	{Deciding, "CPU", "ms", "from a decision to its launch, mean", 0.25, 0.03},
	{Unbuffered, "CLI", "ms", "from the front end's first byte to the client's first chunk, median", 0.5, 5},
	{Frontend, "CPU", "ms", "a request's time in the front end: before the engine, and after its last token without the waits for the client, mean", 0.2, 0.2},
	{Graphs, "GRAPH", "1", "iterations that replayed a full graph", 0.1, 0.02},
	{Accepted, "ACC", "1", "drafts that were accepted", 0.05, 0},
	{Throughput, "TPS", "tokens/s", "tokens emitted", 0.1, 0},
	{Clock, "SMC", "MHz", "clock of the SMs, mean", 0.02, 0},
	{MemoryClock, "MEMC", "MHz", "clock of the memory, mean", 0.02, 0},
	{Temperature, "TEMP", "°C", "highest", 0, 5},
	{PowerLimit, "LIM", "W", "least limit", 0.02, 0},
	{HeldHeat, "TTHERM", "s", "time that heat held clocks down", 0, 0.5},
	{HeldPower, "TPOW", "s", "time that a power cap held clocks down", 0, 0.5},
	{Straggling, "COLL", "1", "part of the steps' time that ranks waited for the slowest", 0, 0.03},
	{Unread, "CLI", "ms", "that the front end waited in sending an answer, mean", 0.2, 5},
	{Imbalance, "RUN", "1", "running on the fullest replica, over the mean", 0.12, 0},
	{Changes, "CFG", "1", "changes that were told", 0, 0},
	{Penalties, "", "1/s", "rows sampled with penalties", 0.2, 1},
	{Grammars, "", "1/s", "rows sampled under a grammar", 0.2, 1},
	{Failures, "", "1", "attempts that timed out, were refused or broke off", 0.1, 1},
	{Incarnations, "", "1", "engines of the whole run: one that is started again is another", 0, 0},
	{DriverErrors, "XID", "1", "errors of the driver", 0, 0},
	{TTFT, "", "ms", "time to the first token of interactive requests, median, by the client's clock", 0.2, 2},
	{TTFTTail, "", "ms", "the same, 95th percentile", 0.25, 10},
	{ITL, "", "ms", "gap between chunks of interactive requests, median, by the client's clock", 0.2, 0.3},
	{ITLTail, "", "ms", "the same, 99th percentile", 0.25, 3},
	{Goodput, "", "1", "interactive requests with their first token within 250 ms and at most 20 ms for each further one", 0.03, 0},
	{TPOT, "", "ms", "time per output token of interactive requests, median, by the client's clock", 0.2, 0.3},
}
