package agent

import (
	"os"
	"strconv"
	"strings"

	"github.com/whylate/whylate/ingest/stream"
)

// Identify says who this process is.
func Identify(version string) stream.Identity {
	i := stream.Identity{PID: os.Getpid(), Version: version, Start: processStart()}
	i.Host, _ = os.Hostname()
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		i.Boot = strings.TrimSpace(string(b))
	}
	return i
}

// processStart is when this process began, in clock ticks since boot: field 22 of /proc/self/stat, behind the name, which may hold anything.
func processStart() uint64 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64)
	return n
}
