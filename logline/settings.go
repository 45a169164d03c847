package logline

import "strings"

// Setting is one of a producer's own settings, as Python printed its value; text without its quotes.
type Setting struct {
	Name, Value string
	Withheld    bool // the value is not kept: it is a secret by its name, or long, or many things at once
}

const (
	maxSettings = 1024
	maxSetting  = 200 // bytes of a value that is kept
)

// Settings reads what Python prints of its settings: "ServerArgs(a=1, b='x')", "{'a': 1}" or "a=1, b='x'". Values that are too long, or may
// hold a secret or a text that somebody wrote, are named and not kept.
func Settings(text string) (all []Setting) {
	text = strings.TrimSpace(text)
	if open := strings.IndexAny(text, "({"); open >= 0 && isName([]byte("x"+text[:open])) && strings.IndexByte(text[:open], '=') < 0 {
		text = text[open+1:]
	}
	for len(text) > 0 && len(all) < maxSettings {
		piece, rest, ended := piece(text)
		text = rest
		if name, value, ok := pair(piece); ok {
			all = append(all, setting(name, value))
		}
		if ended {
			break
		}
	}
	return all
}

// piece is the text up to the next comma outside of brackets and quotes, and whether the list ends with it.
func piece(text string) (first, rest string, ended bool) {
	depth, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '[' || c == '{':
			depth++
		case c == ')' || c == ']' || c == '}':
			if depth--; depth < 0 {
				return text[:i], "", true
			}
		case c == ',' && depth == 0:
			return text[:i], text[i+1:], false
		}
	}
	return text, "", true
}

func pair(piece string) (name, value string, ok bool) {
	piece = strings.TrimSpace(piece)
	if len(piece) > 1 && (piece[0] == '\'' || piece[0] == '"') {
		end := strings.IndexByte(piece[1:], piece[0]) + 1
		if end == 0 {
			return "", "", false
		}
		name = piece[1:end]
		value, ok = strings.CutPrefix(strings.TrimSpace(piece[end+1:]), ":")
	} else {
		name, value, ok = strings.Cut(piece, "=")
	}
	return name, strings.TrimSpace(value), ok && len(name) <= maxKey && isName([]byte(name)) && strings.IndexByte(name, '=') < 0
}

func setting(name, value string) Setting {
	nested := value != "" && strings.IndexByte("([{", value[0]) >= 0 || strings.IndexByte(value, '(') > 0
	if n := len(value); n > 1 && (value[0] == '\'' || value[0] == '"') && value[n-1] == value[0] {
		value = value[1 : n-1]
	}
	if len(value) > maxSetting || secret(name) || nested && secret(value) || strings.ContainsAny(value, "\n") || strings.Contains(value, `\n`) {
		return Setting{Name: strings.Clone(name), Withheld: true}
	}
	return Setting{Name: strings.Clone(name), Value: strings.Clone(withoutUser(value))}
}

// secret says whether a name, or a text with names in it, is that of a secret or of a text for the model.
func secret(s string) bool {
	s = strings.ToLower(s)
	for _, word := range []string{"api_key", "apikey", "hf_token", "auth", "secret", "passw", "credential", "private", "header", "cookie", "prompt",
		"template", "access_key", "access_token", "keyfile_password", "admin", "watermark"} {
		if strings.Contains(s, word) {
			return true
		}
	}
	return strings.HasSuffix(s, "_key") || strings.HasSuffix(s, "_token") || s == "key" || s == "token"
}

// withoutUser is an address without who may use it: "http://user:word@host" is "http://host".
func withoutUser(value string) string {
	scheme, rest, ok := strings.Cut(value, "://")
	if !ok {
		return value
	}
	host, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		return scheme + "://" + strings.TrimSuffix(host[at+1:]+"/"+path, "/")
	}
	return value
}
