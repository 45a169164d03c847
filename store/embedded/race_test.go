//go:build race

package embedded

func init() { sparse = 12 }
