package logline

import (
	"bytes"
	"strings"
)

// isPrefix says whether a text may be what somebody put before his lines: names, such as those of pod and container.
func isPrefix(b []byte) bool {
	if len(b) > maxProcess {
		return false
	}
	for _, word := range bytes.Fields(b) {
		if word = bytes.Trim(word, "[]<>():|,"); len(word) > 0 && !isName(word) {
			return false
		}
	}
	return true
}

// after is a header with the processes' prefixes before it.
func (h *header) after(found head, text []byte, from int) head {
	for {
		open := lastProcess(text[from:found.start])
		if open < 0 {
			return found
		}
		found.tags = h.processTags(bytes.TrimSpace(text[from+open : found.start])).and(found.tags)
		found.start = from + open
	}
}

// process is the length of a process's prefix at the beginning, "(EngineCore_DP0 pid=77)" or "(RayWorkerWrapper pid=812, ip=192.0.2.77)".
func process(b []byte) int {
	if len(b) == 0 || b[0] != '(' {
		return 0
	}
	end := bytes.IndexByte(b[:min(len(b), maxProcess)], ')')
	if end < 0 || !bytes.Contains(b[:end], []byte("pid=")) {
		return 0
	}
	return end + 1
}

const maxProcess = 200

// lastProcess is where the process's prefix begins that b ends with, -1 if it ends with none.
func lastProcess(b []byte) int {
	b = bytes.TrimRight(b, " ")
	if len(b) == 0 || b[len(b)-1] != ')' {
		return -1
	}
	low := max(0, len(b)-maxProcess)
	open := bytes.LastIndexByte(b[low:], '(')
	if open < 0 || process(b[low+open:]) != len(b)-low-open {
		return -1
	}
	return low + open
}

// maxPrefixes is how many prefixes are remembered; a log has a few.
const maxPrefixes = 1024

// remember is the tags of a prefix, read once.
func (h *header) remember(prefix []byte, read func(string) Tags) Tags {
	if ts, ok := h.tags[string(prefix)]; ok {
		return ts
	}
	if h.tags == nil || len(h.tags) >= maxPrefixes {
		h.tags = map[string]Tags{}
	}
	s := string(prefix)
	h.tags[s] = read(s)
	return h.tags[s]
}

func (h *header) processTags(prefix []byte) Tags {
	return h.remember(prefix, func(s string) (ts Tags) {
		for i, word := range strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
			name, value, ok := strings.Cut(word, "=")
			if !ok && i == 0 {
				name, value = "process", word
			}
			if value != "" && isName([]byte(value)) && isName([]byte(name)) {
				ts = append(ts, Tag{name, value})
			}
		}
		return ts
	})
}

// rankTags are "DP1 TP2" as they stand after a time.
func (h *header) rankTags(ranks []byte) Tags {
	if len(ranks) == 0 {
		return nil
	}
	return h.remember(ranks, func(s string) (ts Tags) {
		for _, word := range strings.Fields(s) {
			name := strings.TrimRight(word, "0123456789")
			if name != "" && isName([]byte(word)) {
				ts = append(ts, Tag{name, strings.TrimPrefix(word, name)})
			}
		}
		return ts
	})
}

// intern is a text that is the same string every time.
func (h *header) intern(b []byte) string {
	return h.remember(b, func(s string) Tags { return Tags{{"", s}} }).Get("")
}
