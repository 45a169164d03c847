// Package ledger is the vocabulary of whylate: requests, sequences, engines, iterations, stints, skips, preemptions and
// gaps, and the rules ([Check]) by which their books balance. It imports nothing but the standard library and does no I/O.
//
// The many-to-many truth between requests and iterations is stored as stints ([Stint]: an unbroken run of iterations in
// which a sequence was scheduled in the same phase) and skips ([Skip]: an unbroken run in which it was not, with the
// reason). Who shared iteration 411? The stints that span it. Where was R? R's stints.
package ledger
