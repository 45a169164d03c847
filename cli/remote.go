package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
)

// defaultServer is where 'whylate serve' listens unless told otherwise.
const defaultServer = "http://127.0.0.1:7700"

// serverFlags say which server to ask.
type serverFlags struct {
	address, tokenFile, caFile string
}

func (s *serverFlags) flags(cmd *cobra.Command) { s.addTo(cmd.Flags()) }

func (s *serverFlags) addTo(set *pflag.FlagSet) {
	set.StringVar(&s.address, "server", os.Getenv("WHYLATE_SERVER"), "server to ask ($WHYLATE_SERVER); default "+defaultServer+" if one answers there")
	set.StringVar(&s.tokenFile, "token-file", os.Getenv("WHYLATE_TOKEN_FILE"), "file with the bearer token ($WHYLATE_TOKEN_FILE)")
	set.StringVar(&s.caFile, "ca-file", os.Getenv("WHYLATE_CA_FILE"), "file with the certificate authorities that the server is trusted by ($WHYLATE_CA_FILE)")
}

// readToken reads a bearer token, or a password, from a file; no file is none.
func readToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	token, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	return strings.TrimSpace(string(token)), nil
}

// authorities reads the certificates of --ca-file.
func authorities(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file %s: it holds no certificate", file)
	}
	return pool, nil
}

// client makes a client of the server that is named, or of the default one.
func (s *serverFlags) client() (*client.Client, error) {
	address := s.address
	if address == "" {
		address = defaultServer
	}
	token, err := readToken(s.tokenFile)
	if err != nil {
		return nil, err
	}
	opts := client.Options{Token: token}
	if s.caFile != "" {
		pool, err := authorities(s.caFile)
		if err != nil {
			return nil, err
		}
		opts.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return client.New(address, opts)
}

// running returns the server's service if one was named, or if one answers at the default address; nil if none does.
func (s *serverFlags) running() (api.Service, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	if s.address != "" {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err = c.Ready(ctx)
	var starting *api.Unavailable
	switch {
	case err == nil:
		return c, nil
	case errors.As(err, &starting):
		return nil, err // it is there: files must not be opened behind its back
	}
	return nil, nil
}

// selfTrusting is a client that takes any certificate: it only asks a server of this host whether it is up, and sends nothing.
func selfTrusting() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}}}
}
