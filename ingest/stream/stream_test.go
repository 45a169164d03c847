package stream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whylate/whylate/internal/renew"
	"github.com/whylate/whylate/wire"
)

// keeper is what stands behind a server in tests: it remembers, and refuses when it is told to.
type keeper struct {
	mu      sync.Mutex
	frames  map[string][]uint64
	bodies  map[string][]byte // of the last frame
	gaps    map[string][]wire.Gap
	calls   int
	refuse  func(call int) error
	blocked chan struct{} // if not nil, Accept waits for it
}

func newKeeper() *keeper {
	return &keeper{frames: map[string][]uint64{}, bodies: map[string][]byte{}, gaps: map[string][]wire.Gap{}}
}

func (k *keeper) accept(ctx context.Context, batches []Batch) error {
	k.mu.Lock()
	blocked := k.blocked
	k.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	if k.refuse != nil {
		if err := k.refuse(k.calls); err != nil {
			return err
		}
	}
	for _, b := range batches {
		for _, f := range b.Frames {
			k.frames[b.Source.Name] = append(k.frames[b.Source.Name], f.Sequence)
			k.bodies[b.Source.Name] = bytes.Clone(f.Body)
		}
		if b.Gap != nil {
			k.gaps[b.Source.Name] = append(k.gaps[b.Source.Name], *b.Gap)
		}
	}
	return nil
}

func (k *keeper) durable(_ context.Context, s wire.Source) (uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var last uint64
	for _, n := range k.frames[s.Name] {
		last = max(last, n)
	}
	for _, g := range k.gaps[s.Name] {
		last = max(last, g.To)
	}
	return last, nil
}

func (k *keeper) of(name string) []uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.frames[name])
}

func upTo(from, to uint64) []uint64 {
	var s []uint64
	for n := from; n <= to; n++ {
		s = append(s, n)
	}
	return s
}

