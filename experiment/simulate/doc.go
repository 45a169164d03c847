// Package simulate decides as vLLM V1's scheduler does: who runs in an iteration, with how many tokens, who is preempted, what
// the prefix cache gives and loses. It knows no model and no time: an iteration is one call of [Scheduler.Decide], and what the
// model would have answered is given to [Scheduler.Complete]. Equal inputs give equal decisions.
//
// What is simulated, what is not, and how closely, is told in docs/fidelity.md; 'make scheduler-diff' measures it.
package simulate
