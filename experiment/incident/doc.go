// Package incident is the practice ground: serving incidents whose cause is known. Each is one mechanism of the catalogue of diagnosis,
// played in a simulated world ([world]) with a severity, an onset and an end, and comes with its truth: what caused it, which signals move,
// which must not, and what would cure it. Beside each stands a twin that looks alike and harms nobody, and beside them stand faults of
// telemetry, where only the evidence is wrong.
//
// docs/incidents.md says what is in it, and what whylate finds of it today.
package incident
