// Package timing says how long an iteration of a simulated engine takes, given what it computes.
//
// There are three bodies of [Model]. [Calibrated] is learned from a ledger and gives back the run's own spread: its residuals are
// real ones, drawn again. [Synthetic] is an engine made up of known parts (graph sizes, jitter, collections, drift), whose true
// parameters an experiment can be held against. [Roofline] is reckoned from data sheets: its answers are no times, only ratios, and
// it says so ([UnitOf]).
//
// None shares a parameter with account.Model, which will judge what they made.
package timing
