package logline

import (
	"strconv"
	"strings"
)

// Access is a web server's line about one exchange. The client's address and the query are not kept.
type Access struct {
	Method string
	Path   string // without the query, at most 200 bytes
	Status int    // 499: the client had gone
}

const maxPath = 200

// ParseAccess reads uvicorn's line: `192.0.2.4:50110 - "POST /v1/completions HTTP/1.1" 200 OK`.
func ParseAccess(text string) (Access, bool) {
	_, rest, ok := strings.Cut(text, ` - "`)
	request, status, ok2 := strings.Cut(rest, `" `)
	if !ok || !ok2 {
		return Access{}, false
	}
	method, target, ok := strings.Cut(request, " ")
	path, version, ok2 := strings.Cut(target, " ")
	if !ok || !ok2 || !strings.HasPrefix(version, "HTTP/") || method == "" || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return Access{}, false
	}
	code, _, _ := strings.Cut(status, " ")
	n, err := strconv.Atoi(code)
	if err != nil || n < 100 || n > 999 {
		return Access{}, false
	}
	path, _, _ = strings.Cut(path, "?")
	if len(path) > maxPath {
		path = strings.ToValidUTF8(path[:maxPath], "")
	}
	return Access{strings.Clone(method), strings.Clone(path), n}, true
}
