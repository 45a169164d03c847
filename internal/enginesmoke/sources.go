package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// logLine is one line of the engine's own iteration log: 0-based, empty steps skipped, recompute counted as generation.
type logLine struct {
	index   int
	tokens  int     // context and generation
	elapsed float64 // ms, of waiting for the result alone
}

var iterationLine = regexp.MustCompile(`Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, (\d+) generation tokens, iteration elapsed time: ([0-9.]+) ms`)

func (s *smoke) readLog() error {
	b, err := os.ReadFile(filepath.Join(s.dir, "engine.log"))
	if err != nil {
		return err
	}
	for _, m := range iterationLine.FindAllStringSubmatch(string(b), -1) {
		n := make([]int, 6)
		for i := 1; i < 6; i++ {
			n[i], _ = strconv.Atoi(m[i])
		}
		elapsed, _ := strconv.ParseFloat(m[6], 64)
		s.log = append(s.log, logLine{n[1], n[3] + n[5], elapsed})
	}
	if strings.Contains(string(b), "whylate") {
		for _, line := range strings.Split(string(b), "\n") {
			if strings.Contains(line, "whylate_vllm") && strings.Contains(line, "disabled") {
				return fmt.Errorf("a hook of the probe disabled itself: %s", line)
			}
		}
	}
	return nil
}
