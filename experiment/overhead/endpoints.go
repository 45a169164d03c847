package overhead

import (
	"context"
	"fmt"
	"time"
)

// Endpoints are two servers that run already: one with the probe, one without. What is seen of them is what their clients see.
type Endpoints struct {
	On, Off string // base URLs
}

// Fresh is false: they live on.
func (Endpoints) Fresh() bool { return false }

// Start returns one of them.
func (e Endpoints) Start(_ context.Context, probe bool) (Server, error) {
	if probe {
		return endpoint(e.On), nil
	}
	return endpoint(e.Off), nil
}

// String says what is compared.
func (e Endpoints) String() string {
	return fmt.Sprintf("running endpoints, on %s, off %s", e.On, e.Off)
}

// Notes says what this way of measuring cannot tell apart.
func (e Endpoints) Notes() []string {
	return []string{
		"Two servers were compared: what else differs between them (machine, GPU, neighbours, age) is in the differences. Swap --on and --off, or start servers afresh, to see how much.",
		"Whether the probe runs in one and not in the other was not checked; CPU, rings and bytes were not measured.",
	}
}

type endpoint string

func (e endpoint) URL() string                                 { return string(e) }
func (endpoint) Usage() (Usage, error)                         { return Usage{}, nil }
func (endpoint) Output(int64, int64) ([]byte, error)           { return nil, nil }
func (endpoint) Recorded(_, _ time.Duration) (Recorded, error) { return Recorded{}, nil }
func (endpoint) Stop() error                                   { return nil }
