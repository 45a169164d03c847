package renew_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/renew"
)

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// word is a value that is one word.
func word(b ...[]byte) (string, error) {
	if s := string(b[0]); s != "" && !strings.Contains(s, " ") {
		return s, nil
	}
	return "", errors.New("not one word; write one")
}

// group is a group and what it logs.
func group() (*renew.Group, *bytes.Buffer) {
	var log bytes.Buffer
	return renew.NewGroup(slog.New(slog.NewTextHandler(&log, nil)), func() time.Time { return time.Unix(7, 0) }), &log
}

func TestWhatIsBrokenTakesNothingsPlace(t *testing.T) {
	g, log := group()
	path := filepath.Join(t.TempDir(), "f")
	if _, err := renew.Open(g, "a word", word, path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a file that is not there: %v", err)
	}
	put(t, path, "two words")
	if _, err := renew.Open(g, "a word", word, path); err == nil {
		t.Error("a broken file at the start")
	}
	put(t, path, "one")
	f, err := renew.Open(g, "a word", word, path)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, step := range []struct {
		do      func()
		value   string
		changed bool
		says    string // of the fault; "" = none
		logged  int    // lines
	}{
		{func() {}, "one", false, "", 0},
		{func() { put(t, path, "uno") }, "uno", true, "", 1},
		{func() { put(t, path, "two words") }, "uno", false, "not one word", 1},
		{func() {}, "uno", false, "not one word", 0}, // told once
		{func() { put(t, path, "") }, "uno", false, "not one word", 1},
		{func() { os.Remove(path) }, "uno", false, "no such file", 1},
		{func() { put(t, path, "uno") }, "uno", false, "", 1}, // as it was
		{func() { put(t, path, "x y") }, "uno", false, "not one word", 1},
		{func() { put(t, path, "dos") }, "dos", true, "", 1},
		{func() { put(t, path, strings.Repeat("x", 5<<20)) }, "dos", false, "more than", 1},
	} {
		step.do()
		g.Look()
		changed := g.Look()
		if f.Get() != step.value || changed != step.changed {
			t.Errorf("%q (changed %v), want %q", f.Get(), changed, step.value)
		}
		broken := g.Broken()
		if (len(broken) > 0) != (step.says != "") || len(broken) > 0 && (!strings.Contains(broken[0].Err.Error(), step.says) || broken[0].What != "a word" || broken[0].At.Unix() != 7) {
			t.Errorf("broken: %+v, want %q", broken, step.says)
		}
		now := strings.Count(log.String(), "\n")
		if now-lines != step.logged {
			t.Errorf("%d lines were logged, want %d:\n%s", now-lines, step.logged, log)
		}
		lines = now
	}
}

// A file that is still being written, or one of a pair, is waited for.
func TestOnlyWhatStaysCounts(t *testing.T) {
	g, log := group()
	path := filepath.Join(t.TempDir(), "f")
	put(t, path, "one")
	f, err := renew.Open(g, "a word", word, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"half", "half of", "half of it", "all"} {
		put(t, path, text)
		if g.Look() || f.Get() != "one" || len(g.Broken()) > 0 {
			t.Errorf("%q counts at once", text)
		}
	}
	if !g.Look() || f.Get() != "all" || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("%q; %s", f.Get(), log)
	}
}

// Kubernetes swaps a link to a directory: times, names and inodes of the path itself stay as they were.
func TestALinkThatIsSwapped(t *testing.T) {
	g, _ := group()
	dir := t.TempDir()
	at := time.Unix(1_800_000_000, 0)
	for _, v := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, v), 0o700); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, v, "token"), "word-"+v)
		if err := os.Chtimes(filepath.Join(dir, v, "token"), at, at); err != nil {
			t.Fatal(err)
		}
	}
	link := func(v string) {
		t.Helper()
		if err := errors.Join(os.Symlink(v, filepath.Join(dir, "tmp")), os.Rename(filepath.Join(dir, "tmp"), filepath.Join(dir, "..data"))); err != nil {
			t.Fatal(err)
		}
	}
	link("v1")
	if err := os.Symlink("..data/token", filepath.Join(dir, "token")); err != nil {
		t.Fatal(err)
	}
	f, err := renew.Open(g, "a word", word, filepath.Join(dir, "token"))
	if err != nil || f.Get() != "word-v1" {
		t.Fatal(f, err)
	}
	link("v2")
	if g.Look(); !g.Look() || f.Get() != "word-v2" {
		t.Error(f.Get())
	}
}

// authority makes certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T, path string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: path}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	put(t, path, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return &authority{t, c, key, 1}
}

// issue gives a certificate with its key, in PEM, and its serial number.
func (a *authority) issue() (cert, key string, serial int64) {
	a.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c := &x509.Certificate{SerialNumber: big.NewInt(a.n), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	b, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: b})), a.n
}

// echo answers each connection with one byte, so that a handshake is over for both sides when it comes.
func echo(t *testing.T, c *tls.Config) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Write([]byte{1})
			}()
		}
	}()
	return l.Addr().String()
}

// shake makes a connection, and says which certificate the server showed and whether the session was a resumed one.
func shake(address string, c *tls.Config) (serial int64, resumed bool, err error) {
	conn, err := tls.Dial("tcp", address, c)
	if err != nil {
		return 0, false, err
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return 0, false, err
	}
	s := conn.ConnectionState()
	return s.PeerCertificates[0].SerialNumber.Int64(), s.DidResume, nil
}

