package world

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/wire"
)

// Crash ends all processes of the replica: nothing more is recorded of them, their clients' connections break, and new ones are
// refused until [World.Restart].
func (s *Server) Crash() {
	if s.dead {
		return
	}
	s.dead = true
	broken := make([]*exchange, 0, len(s.open))
	for x := range s.open {
		broken = append(broken, x)
	}
	slices.SortFunc(broken, func(a, b *exchange) int { return cmp.Compare(a.http, b.http) })
	for _, x := range broken {
		s.cut(x)
	}
	clear(s.open)
}

// cut breaks a client's connection.
func (s *Server) cut(x *exchange) {
	x.over = true
	s.world.exchanges[s.place]--
	s.world.later(x.client.Network, func() { x.done(wire.OutcomeConnectionError) })
}

// Restart starts the processes of a replica anew, with what its configuration says now: another incarnation, with an empty cache, on
// the same host and GPUs. What ran before is ended.
func (w *World) Restart(replica int) {
	before := w.replicas[replica]
	before.Crash()
	s, err := w.newServer(before.config, replica, before.machine, before)
	if err != nil {
		w.fail(err)
		return
	}
	w.replicas[replica] = s
}

// Config is the replica's configuration. What is changed in it counts from the next [World.Restart] on.
func (s *Server) Config() *Replica { return s.config }

// Dead reports whether its processes have ended.
func (s *Server) Dead() bool { return s.dead }
