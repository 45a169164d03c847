package overhead

import (
	"context"
	"time"
)

// Arm is one side of a comparison.
type Arm string

// The arms. In a sham both servers have the probe off, and the second is called On all the same.
const (
	Off Arm = "off"
	On  Arm = "on"
)

// Servers gives the servers that are compared.
type Servers interface {
	// Start returns a server when it is healthy. With probe, whylate is in it, and its records are read as in production.
	Start(ctx context.Context, probe bool) (Server, error)

	// Fresh says that each server is another one. Else servers live on from run to run, their prefix caches too, and whether the probe
	// is in them cannot be seen.
	Fresh() bool
}

// Server is one that runs. It is for one goroutine.
type Server interface {
	URL() string

	// Usage reads what the server, and what runs beside it, have used so far. An error says that one of them has died.
	Usage() (Usage, error)

	// Output gives what the server has written between two positions in its log, the [Usage.Log] of two readings.
	Output(from, to int64) ([]byte, error)

	// Recorded gives what the probe wrote between two readings, the [Usage.At] of both; nothing where there is no probe.
	Recorded(from, to time.Duration) (Recorded, error)

	// Stop ends it and removes its rings.
	Stop() error
}

// Usage is what has been used since a server's start. What is nil is not known.
type Usage struct {
	At      time.Duration // of CLOCK_MONOTONIC
	CPU     map[Role]time.Duration
	Rings   *Rings
	Network *int64 // bytes between agent and server, both ways
	Capture *int64 // bytes of capture or spool on disk
	Log     *int64 // bytes of the server's log
}

// Role says whose processor time it is.
type Role string

// Roles. Engine and Frontend are both known or both not.
const (
	Engine   Role = "engine"   // engine core and workers
	Frontend Role = "frontend" // API servers and all else that the command started
	Reader   Role = "reader"   // the agent, or the capture
)

// Rings is what the headers of all rings of a server say together.
type Rings struct {
	Files      int
	Bytes      uint64 // ever written
	Iterations uint64 // launched
	Errors     uint64 // of hooks, which are off since
}
