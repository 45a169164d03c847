// Package replay sends a workload to a live engine over its OpenAI-compatible endpoint and records what each client saw.
//
// The loop is open: a request is sent at its planned time, whatever became of those before it, as the users of a service do.
// What the generator itself could not keep up with is never hidden: every latency is counted from the planned time as well as
// from the real one, and the summary states by how much sending was late.
//
// All times are nanoseconds of the host's CLOCK_MONOTONIC, the clock of the probes in the engine, so that on one host both
// records lie on one line without any alignment. 0 stands for a time that is not known.
package replay
