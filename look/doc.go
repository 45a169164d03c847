// Package look is the first command's mind: it reads what an engine, a gateway or a GPU already emits, without configuration, and says what
// is there, how the four paths are, and what is certainly wrong. It knows no history but what it is given and leaves nothing behind.
//
// A log of an engine is not kept: its lines go by once, and what its rules watch for is summed up (log*.go, rule_log_*.go).
//
// The way: inputs are recognised by content and become native tracks (read.go); adapters turn tracks into readings of registered signals
// (adapter/dialects); rules find facts in them, one file a rule (rule_*.go), and say which readings are no evidence; the rest is summed up
// path by path (paths.go) and printed (report.go).
package look
