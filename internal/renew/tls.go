package renew

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// TLS names the PEM files of one side of TLS.
type TLS struct {
	Cert, Key string // of this side
	CA        string // that the other side's certificate must come from; for a client, empty means the system's
}

// Server is a server's side of TLS: each handshake sees the files that are in force. With a CA, clients must show a certificate of it.
// protocols are those to be negotiated (ALPN), the preferred one first.
func (t TLS) Server(g *Group, protocols ...string) (*tls.Config, error) {
	if t.Cert == "" || t.Key == "" {
		return nil, errors.New("TLS: a server needs a certificate and its key")
	}
	pair, err := t.pair(g)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
	var authorities *File[*x509.CertPool]
	if t.CA != "" {
		if authorities, err = t.authorities(g); err != nil {
			return nil, err
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
		c.SessionTicketsDisabled = true // a resumed session would not be held against the authorities of now
	}
	base := c.Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.Certificates = []tls.Certificate{*pair.Get()}
		if authorities != nil {
			now.ClientCAs = authorities.Get()
		}
		return now, nil
	}
	return c, nil
}

// Client is a client's side of TLS, as a function that gives what is in force for the next connection. serverName replaces the host of the
// address as the name to look for in the server's certificate, if it is not empty.
func (t TLS) Client(g *Group, serverName string) (func() *tls.Config, error) {
	if (t.Cert == "") != (t.Key == "") {
		return nil, errors.New("TLS: a client certificate and its key go together")
	}
	var pair *File[*tls.Certificate]
	var authorities *File[*x509.CertPool]
	var err error
	if t.CA != "" {
		if authorities, err = t.authorities(g); err != nil {
			return nil, err
		}
	}
	if t.Cert != "" {
		if pair, err = t.pair(g); err != nil {
			return nil, err
		}
	}
	return func() *tls.Config {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
		if authorities != nil {
			c.RootCAs = authorities.Get()
		}
		if pair != nil {
			c.Certificates = []tls.Certificate{*pair.Get()}
		}
		return c
	}, nil
}

func (t TLS) pair(g *Group) (*File[*tls.Certificate], error) {
	what := fmt.Sprintf("certificate %s and key %s", t.Cert, t.Key)
	return Open(g, what, func(b ...[]byte) (*tls.Certificate, error) {
		c, err := tls.X509KeyPair(b[0], b[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w; put a certificate in PEM there, and the key that it was made for", what, err)
		}
		return &c, nil
	}, t.Cert, t.Key)
}

func (t TLS) authorities(g *Group) (*File[*x509.CertPool], error) {
	what := "authorities " + t.CA
	return Open(g, what, func(b ...[]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(b[0]) {
			return nil, fmt.Errorf("%s: no certificate in PEM; put the certificates of the authorities there", what)
		}
		return pool, nil
	}, t.CA)
}
