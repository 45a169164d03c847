//go:build race

package incident

// raced: the race detector makes a play twenty times as dear, and a play is one goroutine: a few of each kind are enough.
const raced = true
