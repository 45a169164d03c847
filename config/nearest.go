package config

import "strings"

// Nearest is the candidate that takes the fewest edits, else one that the name begins with, or "" where none is near enough to
// have been meant.
func Nearest(name string, candidates []string) string {
	best, least := "", max(len([]rune(name))/3, 1)+1
	for _, c := range candidates {
		if d := distance(name, c); d < least {
			best, least = c, d
		}
	}
	for _, c := range candidates {
		if best == "" && len(c) > 2 && strings.HasPrefix(name, c) {
			best = c
		}
	}
	return best
}

// distance counts insertions, deletions, replacements and swaps of neighbours that turn a into b. Names are short: longer ones
// are far from everything.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	if len(x) > 64 || len(y) > 64 {
		return max(len(x), len(y))
	}
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range last {
		last[j] = j
	}
	for i := range x {
		row[0] = i + 1
		for j := range y {
			cost := 1
			if x[i] == y[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(y)]
}
