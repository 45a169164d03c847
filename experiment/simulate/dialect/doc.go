// Package dialect says in the words of others what probes say on the wire: vLLM's metrics page, log and spans, and the pages of the DCGM
// exporter. So a simulated run can be read in every way in which a real one is. It is made of wire messages alone: those of a real capture
// give the page that the engine itself had, as far as the wire holds what it is made of (docs/dialects.md says what it does not).
//
// Its parts are recorders: [Bundle] writes a run bundle, [Live] rings and a metrics endpoint, [Play] takes a recorder through a capture.
package dialect
