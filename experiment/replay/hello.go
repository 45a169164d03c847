package replay

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/whylate/whylate/wire"
)

// Hello describes this process as the client of a replay, for a [Recorder]. The version is whylate's own, the run that of
// [Options.Run], by which several replays of one process are told apart.
func Hello(version, run string) (wire.Hello, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return wire.Hello{}, fmt.Errorf("identify this boot of the host: %w", err)
	}
	start, err := startOf("/proc/self/stat")
	if err != nil {
		return wire.Hello{}, fmt.Errorf("identify this process: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return wire.Hello{}, fmt.Errorf("identify the host: %w", err)
	}
	clock := clockPair()
	return wire.Hello{
		Time:     clock.MonoAfter,
		Protocol: [2]uint16{wire.Major, wire.Minor},
		Producer: wire.Producer{Name: "whylate-replay", Version: version},
		Role:     "client", Thread: run,
		PID: uint32(os.Getpid()), Start: start, Boot: strings.TrimSpace(string(boot)), Host: host,
		Clock:        [3]int64{clock.MonoBefore, clock.Realtime, clock.MonoAfter},
		Settings:     map[string]any{"run": run},
		Capabilities: map[string]bool{},
	}, nil
}

// startOf returns when a process started, in clock ticks since boot: field 22 of its stat file. The fields are counted from
// behind the command, which may itself hold spaces and parentheses.
func startOf(stat string) (uint64, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const state, startTime = 3, 22 // by number; the state is the first behind the command
	if len(fields) <= startTime-state {
		return 0, fmt.Errorf("%s has %d fields behind the command, want %d", stat, len(fields), startTime-state+1)
	}
	start, err := strconv.ParseUint(fields[startTime-state], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: start time: %w", stat, err)
	}
	return start, nil
}

// clockPair reads CLOCK_REALTIME between two readings of CLOCK_MONOTONIC, so that a reader knows by how much the pair may err.
func clockPair() wire.Clock {
	before := now(unix.CLOCK_MONOTONIC)
	real := now(unix.CLOCK_REALTIME)
	after := now(unix.CLOCK_MONOTONIC)
	return wire.Clock{Time: after, MonoBefore: before, Realtime: real, MonoAfter: after}
}
