// Package world plays serving incidents: engines that decide as vLLM's scheduler does, front ends, a router, clients and GPUs, in
// virtual time. What their probes would have recorded it tells a [Recorder], message by message, in the words of the wire.
//
// A world is one goroutine's, reads no clock and draws all randomness from its seed: equal configurations give equal messages. What
// it holds is what is alive; a run ten times as long needs no more memory. How faithful it is, docs/simulate.md and
// docs/fidelity.md say.
package world
