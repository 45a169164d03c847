//go:build !race

package incident

const raced = false
