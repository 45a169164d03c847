package world

import "time"

// World is engines, front ends, clients and GPUs in virtual time.
type World struct {
	config Config
	now    time.Duration
}

// Summary is what became of a run.
type Summary struct {
	Requests   int // of the workload that were sent
	Attempts   int
	Complete   int
	TimedOut   int           // attempts
	HungUp     int           // by the workload's own client
	Unfinished int           // requests, when the run was cut
	Iterations int           // with tokens, of all engines
	Tokens     int           // of output
	End        time.Duration // of the last event
}
