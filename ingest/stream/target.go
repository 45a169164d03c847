package stream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"
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

// Files name the PEM files of one side of TLS. Those that are rotated are read again when they change.
type Files struct {
	Cert, Key string // of this side
	CA        string // that the other side's certificate must come from; for an agent, empty means the system's
}

// ServerTLS is a server's side of TLS. With a CA, clients must show a certificate of it.
func (f Files) ServerTLS() (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("TLS: a server needs a certificate and its key")
	}
	pair := &keyPair{cert: f.Cert, key: f.Key}
	if _, err := pair.get(); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair.get() }}
	if f.CA != "" {
		pool, err := readCA(f.CA)
		if err != nil {
			return nil, err
		}
		c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return c, nil
}

// ClientTLS is an agent's side of TLS. serverName replaces the host of the address as the name to look for in the server's
// certificate, if it is not empty.
func (f Files) ClientTLS(serverName string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if f.CA != "" {
		pool, err := readCA(f.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = pool
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, errors.New("TLS: a client certificate and its key go together")
	}
	if f.Cert != "" {
		pair := &keyPair{cert: f.Cert, key: f.Key}
		if _, err := pair.get(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get() }
	}
	return c, nil
}

func readCA(path string) (*x509.CertPool, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("TLS: read the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("TLS: %s holds no certificate in PEM", path)
	}
	return pool, nil
}

// keyPair is a certificate that may be replaced while it is used.
type keyPair struct {
	cert, key string
	mu        sync.Mutex
	changed   [2]time.Time
	loaded    *tls.Certificate
}

// get gives the certificate as it is in the files now, or the last one that could be read.
func (k *keyPair) get() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := [2]time.Time{modified(k.cert), modified(k.key)}
	if k.loaded != nil && changed == k.changed {
		return k.loaded, nil
	}
	c, err := tls.LoadX509KeyPair(k.cert, k.key)
	if err != nil {
		if k.loaded != nil {
			return k.loaded, nil
		}
		return nil, fmt.Errorf("TLS: read certificate and key: %w", err)
	}
	k.loaded, k.changed = &c, changed
	return k.loaded, nil
}

func modified(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// ReadTokens reads the bearer tokens in a file, one on a line; empty lines and those that begin with # are left out. Several tokens
// let one replace another without a moment in which neither is right.
func ReadTokens(path string) ([]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	var tokens []string
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("read tokens: %s holds none; write one, as 'openssl rand -hex 32' makes it", path)
	}
	return tokens, nil
}
