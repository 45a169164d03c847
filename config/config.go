package config

import "time"

// Config is every setting of whylate, validated. Sizes are bytes. A path is absolute, or "" where none is set.
type Config struct {
	Listen     Listen
	TLS        TLS
	TokensFile string
	DataDir    string
	Rings      Rings
	GPU        GPU
	Log        Log
	Store      Store
	Spans      Spans
	Limits     Limits
	Metrics    Metrics
	Objectives Objectives
	Scrape     Scrape
	Identity   Identity
	OTLP       OTLP
	Agent      Agent
	Export     Export

	layers map[string][]layer // by key, the winner last; what Explain tells
}

// Listen says where the server is reached. An address is host:port, or "" where it was switched off.
type Listen struct {
	HTTP   string // API, /healthz, /readyz, /metrics
	Agents string // streams of agents
	Unix   string // streams of agents on this host

	AgentsTokens string // file with the tokens of agents; "" asks for none
}

// TLS is what the server shows and asks for on both its TCP addresses. Without Cert there is no TLS.
type TLS struct {
	Cert, Key string
	ClientCA  string // "" asks for no client certificate
}

// Rings says which rings of this host are read.
type Rings struct {
	Dir    string
	Follow bool // the server reads them itself, without an agent
}

// GPU says whether and how this host's GPUs are sampled.
type GPU struct {
	Sample bool
	Every  time.Duration
	Helper string // path of whylate-gpu; "" = beside the program, else on the PATH
	SMI    string // path of nvidia-smi; "" = on the PATH
}

// Log says what is logged to standard error.
type Log struct {
	Level  string // debug, info, warn or error
	Format string // text or json
}

// Store says how long what is kept, and where it is written how often.
type Store struct {
	SealEvery time.Duration
	HotPeriod time.Duration
	// HotIterations bounds the hot period where many engines are fast.
	HotIterations int
	Retention     Retention
	WAL           WAL
}

// Retention is how long sealed rows are kept, by purpose. [Forever] keeps them.
type Retention struct {
	Iterations time.Duration
	Requests   time.Duration
}

// WAL is the write-ahead log.
type WAL struct {
	SegmentBytes int64
}

// Spans says how long spans are waited for before their calls are sealed.
type Spans struct {
	Quiet, Age time.Duration
	InMemory   int
}

// Limits bound what senders and readers may make the server hold.
type Limits struct {
	Connections   int
	InFlightBytes int64
	RequestBody   int64
}

// Agent is what 'whylate agent' needs besides Rings.Dir and Log.
type Agent struct {
	Server     string // as stream.ParseTarget reads it
	TokenFile  string
	TLS        AgentTLS
	SpoolDir   string
	SpoolBytes int64
	KeyFile    string
}

// AgentTLS is how the agent speaks TLS, which it does where Agent.Server says so.
type AgentTLS struct {
	CA        string // "" trusts the system's
	Cert, Key string // the agent's own certificate, where the server asks for one
	Name      string // of the server in its certificate; "" expects the host of Agent.Server
}

// Forever is a retention without an end.
const Forever = time.Duration(1<<63 - 1)
