// Package process reads what the kernel tells of a group of processes: their titles, and the processor time that they have used.
package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Process is one of a group.
type Process struct {
	PID   int
	Title string        // its command line, which a program may rewrite: "VLLM::EngineCore"
	CPU   time.Duration // user and system time of all its threads since its start, in steps of 10 ms; not of its children
}

// tick is the unit of the times in /proc, the same on every Linux that Go runs on.
const tick = time.Second / 100

// Where fields stand behind the name, from 0: their number in proc_pid_stat(5) less 3.
const (
	state = 0
	group = 2
	utime = 11
	stime = 12
)

// Group returns the living processes of a process group, in no order. One that ends meanwhile is left out.
func Group(pgid int) ([]Process, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var ps []Process
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // the name in parentheses may contain anything
		if len(fields) <= stime || string(fields[state]) == "Z" || string(fields[group]) != strconv.Itoa(pgid) {
			continue
		}
		title, err := os.ReadFile(filepath.Join(filepath.Dir(stat), "cmdline"))
		if err != nil {
			continue
		}
		user, err1 := strconv.ParseInt(string(fields[utime]), 10, 64)
		system, err2 := strconv.ParseInt(string(fields[stime]), 10, 64)
		pid, err3 := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err1 != nil || err2 != nil || err3 != nil {
			return nil, fmt.Errorf("%s: times %q and %q are no numbers", stat, fields[utime], fields[stime])
		}
		ps = append(ps, Process{pid, strings.TrimSpace(strings.ReplaceAll(string(title), "\x00", " ")), time.Duration(user+system) * tick})
	}
	return ps, nil
}
