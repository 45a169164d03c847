package cli

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/api"
	"github.com/whylate/whylate/api/client"
	"github.com/whylate/whylate/config"
)

// serving is a server as 'whylate serve' runs it, on a data directory of its own.
type serving struct {
	dir     string
	address string
	stop    func()
}

// startServe runs a server with the settings of environ, on free ports of the loopback, until the test ends.
func startServe(t *testing.T, dir string, environ ...string) *serving {
	t.Helper()
	c, err := config.Load(config.Input{Environ: append([]string{"HOME=" + dir, "WHYLATE_DATA_DIR=" + dir, "WHYLATE_RINGS_FOLLOW=false",
		"WHYLATE_LISTEN_HTTP=127.0.0.1:0", "WHYLATE_LISTEN_AGENTS=127.0.0.1:0"}, environ...)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	answering := make(chan string, 1)
	done := make(chan error, 1)
	go func() { done <- serve(ctx, c, slog.New(&addressIn{answering})) }()
	s := &serving{dir: dir, stop: sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})}
	t.Cleanup(s.stop)
	select {
	case s.address = <-answering:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return s
}

// client asks the server, which is ready.
func (s *serving) client(t *testing.T, scheme string, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(scheme+"://"+s.address, o)
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return c.Ready(t.Context()) == nil })
	return c
}

// until asks again and again, as long as a test may take.
func until(t *testing.T, is func() bool) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(time.Minute); !is(); <-again.C {
		if time.Now().After(end) {
			t.Fatal("it does not come about")
		}
	}
}

// addressIn is a log that only looks for the address at which the server answers.
type addressIn struct{ found chan string }

func (a *addressIn) Enabled(context.Context, slog.Level) bool { return true }
func (a *addressIn) WithAttrs([]slog.Attr) slog.Handler       { return a }
func (a *addressIn) WithGroup(string) slog.Handler            { return a }
func (a *addressIn) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "answering" {
		r.Attrs(func(at slog.Attr) bool {
			if at.Key == "address" {
				a.found <- at.Value.String()
			}
			return true
		})
	}
	return nil
}

// certificate writes a certificate for 127.0.0.1 that vouches for itself, and its key.
func certificate(t *testing.T, cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A server takes up a new certificate and new tokens while it runs. What is broken changes nothing, and doctor says it until it is mended.
func TestServeRenews(t *testing.T) {
	const before, after = "operator-before-0123456789", "operator-after-0123456789"
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	certificate(t, file("cert"), file("key"))
	write(t, file("tokens"), "operator "+before)
	s := startServe(t, dir, "WHYLATE_TLS_CERT="+file("cert"), "WHYLATE_TLS_KEY="+file("key"), "WHYLATE_TOKENS_FILE="+file("tokens"))
	as := func(token string) *client.Client {
		t.Helper()
		write(t, file("token"), token)
		c, err := (&serverFlags{address: "https://" + s.address, tokenFile: file("token"), caFile: file("cert")}).client()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	ctx := t.Context()
	transport := selfTrusting().Transport.(*http.Transport)
	transport.ForceAttemptHTTP2 = true
	resp, err := (&http.Client{Transport: transport}).Get("https://" + s.address + "/healthz")
	if err != nil || resp.ProtoMajor != 2 {
		t.Errorf("over TLS it is HTTP/2: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	old := as(before)
	until(t, func() bool { return old.Ready(ctx) == nil })
	events, err := old.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	faults := func(c *client.Client) string {
		o, err := c.Overview(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		e := &env{out: &b}
		d := doctor{}
		for _, f := range o.Faults {
			d.wrong("server", "", "%s: %s", f.What, f.Last)
		}
		e.printDoctor(d.found)
		return b.String()
	}

	write(t, file("tokens"), "operator short")
	until(t, func() bool { return strings.Contains(faults(old), "too few") })
	if got := faults(old); strings.Contains(got, "short") || !strings.Contains(got, file("tokens")) || !strings.Contains(got, "stays in force") {
		t.Errorf("doctor: %s", got)
	}
	write(t, file("tokens"), "operator "+after)
	until(t, func() bool {
		_, err := old.Engines(ctx)
		return errors.As(err, new(*api.Unauthorised))
	})
	for e := range events { // the stream under the old token ends, and cannot be opened again
		if e.Kind == api.EventOffline && strings.Contains(e.Text, "token") {
			break
		}
	}
	if got := faults(as(after)); got != "" {
		t.Errorf("mended: %s", got)
	}

	certificate(t, file("cert"), file("key"))
	until(t, func() bool { _, err := as(after).Engines(ctx); return err == nil }) // trusts the new one alone
}
