package stream

import (
	"fmt"
	"net"
	"strings"

	"github.com/whylate/whylate/internal/renew"
)

// DefaultPort is where a server listens for agents unless it is told otherwise.
const DefaultPort = "7701"

// Target is a server, as an agent finds it.
type Target struct {
	Network string // "tcp" or "unix"
	Address string
	TLS     bool
}

// ParseTarget reads tls://HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH. An address without a scheme means TLS, unless it is this host's:
// a token does not travel in the clear by oversight.
func ParseTarget(s string) (Target, error) {
	scheme, rest, found := strings.Cut(s, "://")
	if !found {
		scheme, rest = "", s
	}
	if scheme == "unix" {
		if !strings.HasPrefix(rest, "/") {
			return Target{}, fmt.Errorf("server address %q: the path of a socket begins with a slash: unix:///run/whylate/agents.sock", s)
		}
		return Target{Network: "unix", Address: rest}, nil
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.Trim(rest, "[]"), DefaultPort
	}
	if host == "" || strings.ContainsAny(host, "/ ") {
		return Target{}, fmt.Errorf("server address %q: it has no host; write tls://HOST:PORT, tcp://HOST:PORT or unix:///PATH", s)
	}
	t := Target{Network: "tcp", Address: net.JoinHostPort(host, port)}
	switch scheme {
	case "tls":
		t.TLS = true
	case "tcp":
	case "":
		ip := net.ParseIP(host)
		t.TLS = host != "localhost" && (ip == nil || !ip.IsLoopback())
	default:
		return Target{}, fmt.Errorf("server address %q: the scheme %q is none of tls, tcp and unix", s, scheme)
	}
	return t, nil
}

func (t Target) String() string {
	switch {
	case t.Network == "unix":
		return "unix://" + t.Address
	case t.TLS:
		return "tls://" + t.Address
	}
	return "tcp://" + t.Address
}

// ParseTokens reads the bearer tokens of a file, one on a line; empty lines and those that begin with # are left out. Several tokens
// let one replace another without a moment in which neither is right. name is what errors call the file.
func ParseTokens(name string, b []byte) ([]string, error) {
	var tokens []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("tokens %s: the file holds none; write one, as 'openssl rand -hex 32' makes it", name)
	}
	return tokens, nil
}

// OpenTokens reads a file of bearer tokens, and keeps to it from now on.
func OpenTokens(g *renew.Group, path string) (*renew.File[[]string], error) {
	return renew.Open(g, "tokens "+path, func(b ...[]byte) ([]string, error) { return ParseTokens(path, b[0]) }, path)
}
