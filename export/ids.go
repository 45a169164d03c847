package export

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/whylate/whylate/ledger"
)

// lineage is where a request's spans hang.
type lineage struct {
	trace  []byte // 16 bytes
	parent []byte // 8 bytes, nil where the request came without a parent
	random bool   // the last 7 bytes of the trace id are random: our own hash, or the caller says so
	seed   string // what span ids are made from
}

// W3C trace flags, which are also the low bits of a span's flags.
const (
	flagSampled = 1
	flagRandom  = 2
)

// lineageOf is the request's own trace where it came with one, else one made from what the request is, so that exporting it again makes
// the same spans. Attempts under one X-Request-Id are siblings in one trace.
func lineageOf(r *ledger.Request) lineage {
	l := lineage{seed: identity(r)}
	if trace, parent, flags, ok := parseTraceParent(r.TraceParent); ok {
		l.trace, l.parent, l.random = trace, parent, flags&flagRandom != 0
		return l
	}
	of := l.seed
	if r.RequestID != "" {
		of = "request " + r.RequestID
	}
	sum := sha256.Sum256([]byte("whylate trace " + of))
	l.trace, l.random = sum[:16], true
	return l
}

// identity names one attempt, the same whenever it is asked: the engine's id of its first sequence, else the moment it was received, as its
// producer's own clock told it.
func identity(r *ledger.Request) string {
	var first *ledger.Sequence
	for _, q := range r.Sequences {
		if first == nil || q.ID < first.ID {
			first = q
		}
	}
	if first != nil {
		incarnation := ""
		if first.Engine != nil {
			incarnation = first.Engine.ID.Incarnation
		}
		return "sequence " + incarnation + " " + first.ID
	}
	return fmt.Sprintf("received %s %d %s", r.FrontClock.Domain, r.Received-r.FrontClock.Offset, cmp.Or(r.RequestID, r.TraceParent))
}

// span is the id of one span of the request.
func (l *lineage) span(name string) []byte {
	sum := sha256.Sum256([]byte("whylate span " + l.seed + " " + name))
	return sum[:8]
}

// randomness is the request's R of OpenTelemetry's consistent probability sampling: 56 bits. Where the trace id is not known to be random, it
// is a hash of the trace id, which the span then carries as rv.
func (l *lineage) randomness() uint64 {
	if l.random {
		return binary.BigEndian.Uint64(l.trace[8:]) & (whole - 1)
	}
	sum := sha256.Sum256(append([]byte("whylate rv "), l.trace...))
	return binary.BigEndian.Uint64(sum[:8]) & (whole - 1)
}

func parseTraceParent(s string) (trace, parent []byte, flags byte, ok bool) {
	f := strings.Split(strings.TrimSpace(s), "-")
	if len(f) < 4 || len(f[0]) != 2 || f[0] == "ff" || len(f[1]) != 32 || len(f[2]) != 16 || len(f[3]) != 2 {
		return nil, nil, 0, false
	}
	trace, err1 := hex.DecodeString(f[1])
	parent, err2 := hex.DecodeString(f[2])
	bits, err3 := hex.DecodeString(f[3])
	if err1 != nil || err2 != nil || err3 != nil || zero(trace) {
		return nil, nil, 0, false
	}
	if zero(parent) {
		parent = nil
	}
	return trace, parent, bits[0], true
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
