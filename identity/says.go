package identity

import (
	"net"
	"strings"
)

// Says collects what a thing says of itself, in the form in which it can be compared.
type Says []Said

// Add takes a value; an empty one, or a second one of the same attribute, is none.
func (s *Says) Add(a Attr, value, from string) {
	if value == "" {
		return
	}
	for _, have := range *s {
		if have.Attr == a {
			return
		}
	}
	*s = append(*s, Said{a, value, from})
}

// Pod takes a pod. Without its namespace it only suggests who it is.
func (s *Says) Pod(namespace, name, from string) {
	if name != "" && namespace != "" {
		s.Add(Pod, namespace+"/"+name, from)
	}
	s.Add(PodName, name, from)
}

// Host takes a host's name, without its domain. In a container it is the pod's.
func (s *Says) Host(name, from string) {
	name = Short(name)
	s.Add(Host, name, from)
	s.Add(PodName, name, from)
}

// Short is a host's name without its domain, in lower case; an address stays whole.
func Short(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if net.ParseIP(host) != nil {
		return host
	}
	name, _, _ := strings.Cut(host, ".")
	return name
}

// Process takes a process id of a host.
func (s *Says) Process(host, pid, from string) {
	if host != "" && pid != "" {
		s.Add(Process, Short(host)+" "+pid, from)
	}
}

// Address takes where something is reached: host:port or a URL. That of a loopback means another machine on each machine and is none, unless
// local names the host on which it was used.
func (s *Says) Address(address, local, from string) {
	_, rest, isURL := strings.Cut(address, "://")
	if isURL {
		address, _, _ = strings.Cut(rest, "/")
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || host == "" {
		return
	}
	if ofLoopback(host) {
		if local == "" {
			return
		}
		host = local
	}
	s.Add(Address, net.JoinHostPort(strings.ToLower(strings.TrimSuffix(host, ".")), port), from)
}

// Loopback reports whether an address, host:port, is of whichever machine uses it.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && ofLoopback(host)
}

func ofLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}
