package config

import (
	"fmt"
	"net"
	"strings"
)

// maxSocketPath is what Linux takes as the path of a Unix socket.
const maxSocketPath = 107

// rules are what must hold between keys.
func (c *Config) rules() Problems {
	var r ruling
	r.c = c
	r.both("tls.cert", "tls.key", c.TLS.Cert, c.TLS.Key)
	if c.TLS.ClientCA != "" && c.TLS.Cert == "" {
		r.wrong("tls.client_ca", "needs tls.cert: without TLS nobody shows a certificate")
	}
	r.both("agent.tls.cert", "agent.tls.key", c.Agent.TLS.Cert, c.Agent.TLS.Key)
	if scheme, _, _ := strings.Cut(c.Agent.Server, "://"); scheme != "tls" {
		for _, key := range []string{"agent.tls.ca", "agent.tls.cert", "agent.tls.name"} {
			if get(find(key).field(c)) != "" {
				r.wrong(key, "has no effect: agent.server is "+c.Agent.Server+", without TLS")
			}
		}
	}
	if addr, ok := strings.CutPrefix(c.Agent.Server, "tcp://"); ok && !Loopback(addr) {
		r.add(Warning, "agent.server", "records and the token go over the network in the clear", "write tls://"+addr)
	}
	if same(c.Listen.HTTP, c.Listen.Agents) {
		r.wrong("listen.agents", "is the address of listen.http; each needs its own port")
	}
	if n := len(c.Listen.Unix); n > maxSocketPath {
		r.wrong("listen.unix", fmt.Sprintf("is %d bytes long; a socket's path has at most %d", n, maxSocketPath))
	}
	for _, keep := range []string{"iterations", "requests"} {
		key := "store.retention." + keep
		if number(get(find(key).field(c))) < int64(c.Store.SealEvery) {
			r.wrong(key, "is shorter than store.seal_every, so a sealed period would be dropped as it is written")
		}
	}
	if c.Store.Retention.Iterations > c.Store.Retention.Requests {
		r.add(Warning, "store.retention.iterations", "is longer than store.retention.requests: iterations would be kept whose requests are gone", "")
	}
	r.metricsRules()
	r.reachable("listen.http", c.Listen.HTTP, "tokens_file", "read everything and import")
	r.reachable("listen.agents", c.Listen.Agents, "listen.agents_tokens", "send records")
	return r.problems
}

type ruling struct {
	c        *Config
	problems Problems
}

func (r *ruling) add(s Severity, key, text, remedy string) {
	e, _ := r.c.Explain(key)
	r.problems = append(r.problems, Problem{Severity: s, Source: e.Source, Key: key, Value: e.Value, Text: text, Remedy: remedy})
}

func (r *ruling) wrong(key, text string) { r.add(Error, key, text, "") }

// both asks for two keys together or for none.
func (r *ruling) both(a, b, av, bv string) {
	switch {
	case av != "" && bv == "":
		r.wrong(a, "needs "+b+" beside it")
	case av == "" && bv != "":
		r.wrong(b, "needs "+a+" beside it")
	}
}

// reachable warns of an address that other machines reach without TLS or without tokens.
func (r *ruling) reachable(key, addr, tokens, may string) {
	if addr == "" || Loopback(addr) {
		return
	}
	if r.c.TLS.Cert == "" {
		r.add(Warning, key, "other machines reach it, and there is no TLS: tokens and records can be read on the way", "set tls.cert and tls.key, or listen on 127.0.0.1")
	}
	if get(find(tokens).field(r.c)) == "" {
		r.add(Warning, key, "other machines reach it, and there are no tokens: whoever reaches it may "+may, "set "+tokens+", or listen on 127.0.0.1")
	}
}

// Loopback reports whether only this machine reaches an address of host:port.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// same reports whether two addresses cannot both be listened on, as far as their text tells.
func same(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	ah, ap, _ := net.SplitHostPort(a)
	bh, bp, _ := net.SplitHostPort(b)
	any := func(h string) bool { return h == "" || h == "0.0.0.0" || h == "::" }
	return ap == bp && ap != "0" && (ah == bh || any(ah) || any(bh))
}
