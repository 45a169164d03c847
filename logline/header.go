package logline

import "bytes"

// header reads what loggers put before their messages. Its zero value is ready.
type header struct {
	tags map[string]Tags // of prefixes seen before
}

// head is a logger's header inside a text: [start,body) of it.
type head struct {
	start, body   int
	level, source string
	tags          Tags
	at            stamp
}

// level is a level's name as Python's loggers have them, "" if it is none.
func level(word []byte) string {
	switch string(word) {
	case "INFO":
		return "INFO"
	case "WARNING", "WARN":
		return "WARNING"
	case "DEBUG":
		return "DEBUG"
	case "ERROR":
		return "ERROR"
	case "CRITICAL", "FATAL":
		return "CRITICAL"
	}
	return ""
}

// split gives the lines of a message: one, or as many as have a header of their own, and before them what has none.
func (h *header) split(m message, give func(Line, stamp) bool) bool {
	text := m.text
	first, ok := h.find(text, 0)
	if !ok {
		return give(h.bare(m.Mark, text), stamp{})
	}
	if before := bytes.TrimSpace(text[:first.start]); len(before) > 0 {
		if isPrefix(before) {
			m.Skipped += int64(len(before))
		} else if !give(h.bare(m.Mark, before), stamp{}) { // a message of its own, torn by this one
			return false
		}
	}
	for ok {
		next, more := h.next(text, first.body)
		end := len(text)
		if more {
			end = next.start
		}
		l := h.bare(m.Mark, text[first.body:end])
		l.Tags = l.Tags.and(first.tags)
		if first.level != "" {
			l.Level = first.level
		}
		if first.source != "" {
			l.Source = first.source
		}
		if !give(l, first.at) {
			return false
		}
		first, ok = next, more
	}
	return true
}

// next is the header of a message that was written into the one that begins at from: not one that is quoted there.
func (h *header) next(text []byte, from int) (head, bool) {
	quotes, counted := [2]int{}, from
	for at := from; ; {
		next, ok := h.find(text, at)
		if !ok {
			return head{}, false
		}
		for ; counted < next.start; counted++ {
			switch text[counted] {
			case '\\':
				counted++
			case '\'':
				if !isApostrophe(text, counted) {
					quotes[0]++
				}
			case '"':
				quotes[1]++
			}
		}
		if quotes[0]%2 == 0 && quotes[1]%2 == 0 {
			return next, true
		}
		at = next.body
	}
}

// isApostrophe says whether a quote is one of it's.
func isApostrophe(b []byte, i int) bool {
	return i > 0 && i+1 < len(b) && isLetter(b[i-1]) && isLetter(b[i+1])
}

// bare is a line without a header: with process prefixes and a level at the most.
func (h *header) bare(m Mark, text []byte) Line {
	text = bytes.TrimSpace(text)
	for {
		end := process(text)
		if end == 0 {
			break
		}
		m.Tags = m.Tags.and(h.processTags(text[:end]))
		text = bytes.TrimLeft(text[end:], " ")
	}
	if word, rest, ok := bytes.Cut(text, []byte(" ")); ok {
		if level := level(bytes.TrimSuffix(word, []byte(":"))); level != "" {
			m.Level = level
			text = bytes.TrimLeft(rest, " ")
			if source, rest, ok := bytes.Cut(text, []byte(": ")); ok && isSource(source) { // SGLang: "INFO engine.py:156: text"
				m.Source, text = string(source), rest
			}
		}
	}
	return Line{Mark: m, Text: string(text)}
}

// find is the first header from a place on. Their times are what tells them from other text.
func (h *header) find(text []byte, from int) (head, bool) {
	for i := from; ; i++ {
		colon := bytes.IndexByte(text[i:], ':')
		if colon < 0 {
			return head{}, false
		}
		i += colon
		of, ok := timeOfDay(text, i-2)
		if !ok || i-2 < from {
			continue
		}
		at := i - 2
		switch day, short, full := date(text[from:at]); {
		case full > 0 && at-full > from && text[at-full-1] == '[':
			if found, ok := h.bracketed(text, at-full-1, at+8, stamp{at: day.Add(of), date: DateTold}); ok {
				return h.after(found, text, from), true
			}
		case full > 0 && at-full == 0:
			return h.asctime(text, at+8, stamp{at: day.Add(of), date: DateTold}), true
		case short > 0:
			if found, ok := h.levelled(text, from, at-short, at+8, stamp{at: day.Add(of), date: YearUnknown}); ok {
				return h.after(found, text, from), true
			}
		case at > from && text[at-1] == '[':
			if found, ok := h.bracketed(text, at-1, at+8, stamp{at: day.Add(of), date: DateUnknown}); ok {
				return h.after(found, text, from), true
			}
		}
	}
}

// levelled is vLLM's header around a time at [start,end): "(APIServer pid=41) INFO 03-11 09:12:04 [loggers.py:271] ", and before 0.8.5
// without the first bracket.
func (h *header) levelled(text []byte, from, start, end int, s stamp) (head, bool) {
	if start-1 < from || text[start-1] != ' ' || end >= len(text) || text[end] != ' ' {
		return head{}, false
	}
	word := start - 1
	for word > from && isLetter(text[word-1]) { // what stands right before it is VLLM_LOGGING_PREFIX
		word--
	}
	found := head{start: word, body: end + 1, level: level(text[word : start-1]), at: s}
	if found.level == "" {
		return head{}, false
	}
	if source := bytes.IndexByte(text[end:min(len(text), end+200)], ']'); source > 1 {
		name := bytes.TrimPrefix(text[end+1:end+source], []byte("["))
		if isSource(name) {
			found.source, found.body = h.intern(name), end+source+1
		}
	}
	return found, true
}

// bracketed is SGLang's header: "[2026-03-01 09:00:00.123 DP1 TP0] ", its time's end at end.
func (h *header) bracketed(text []byte, start, end int, s stamp) (head, bool) {
	closed := bytes.IndexByte(text[end:min(len(text), end+100)], ']')
	if closed < 0 {
		return head{}, false
	}
	inner := text[end : end+closed]
	inner, s.at = fraction(inner, s.at)
	if len(inner) > 0 && inner[0] != ' ' {
		return head{}, false
	}
	return head{start: start, body: end + closed + 1, tags: h.rankTags(inner), at: s}, true
}

// asctime is the header of Python's usual formats, "2026-03-11 09:12:44,123 - name - INFO - " and the like, at a text's beginning.
func (h *header) asctime(text []byte, end int, s stamp) head {
	found := head{body: end, at: s}
	rest, at := fraction(text[end:], s.at)
	found.at.at = at
	for {
		rest = bytes.TrimLeft(rest, " -|")
		found.body = len(text) - len(rest)
		word, after, ok := bytes.Cut(rest, []byte(" "))
		name := bytes.Trim(word, "[]:")
		switch l := level(name); {
		case !ok:
			return found
		case l != "":
			found.level = l
		case found.source == "" && isName(name) && bytes.IndexByte(name, '.') > 0:
			found.source = h.intern(name)
		default:
			return found
		}
		rest = after
	}
}

// isSource says whether a name is one of a place in code: "loggers.py:271".
func isSource(b []byte) bool {
	name, line, ok := bytes.Cut(b, []byte(":"))
	return ok && isName(name) && len(line) > 0 && !bytes.ContainsFunc(line, func(r rune) bool { return r < '0' || r > '9' })
}
