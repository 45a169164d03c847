package overhead

import (
	"regexp"
	"strconv"
	"time"
)

// stampPrefix makes vLLM begin each line of its log with when the line was made, in µs: by itself it tells whole seconds.
const stampPrefix = "VLLM_LOGGING_PREFIX=@%(created).6f "

// iterationLine is a line of vLLM's log under --enable-logging-iteration-details, stamped by [stampPrefix].
var iterationLine = regexp.MustCompile(`@(\d+\.\d{6}) [^\n]*?(Engine \d+: )?Iteration\((\d+)\): [^\n]*? (\d+) generation requests, [^\n]*?elapsed time: (\d+\.\d\d) ms`)

// minGaps is how many gaps are needed for a mean.
const minGaps = 100

// hostGap is the mean time from one iteration's result to the wait for the next one's, while there is work: what the engine's own code and
// the probe take of each iteration, by the engine's own clock. Before an iteration that goes on with nobody's answer the engine may have
// been idle: that is no gap. A line is stamped a little after its iteration's end, by another process in newer versions; over a stretch of
// iterations these delays cancel. False if there are too few gaps.
func hostGap(log []byte) (mean time.Duration, ok bool) {
	type end struct {
		index uint64
		at    float64 // s
	}
	last := map[string]end{} // by engine
	var sum float64          // s
	n := 0
	for _, m := range iterationLine.FindAllSubmatch(log, -1) {
		at, _ := strconv.ParseFloat(string(m[1]), 64) // the expression lets nothing else pass
		elapsed, _ := strconv.ParseFloat(string(m[5]), 64)
		index, err := strconv.ParseUint(string(m[3]), 10, 64)
		if err != nil {
			continue
		}
		engine := string(m[2])
		before, seen := last[engine]
		last[engine] = end{index, at}
		if !seen || index != before.index+1 || string(m[4]) == "0" {
			continue
		}
		sum += at - elapsed/1e3 - before.at
		n++
	}
	if n < minGaps {
		return 0, false
	}
	return time.Duration(sum / float64(n) * 1e9), true
}
