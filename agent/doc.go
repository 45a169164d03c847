// Package agent follows the rings of a host and forwards what is in them to a whylate server.
//
// It reads rings, keys block hashes so that raw ones never leave the host, says of each writer whether it is working, idle, stuck
// or dead, and sends all that over an ingest/stream connection. What the server has acknowledged is the server's; until then it is in
// the ring, in a bounded memory, or in a bounded spool on disk, in that order: a server that is away costs first nothing, then
// disk, and only when that is full the oldest data, which leaves a gap record. No engine ever waits for an agent: rings do not.
//
// [Agent.Step] does all of it, for an instant that it is given; [Agent.Run] calls it by the clock.
package agent
