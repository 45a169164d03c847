package logline

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// wrapper is what one layer around a message says.
type wrapper struct {
	text          []byte
	at            stamp
	level, source string
	tags          Tags
	stream        string // which of a container's, if the wrapper is a runtime's
	more          bool   // the message goes on in the stream's next line
}

func unwrap(b []byte) (wrapper, bool) {
	for _, f := range [...]func([]byte) (wrapper, bool){cri, structured, compose, pod, journal} {
		if w, ok := f(b); ok {
			return w, true
		}
	}
	return wrapper{}, false
}

// compose is docker compose's prefix, "engine-1  | text". Its names end with a number; another word may be anybody's.
func compose(b []byte) (wrapper, bool) {
	end := bytes.Index(b[:min(len(b), 100)], []byte(" | "))
	if end < 0 {
		return wrapper{}, false
	}
	name := bytes.TrimRight(b[:end], " ")
	if !isName(name) || !isDigit(name[len(name)-1]) || !bytes.ContainsAny(name, "-_") {
		return wrapper{}, false
	}
	return wrapper{text: b[end+3:], tags: Tags{{"from", string(name)}}}, true
}

// pod is the prefix of kubectl logs --prefix, "[pod/engine-0/server] text", of torch, "[rank0]: text", and of old SGLang, "[gpu=0] text".
func pod(b []byte) (wrapper, bool) {
	if len(b) == 0 || b[0] != '[' {
		return wrapper{}, false
	}
	end := bytes.IndexByte(b, ']')
	if end < 2 || !isName(b[1:end]) || !slices.ContainsFunc(sources, func(s string) bool { return bytes.HasPrefix(b[1:end], []byte(s)) }) {
		return wrapper{}, false
	}
	text := bytes.TrimPrefix(b[end+1:], []byte(":"))
	if len(text) > 0 && text[0] != ' ' {
		return wrapper{}, false
	}
	return wrapper{text: bytes.TrimPrefix(text, []byte(" ")), tags: Tags{{"from", string(b[1:end])}}}, true
}

var sources = []string{"pod/", "rank", "gpu=", "gpu_id="}

