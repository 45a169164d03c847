package dialect

import (
	"strconv"
	"strings"
)

// version is a vLLM's major × 1000 + minor. Two are known word for word: 0.20 (0.20.2) and 0.32 (0.32.0). One before 0.32 speaks as 0.20 does,
// every other one as 0.32: in which version between them a name came first is not known for all.
type version int

const (
	newest version = 32
	// details is the first one whose front end prints the iterations, and not the engine.
	details version = 26
)

// versionOf reads "0.32.0"; what cannot be read is the newest.
func versionOf(text string) version {
	major, rest, _ := strings.Cut(text, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err != nil || err2 != nil {
		return newest
	}
	return version(a*1000 + b)
}

// iterationPrompt is how many prompt tokens a version counts to an iteration: those computed, formerly all.
func (v version) iterationPrompt(o *output) int {
	if v < newest {
		return o.prompts
	}
	return o.prompts - o.cached
}