// framesOf builds frames with these sequences, one behind the other.
func framesOf(t testing.TB, sequences ...uint64) []byte {
	t.Helper()
	var b []byte
	for _, n := range sequences {
		var err error
		if b, err = wire.Append(b, n, &wire.Notice{Time: int64(n), Text: fmt.Sprint("number ", n)}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// serve starts s on a listener, and returns what stops it and waits until it has.
func serve(t testing.TB, s *Server, l net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t testing.TB) (net.Listener, Target) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l, Target{Network: "tcp", Address: l.Addr().String()}
}

var testAgent = Identity{Host: "h", Boot: "b", PID: 7, Start: 9, Version: "test"}

// peer is a connection with a way to wait for events.
type peer struct {
	t testing.TB
	*Conn
	woken  chan struct{}
	events []Event
}

func dial(t testing.TB, d *Dialer) (*peer, error) {
	t.Helper()
	p := &peer{t: t, woken: make(chan struct{}, 1)}
	var err error
	p.Conn, err = d.Dial(t.Context(), func() {
		select {
		case p.woken <- struct{}{}:
		default:
		}
	})
	if err == nil {
		t.Cleanup(func() { p.Close() })
	}
	return p, err
}

func mustDial(t testing.TB, target Target) *peer {
	t.Helper()
	p, err := dial(t, &Dialer{Target: target, Agent: testAgent})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// next waits for one event.
func (p *peer) next() Event {
	p.t.Helper()
	for len(p.events) == 0 {
		if p.events = p.Events(); len(p.events) > 0 {
			break
		}
		select {
		case <-p.woken:
		case <-time.After(20 * time.Second):
			p.t.Fatal("no event came")
		}
	}
	e := p.events[0]
	p.events = p.events[1:]
	return e
}

func (p *peer) open(number uint16, name string) uint64 {
	p.t.Helper()
	if err := p.Open(number, wire.Source{Name: name, Opened: 5}); err != nil {
		p.t.Fatal(err)
	}
	e := p.next()
	if e.Opened == nil || e.Opened.Source != number {
		p.t.Fatalf("opening %s: %+v", name, e)
	}
	return e.Opened.Sequence
}

// acked waits for the acknowledgement of a number.
func (p *peer) acked(number uint64) []Mark {
	p.t.Helper()
	for {
		e := p.next()
		if e.Err != nil || e.Busy != 0 {
			p.t.Fatalf("waiting for the acknowledgement of %d: %+v", number, e)
		}
		if e.Acked >= number {
			return e.Marks
		}
	}
}

func (p *peer) refused() *Refusal {
	p.t.Helper()
	e := p.next()
	r, ok := errors.AsType[*Refusal](e.Err)
	if !ok {
		p.t.Fatalf("%+v where a refusal is due", e)
	}
	return r
}

func TestFramesThereAndAcknowledged(t *testing.T) {
	dir := t.TempDir()
	files := renew.NewGroup(slog.New(slog.DiscardHandler), nil)
	ca, server := certificate(t, dir, "server"), renew.TLS{Cert: filepath.Join(dir, "server.crt"), Key: filepath.Join(dir, "server.key")}
	serverTLS, err := server.Server(files)
	if err != nil {
		t.Fatal(err)
	}
	clientTLS, err := renew.TLS{CA: ca}.Client(files, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "unix", "tls"} {
		t.Run(network, func(t *testing.T) {
			k := newKeeper()
			s := &Server{Accept: k.accept, Durable: k.durable, Version: "9.9"}
			var l net.Listener
			var target Target
			if network == "unix" {
				path := filepath.Join(t.TempDir(), "s")
				var err error
				if l, err = net.Listen("unix", path); err != nil {
					t.Fatal(err)
				}
				target = Target{Network: "unix", Address: path}
			} else {
				l, target = listen(t)
			}
			if network == "tls" {
				s.TLS, target.TLS = serverTLS, true
			}
			serve(t, s, l)
			p, err := dial(t, &Dialer{Target: target, Agent: testAgent, TLS: clientTLS})
			if err != nil {
				t.Fatal(err)
			}
			if w := p.Welcome; w.Server != "9.9" || w.Message != MaxRaw || w.IdleMS != 60_000 {
				t.Errorf("welcome %+v", w)
			}
			if n := p.open(1, "a.ring"); n != 0 {
				t.Errorf("%d are durable of what was never sent", n)
			}
			p.open(2, "b.ring")
			p.Frames(1, 1, framesOf(t, upTo(1, 100)...))
			p.Gap(2, 2, wire.Gap{From: 1, To: 4, Count: 4, Why: "x"})
			p.Frames(2, 3, framesOf(t, 5))
			p.acked(3)
			if got := k.of("a.ring"); !slices.Equal(got, upTo(1, 100)) {
				t.Errorf("a: %v", got)
			}
			if got := k.gaps["b.ring"]; len(got) != 1 || got[0].To != 4 {
				t.Errorf("b: %+v", got)
			}
			stats := s.Stats()
			if stats.Frames != 101 || stats.Gaps != 1 || stats.Open != 1 || len(stats.Agents) != 1 || stats.Agents[0].Sources != 2 || stats.Agents[0].Host != "h" {
				t.Errorf("stats %+v", stats)
			}

			// Another connection of the same host takes over, and is told where to go on; what comes again is harmless.
			q, err := dial(t, &Dialer{Target: target, Agent: testAgent, TLS: clientTLS})
			if err != nil {
				t.Fatal(err)
			}
			if n := q.open(7, "a.ring"); n != 100 {
				t.Errorf("%d are durable, want 100", n)
			}
			if r := p.refused(); r.Code != CodeReplaced {
				t.Errorf("the earlier connection: %+v", r)
			}
			q.Frames(7, 1, framesOf(t, upTo(90, 110)...))
			q.Gap(7, 2, wire.Gap{From: 80, To: 112, Count: 33, Why: "x"})
			if marks := q.acked(2); marks[0] != (Mark{7, 112}) {
				t.Errorf("marks %+v", marks)
			}
			if got := k.of("a.ring"); !slices.Equal(got, upTo(1, 110)) {
				t.Errorf("a: %v", got)
			}
			if got := k.gaps["a.ring"]; len(got) != 1 || got[0].From != 111 || got[0].Count != 2 {
				t.Errorf("a: %+v", got)
			}
			if d := s.Stats().Duplicates; d != 11 {
				t.Errorf("%d duplicates counted, want 11", d)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("# ours\none\n\n two \n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKeeper()
	files := renew.NewGroup(slog.New(slog.DiscardHandler), nil)
	tokens, err := OpenTokens(files, path)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Accept: k.accept, Tokens: func() ([]string, error) { return tokens.Get(), nil }}
	l, target := listen(t)
	serve(t, s, l)
	for token, ok := range map[string]bool{"one": true, "two": true, "on": false, "": false, "# ours": false, "one\n": false} {
		_, err := dial(t, &Dialer{Target: target, Agent: testAgent, Token: func() (string, error) { return token, nil }})
		r, _ := errors.AsType[*Refusal](err)
		if ok != (err == nil) || !ok && (r == nil || r.Code != CodeToken || r.Remedy == "") {
			t.Errorf("%q: %v", token, err)
		}
		if r != nil {
			if _, can := r.Retry(); can {
				t.Errorf("%q may be tried again", token)
			}
		}
	}
	if err := os.WriteFile(path, []byte("three\n"), 0o600); err != nil { // without a restart
		t.Fatal(err)
	}
	old, err := dial(t, &Dialer{Target: target, Agent: testAgent, Token: func() (string, error) { return "one", nil }})
	if err != nil {
		t.Fatal(err)
	}
	if files.Look(); !files.Look() {
		t.Error("the new tokens are not in force")
	}
	s.Recheck()
	if r := old.refused(); r.Code != CodeToken {
		t.Errorf("a connection whose token is gone: %v", r)
	}
	if _, err := dial(t, &Dialer{Target: target, Agent: testAgent, Token: func() (string, error) { return "three", nil }}); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(10 * time.Second); s.Stats().Refused[CodeToken] != 7; time.Sleep(time.Millisecond) { // those of the first two end on their own
		if time.Now().After(end) {
			t.Fatalf("%d refusals counted, want 7", s.Stats().Refused[CodeToken])
		}
	}
}

// TestBusy refuses for want of room, at the function behind and at the queue in front of it: in the end all is there, once.
func TestBusy(t *testing.T) {
	k := newKeeper()
	k.refuse = func(call int) error {
		if call%3 != 0 {
			return fmt.Errorf("append: %w", ErrOverloaded)
		}
		return nil
	}
	s := &Server{Accept: k.accept, Durable: k.durable, Settings: Settings{ConnectionBytes: 4_000, RetryAfter: time.Millisecond}}
	l, target := listen(t)
	serve(t, s, l)
	p := mustDial(t, target)
	p.open(1, "a")
	const last = 40
	send := func(from uint64) {
		p.Rewind()
		for n := from; n <= last; n++ {
			p.Frames(1, n, framesOf(t, upTo(n*10-9, n*10)...))
		}
	}
	send(1)
	for acked := uint64(0); acked < last; {
		switch e := p.next(); {
		case e.Err != nil:
			t.Fatal(e.Err)
		case e.Busy != 0:
			if e.Retry != time.Millisecond {
				t.Errorf("retry after %v", e.Retry)
			}
			send(acked + 1)
		case e.Acked != 0:
			acked = e.Acked
		}
	}
	if got := k.of("a"); !slices.Equal(got, upTo(1, last*10)) {
		t.Errorf("got %v", got)
	}
	if stats := s.Stats(); stats.Busy == 0 || stats.Queued != 0 {
		t.Errorf("busy %d times, %d bytes still held", stats.Busy, stats.Queued)
	}
}

// TestReaderIsNotBlocked holds up the function behind: pings are answered, and what has no room is told to come again.
func TestReaderIsNotBlocked(t *testing.T) {
	k := newKeeper()
	k.blocked = make(chan struct{})
	s := &Server{Accept: k.accept, Settings: Settings{QueueBytes: 10_000}}
	l, target := listen(t)
	serve(t, s, l)
	p := mustDial(t, target)
	p.open(1, "a")
	p.Frames(1, 1, framesOf(t, upTo(1, 10)...))
	for n := uint64(2); n < 20; n++ {
		p.Frames(1, n, framesOf(t, upTo(n*10, n*10+5)...))
	}
	e := p.next()
	if e.Busy < 2 {
		t.Fatalf("%+v", e)
	}
	close(k.blocked)
	p.acked(e.Busy - 1)
}

// TestStoreFailure ends the connection, says so, and acknowledges nothing.
func TestStoreFailure(t *testing.T) {
	k := newKeeper()
	k.refuse = func(int) error { return errors.New("the disk is on fire") }
	s := &Server{Accept: k.accept}
	l, target := listen(t)
	serve(t, s, l)
	p := mustDial(t, target)
	p.open(1, "a")
	p.Frames(1, 1, framesOf(t, 1))
	r := p.refused()
	if _, can := r.Retry(); r.Code != CodeStore || !can {
		t.Errorf("%+v", r)
	}
	if n := s.Stats().Refused[CodeStore]; n != 1 {
		t.Errorf("%d refusals counted", n)
	}
}

func TestSourcesThatAreRefused(t *testing.T) {
	k := newKeeper()
	now := time.Unix(1_000_000, 0)
	s := &Server{Accept: k.accept, Settings: Settings{MaxSources: 2}, Now: func() time.Time { return now }}
	l, target := listen(t)
	serve(t, s, l)
	p := mustDial(t, target)
	for name, code := range map[string]Code{"": CodeSource, "a\x00b": CodeSource} {
		if err := p.Open(9, wire.Source{Name: name}); err != nil {
			t.Fatal(err)
		}
		if r := p.refused(); r.Code != code {
			t.Errorf("%q: %+v", name, r)
		}
		p.CloseSource(9)
	}
	if err := p.Open(9, wire.Source{Name: "late", Opened: now.Add(2 * time.Hour).UnixNano()}); err != nil {
		t.Fatal(err)
	}
	if r := p.refused(); r.Code != CodeClock {
		t.Errorf("opened in the future: %+v", r)
	}
	p.CloseSource(9)
	if err := p.Open(9, wire.Source{Name: "new", Hello: []byte(`{"protocol":[2,0]}`)}); err != nil {
		t.Fatal(err)
	}
	if r := p.refused(); r.Code != CodeVersion {
		t.Errorf("a newer hello: %+v", r)
	}
	p.CloseSource(9)
	p.open(1, "a")
	p.open(2, "b")
	if err := p.Open(3, wire.Source{Name: "c"}); err != nil {
		t.Fatal(err)
	}
	if r := p.refused(); r.Code != CodeSources {
		t.Errorf("too many: %+v", r)
	}
	p.CloseSource(1)
	p.open(3, "c")

	other := &Dialer{Target: target, Agent: Identity{Host: "elsewhere"}}
	q, err := dial(t, other)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Open(1, wire.Source{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if r := q.refused(); r.Code != CodeTaken {
		t.Errorf("another host's: %+v", r)
	}
	p.Frames(2, 1, framesOf(t, 1)) // all that cost the good sources nothing
	p.acked(1)
}

func TestServerStops(t *testing.T) {
	k := newKeeper()
	l, target := listen(t)
	stop := serve(t, &Server{Accept: k.accept}, l)
	p := mustDial(t, target)
	p.open(1, "a")
	stop()
	if r := p.refused(); r.Code != CodeEnding {
		t.Errorf("%+v", r)
	}
}

// certificate makes a CA and a certificate of it for 127.0.0.1 in dir, and returns the CA's path.
func certificate(t testing.TB, dir, name string) (ca string) {
	t.Helper()
	put := func(file, kind string, der []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca of " + name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	ca = put(name+"-ca.crt", "CERTIFICATE", der)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err = x509.CreateCertificate(rand.Reader, leaf, parent, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	put(name+".crt", "CERTIFICATE", der)
	b, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	put(name+".key", "EC PRIVATE KEY", b)
	return ca
}

func TestClientCertificates(t *testing.T) {
	dir := t.TempDir()
	serverCA, clientCA := certificate(t, dir, "server"), certificate(t, dir, "client")
	file := func(name string) string { return filepath.Join(dir, name) }
	files := renew.NewGroup(slog.New(slog.DiscardHandler), nil)
	config, err := renew.TLS{Cert: file("server.crt"), Key: file("server.key"), CA: clientCA}.Server(files)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Accept: newKeeper().accept, TLS: config}
	l, target := listen(t)
	serve(t, s, l)
	target.TLS = true
	attempt := func(f renew.TLS) error {
		c, err := f.Client(files, "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = dial(t, &Dialer{Target: target, TLS: c, Agent: testAgent})
		return err
	}
	if err := attempt(renew.TLS{CA: serverCA, Cert: file("client.crt"), Key: file("client.key")}); err != nil {
		t.Error(err)
	}
	if attempt(renew.TLS{CA: serverCA}) == nil || attempt(renew.TLS{CA: serverCA, Cert: file("server.crt"), Key: file("server.key")}) == nil || attempt(renew.TLS{CA: clientCA}) == nil {
		t.Error("a wrong certificate was accepted")
	}
	if _, err := dial(t, &Dialer{Target: Target{Network: "tcp", Address: target.Address}, Agent: testAgent}); err == nil {
		t.Error("a server with TLS took a plain connection")
	}
	if n := s.Stats().Refused[CodeTLS]; n < 3 {
		t.Errorf("%d refusals counted", n)
	}
}

func TestParseTarget(t *testing.T) {
	for in, want := range map[string]string{
		"whylate.example": "tls://whylate.example:7701", "10.0.0.1:5": "tls://10.0.0.1:5", "localhost": "tcp://localhost:7701", "127.0.0.1:5": "tcp://127.0.0.1:5",
		"[::1]": "tcp://[::1]:7701", "tcp://10.0.0.1": "tcp://10.0.0.1:7701", "tls://localhost:1": "tls://localhost:1", "unix:///a/b": "unix:///a/b",
		"": "", "unix://a": "", "http://a": "", "tcp://": "", "tcp://a/b": "",
	} {
		got, err := ParseTarget(in)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v; want %s", in, got, err, want)
		}
	}
}
