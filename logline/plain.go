package logline

import (
	"bytes"
	"unicode/utf8"
)

// plain is a text without colours and control characters, as valid UTF-8.
func plain(b []byte) []byte {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\uFFFD"))
	}
	for _, c := range b {
		if isControl(c) {
			b = withoutControl(b)
			break
		}
	}
	if bytes.Contains(b, []byte("[0m")) || bytes.Contains(b, []byte("[0;0m")) { // colours whose escape character got lost
		b = withoutColours(b)
	}
	return b
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

// withoutControl takes out terminal sequences whole, and control characters; a line's end becomes a blank, a tab stays.
func withoutControl(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == 0x1b:
			i += escape(b[i:]) - 1
		case c == '\n' || c == '\r': // inside of a line: of JSON, of a progress bar
			out = append(out, ' ')
		case isControl(c):
		default:
			out = append(out, c)
		}
	}
	return out
}

// escape is the length of the terminal sequence at the beginning of b: ESC [ … letter, or ESC ] … BEL, or ESC and one more.
func escape(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x3f {
				return i // not one: what follows is text
			}
		}
		return len(b)
	case ']':
		for i := 2; i < len(b); i++ {
			if b[i] == 7 {
				return i + 1
			}
			if b[i] == 0x1b {
				return i
			}
		}
		return 2
	}
	return 1
}

func withoutColours(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] == '[' {
			j := i + 1
			for j < len(b) && (isDigit(b[j]) || b[j] == ';') {
				j++
			}
			if j > i+1 && j < len(b) && b[j] == 'm' {
				i = j
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
