// Package apptest proves the system as it is served: its tests start the real command line in processes of their own, feed them over
// the ways that agents, engines and people use, kill them, and hold their answers against those of the same frames read as a file. It
// holds nothing but tests.
package apptest
