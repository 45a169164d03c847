// Package ingest turns frames into the ledger: it puts every producer's times on one line, follows each scheduler's decisions
// and completions, joins what front end, engine and client say of one request, and turns whatever is missing or cannot be
// right into gap records. One [Assembler] takes the frames of any number of sources, in any interleaving; within one
// source the order is the producer's.
package ingest
