package overhead

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// engineLog writes n iterations of 8 ms with a gap between them, stamped late by up to 2 ms, in the words of vLLM 0.32.0.
func engineLog(n int, gap time.Duration) []byte {
	var b strings.Builder
	draw := rand.New(rand.NewPCG(1, 2))
	at := 1_800_000_000.0
	for i := range n {
		at += gap.Seconds() + 0.008
		generating := 4
		if i%40 == 20 { // nothing to do for a while, then a new request
			at += 0.03
			generating = 0
		}
		fmt.Fprintf(&b, "@%.6f (APIServer pid=7) INFO 11-30 00:03:40 [loggers.py:199] Engine 000: Iteration(%d): 0 context requests, 0 context tokens, %d generation requests, 4 generation tokens, iteration elapsed time: 8.00 ms, GPU KV cache usage: 0.1%%\n",
			at+0.002*draw.Float64(), i, generating)
		if i%50 == 0 {
			b.WriteString("(APIServer pid=7) INFO:     127.0.0.1 - \"POST /v1/completions HTTP/1.1\" 200 OK\n")
		}
	}
	return []byte(b.String())
}

func TestHostGapOfALog(t *testing.T) {
	got, ok := hostGap(engineLog(2000, 700*time.Microsecond))
	if !ok || got < 680*time.Microsecond || got > 720*time.Microsecond { // the stamps' jitter cancels but at the ends of 50 stretches
		t.Errorf("%v %v, want 700 µs", got, ok)
	}
	older := strings.ReplaceAll(string(engineLog(2000, 700*time.Microsecond)), "@", "(EngineCore_DP0 pid=9) @")
	older = strings.ReplaceAll(older, "Engine 000: ", "")
	if again, ok := hostGap([]byte(older)); !ok || again != got {
		t.Errorf("vLLM 0.24's form: %v %v, want %v", again, ok, got)
	}
	if _, ok := hostGap(engineLog(100, time.Millisecond)); ok { // 97 gaps
		t.Error("too few gaps were taken for enough")
	}
	if _, ok := hostGap([]byte("no log\n")); ok {
		t.Error("a gap of nothing")
	}
	if _, ok := hostGap([]byte(strings.ReplaceAll(string(engineLog(2000, 0)), "@", ""))); ok {
		t.Error("without stamps there is no gap")
	}
}
