package experiment

import "time"

// scan reads the plain form in which almost every line is: known keys once each, whole numbers, text without escapes. It makes
// no judgement: whatever is not of that form it leaves to [Request.UnmarshalJSON], and says so by returning false. It exists
// for speed, and the two agree (FuzzScan). The request is not validated.
func (r *Request) scan(object []byte) bool {
	*r = Request{N: 1}
	s := scanner{rest: object}
	var seen [9]bool
	if !s.is('{') {
		return false
	}
	for {
		key, ok := s.text()
		if !ok || !s.is(':') {
			return false
		}
		field := -1
		var n int64
		switch string(key) {
		case "at_ns":
			field, n = 0, s.number()
			r.At = time.Duration(n)
		case "prompt_tokens":
			field, n = 1, s.number()
			r.PromptTokens = int(n)
		case "output_tokens":
			field, n = 2, s.number()
			r.OutputTokens = int(n)
		case "n":
			field, n = 3, s.number()
			r.N = int(n)
		case "cancel_after_ns":
			field, n = 4, s.number()
			r.CancelAfter = time.Duration(n)
		case "cancel_after_chunks":
			field, n = 5, s.number()
			r.CancelChunks = int(n)
		case "class":
			field = 6
			class, ok := s.text()
			if !ok {
				return false
			}
			r.Class = string(class)
		case "id":
			field = 7
			id, ok := s.text()
			if !ok || len(id) == 0 {
				return false
			}
			r.ID = string(id)
		case "prefix":
			field = 8
			if r.Prefix, ok = s.prefix(); !ok {
				return false
			}
		}
		if field < 0 || seen[field] || n < 0 {
			return false
		}
		seen[field] = true
		if s.is('}') {
			return s.ended() && seen[0] && seen[1] && seen[2]
		}
		if !s.is(',') {
			return false
		}
	}
}

// A scanner takes tokens from the beginning of a line.
type scanner struct{ rest []byte }

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// is takes the character, if it comes next.
func (s *scanner) is(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

func (s *scanner) ended() bool {
	s.space()
	return len(s.rest) == 0
}

// text takes a string of printable ASCII without escapes.
func (s *scanner) text() ([]byte, bool) {
	if !s.is('"') {
		return nil, false
	}
	for i, c := range s.rest {
		switch {
		case c == '"':
			text := s.rest[:i]
			s.rest = s.rest[i+1:]
			return text, true
		case c < ' ' || c > '~' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// number takes a whole number of at most 18 digits, or returns −1.
func (s *scanner) number() int64 {
	s.space()
	var n int64
	i := 0
	for ; i < len(s.rest) && s.rest[i] >= '0' && s.rest[i] <= '9'; i++ {
		n = n*10 + int64(s.rest[i]-'0')
	}
	if i == 0 || i > 18 || i > 1 && s.rest[0] == '0' {
		return -1
	}
	s.rest = s.rest[i:]
	return n
}

// prefix takes [[hash, tokens] …].
func (s *scanner) prefix() (runs []PrefixRun, ok bool) {
	if !s.is('[') {
		return nil, false
	}
	if s.is(']') {
		return nil, true
	}
	for {
		if !s.is('[') {
			return nil, false
		}
		hash, ok := s.hash()
		if !ok || !s.is(',') {
			return nil, false
		}
		tokens := s.number()
		if tokens < 0 || !s.is(']') {
			return nil, false
		}
		runs = append(runs, PrefixRun{Hash: hash, Tokens: int(tokens)})
		if s.is(']') {
			return runs, true
		}
		if !s.is(',') {
			return nil, false
		}
	}
}

// hash takes a number, or 16 hexadecimal digits in quotes.
func (s *scanner) hash() (Hash, bool) {
	if s.space(); len(s.rest) == 0 || s.rest[0] != '"' {
		n := s.number()
		return Hash(n), n >= 0
	}
	digits, ok := s.text()
	if !ok || len(digits) != 16 {
		return 0, false
	}
	var h Hash
	for _, c := range digits {
		switch {
		case c >= '0' && c <= '9':
			h = h<<4 | Hash(c-'0')
		case c >= 'a' && c <= 'f':
			h = h<<4 | Hash(c-'a'+10)
		default:
			return 0, false
		}
	}
	return h, true
}