// isName says whether a text is made of what names are made of.
func isName(b []byte) bool {
	for _, c := range b {
		if !isLetter(c) && !isDigit(c) && c != '-' && c != '_' && c != '.' && c != '/' && c != '=' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 300
}

// cri is Kubernetes' format, "2026-03-11T09:12:34.000000001Z stderr F text", and that of kubectl logs --timestamps, which has no more
// than the time.
func cri(b []byte) (wrapper, bool) {
	word, text, ok := bytes.Cut(b, []byte(" "))
	if !ok || len(word) < len("2006-01-02T15:04:05Z") || word[4] != '-' || word[10] != 'T' {
		return wrapper{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(word))
	if err != nil {
		return wrapper{}, false
	}
	w := wrapper{text: text, at: stamp{at: at, date: DateTold, zone: ZoneTold}}
	stream, rest, _ := bytes.Cut(text, []byte(" "))
	if s := string(stream); s != "stdout" && s != "stderr" {
		return w, true
	}
	flags, text, _ := bytes.Cut(rest, []byte(" "))
	flag, _, _ := bytes.Cut(flags, []byte(":"))
	if f := string(flag); f != "P" && f != "F" {
		return w, true
	}
	w.text, w.more = text, flag[0] == 'P'
	w.stream, w.tags = streamTags(stream)
	return w, true
}

var stdout, stderr = Tags{{"stream", "stdout"}}, Tags{{"stream", "stderr"}}

func streamTags(name []byte) (string, Tags) {
	switch string(name) {
	case "stdout":
		return "stdout", stdout
	case "stderr":
		return "stderr", stderr
	}
	return "?", nil
}

// journal is journalctl's short format: "Mar 11 09:12:34 host python[123]: text".
func journal(b []byte) (wrapper, bool) {
	if len(b) < 20 || b[3] != ' ' || b[15] != ' ' || b[9] != ':' {
		return wrapper{}, false
	}
	at, err := time.Parse("Jan _2 15:04:05", string(b[:15]))
	if err != nil {
		return wrapper{}, false
	}
	host, rest, ok := bytes.Cut(b[16:], []byte(" "))
	ident, text, ok2 := bytes.Cut(rest, []byte(": "))
	if !ok || !ok2 || !isName(host) || len(ident) > 100 || bytes.ContainsRune(ident, ' ') {
		return wrapper{}, false
	}
	w := wrapper{text: text, at: stamp{at: at, date: YearUnknown}, tags: Tags{{"host", string(host)}}}
	if _, pid, ok := bytes.Cut(bytes.TrimSuffix(ident, []byte("]")), []byte("[")); ok && isName(pid) {
		w.tags = append(w.tags, Tag{"pid", string(pid)})
	}
	return w, true
}

// dockerPart is the length at which Docker cuts a message.
const dockerPart = 16 << 10

// structured is a line of JSON with a message in it: Docker's json-file, a shipper's, or the service's own formatter.
func structured(b []byte) (wrapper, bool) {
	if len(b) < 2 || b[0] != '{' || b[len(b)-1] != '}' {
		return wrapper{}, false
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(b, &fields) != nil {
		return wrapper{}, false
	}
	text := func(names ...string) (string, bool) {
		for _, n := range names {
			var s string
			if raw, ok := fields[n]; ok && json.Unmarshal(raw, &s) == nil {
				return s, true
			}
		}
		return "", false
	}
	msg, ok := text("log", "message", "msg", "MESSAGE", "line", "textPayload")
	if !ok {
		return wrapper{}, false
	}
	w := wrapper{text: []byte(msg)}
	if stream, runtime := text("stream"); runtime {
		w.stream, w.tags = streamTags([]byte(stream))
		w.more = len(msg) >= dockerPart && !strings.HasSuffix(msg, "\n")
	}
	severity, _ := text("level", "levelname", "severity")
	w.level = level([]byte(strings.ToUpper(severity)))
	if w.source, _ = text("logger", "name"); !isName([]byte(w.source)) || !strings.Contains(w.source, ".") {
		w.source = "" // not a logger's, perhaps somebody's
	}
	if process, ok := text("processName"); ok && isName([]byte(process)) {
		w.tags = w.tags.and(Tags{{"process", process}})
	}
	var pid int
	if json.Unmarshal(fields["process"], &pid) == nil && pid > 0 {
		w.tags = w.tags.and(Tags{{"pid", strconv.Itoa(pid)}})
	}
	w.text = plain(bytes.TrimRight(w.text, "\r\n"))
	for _, n := range []string{"time", "timestamp", "ts", "@timestamp", "asctime", "date", "__REALTIME_TIMESTAMP"} {
		if w.at = jsonTime(fields[n]); w.at.date != NoTime {
			break
		}
	}
	return w, true
}

// jsonTime reads a time as loggers write it: RFC 3339, Python's asctime, or seconds, milliseconds or nanoseconds since 1970.
func jsonTime(raw json.RawMessage) stamp {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05Z0700"} {
			if at, err := time.Parse(layout, s); err == nil {
				return stamp{at: at, date: DateTold, zone: ZoneTold}
			}
		}
		for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05"} { // fractions after . or , are taken too
			if at, err := time.Parse(layout, s); err == nil {
				return stamp{at: at, date: DateTold}
			}
		}
		raw = json.RawMessage(s) // a number in quotes
	}
	var n float64
	if json.Unmarshal(raw, &n) != nil || n < 1e8 || n >= 1e19 {
		return stamp{}
	}
	for n >= 1e11 { // not before the year 5138 in seconds
		n /= 1000
	}
	return stamp{at: time.Unix(0, int64(n*1e9)).UTC(), date: DateTold, zone: ZoneTold}
}
