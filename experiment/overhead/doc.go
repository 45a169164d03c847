// Package overhead measures what whylate costs an engine: one load, played to servers with the probe on and off, in pairs whose order is
// drawn. A run of a whole server is the replicate, never a request: requests of one run share the machine's mood, and a thousand of them
// are no thousand measurements.
//
// [Bench] plays and compares. What is compared is behind [Servers]: [Command] starts one anew for each run, [Endpoints] are two
// servers that run already.
package overhead