// Certificates are renewed, and broken ones put in their place, while connections come all the time: no handshake fails.
func TestRenewalUnderLoad(t *testing.T) {
	g, _ := group()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca")
	a := newAuthority(t, ca)
	files := renew.TLS{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key")}
	cert, key, first := a.issue()
	put(t, files.Cert, cert)
	put(t, files.Key, key)
	server, err := files.Server(g, "h2", "http/1.1")
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, server)
	client, err := renew.TLS{CA: ca}.Client(g, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	seen := map[int64]int{}
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				serial, _, err := shake(address, client())
				if err != nil {
					t.Errorf("a handshake failed: %v", err)
					return
				}
				mu.Lock()
				seen[serial]++
				mu.Unlock()
			}
		})
	}
	now := func() int64 {
		t.Helper()
		serial, _, err := shake(address, client())
		if err != nil {
			t.Fatal(err)
		}
		return serial
	}
	in := first
	for round := range 5 {
		cert, key, serial := a.issue()
		put(t, files.Cert, cert) // the key is still the old one
		g.Look()
		if got := now(); got != in {
			t.Errorf("round %d: serial %d between the two, want %d", round, got, in)
		}
		put(t, files.Key, key)
		g.Look()
		if !g.Look() || now() != serial {
			t.Errorf("round %d: the new certificate is not in force", round)
		}
		in = serial
		for what, broken := range map[string]func(){
			"no PEM":         func() { put(t, files.Cert, "rubbish") },
			"another's key":  func() { _, other, _ := a.issue(); put(t, files.Key, other) },
			"no file":        func() { os.Remove(files.Cert) },
			"an empty file":  func() { put(t, files.Key, "") },
			"half a file":    func() { put(t, files.Cert, cert[:len(cert)/2]) },
			"unreadable key": func() { os.Remove(files.Key); os.Mkdir(files.Key, 0o700) },
		} {
			broken()
			g.Look()
			g.Look()
			if got := now(); got != in || len(g.Broken()) != 1 {
				t.Errorf("%s: serial %d, want %d; %+v", what, got, in, g.Broken())
			}
			os.Remove(files.Key)
			put(t, files.Cert, cert)
			put(t, files.Key, key)
			g.Look()
			g.Look()
			if len(g.Broken()) > 0 {
				t.Errorf("%s, mended: %+v", what, g.Broken())
			}
		}
	}
	close(stop)
	load.Wait()
	if len(seen) < 2 {
		t.Errorf("the load saw only %v", seen)
	}
}

// A client of an authority that is taken out comes in no more, not even with a session of before.
func TestAuthoritiesAreRenewed(t *testing.T) {
	g, _ := group()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ours, old, young := newAuthority(t, path("server-ca")), newAuthority(t, path("old-ca")), newAuthority(t, path("young-ca"))
	write := func(name string, a *authority) renew.TLS {
		cert, key, _ := a.issue()
		put(t, path(name+".crt"), cert)
		put(t, path(name+".key"), key)
		return renew.TLS{Cert: path(name + ".crt"), Key: path(name + ".key")}
	}
	swap := func(from string) {
		t.Helper()
		b, err := os.ReadFile(path(from))
		if err != nil {
			t.Fatal(err)
		}
		put(t, path("clients"), string(b))
		g.Look()
		g.Look()
	}
	swap("old-ca")
	server := write("server", ours)
	server.CA = path("clients")
	c, err := server.Server(g)
	if err != nil {
		t.Fatal(err)
	}
	address := echo(t, c)
	side := func(name string, a *authority) *tls.Config {
		files := write(name, a)
		files.CA = path("server-ca")
		f, err := files.Client(g, "127.0.0.1")
		if err != nil {
			t.Fatal(err)
		}
		c := f()
		c.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		return c
	}
	of := map[string]*tls.Config{"old": side("of-old", old), "young": side("of-young", young)}
	for i, step := range []struct {
		in  string
		may string
	}{{"old-ca", "old"}, {"young-ca", "young"}, {"server-ca", ""}, {"old-ca", "old"}} {
		swap(step.in)
		for name, c := range of {
			if _, resumed, err := shake(address, c); (err == nil) != (name == step.may) || resumed {
				t.Errorf("step %d, client of %s: resumed %v, %v", i, name, resumed, err)
			}
		}
	}
	put(t, path("clients"), "no PEM")
	g.Look()
	g.Look()
	if _, _, err := shake(address, of["old"]); err != nil || len(g.Broken()) != 1 {
		t.Errorf("%v; %+v", err, g.Broken())
	}
}

func TestRunLooks(t *testing.T) {
	g, _ := group()
	path := filepath.Join(t.TempDir(), "f")
	put(t, path, "one")
	f, err := renew.Open(g, "a word", word, path)
	if err != nil {
		t.Fatal(err)
	}
	put(t, path, "two")
	told := make(chan string)
	ctx := t.Context()
	go g.Run(ctx, time.Millisecond, func() {
		select {
		case told <- fmt.Sprint(f.Get()):
		case <-ctx.Done():
		}
	})
	if got := <-told; got != "two" {
		t.Error(got)
	}
}
