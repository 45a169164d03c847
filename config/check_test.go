package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// machine is a host made of a map of files.
func machine(files fstest.MapFS) host {
	at := func(p string) string { return strings.TrimPrefix(p, "/") }
	return host{
		readFile: func(p string) ([]byte, error) { return fs.ReadFile(files, at(p)) },
		stat: func(p string) (fs.FileInfo, error) {
			if p == "/" {
				p = "."
			}
			return fs.Stat(files, at(p))
		},
		readDir:  func(string) error { return nil },
		tryWrite: func(string) error { return nil },
		space:    func(string) (disk, error) { return disk{free: 50 << 30, total: 100 << 30}, nil },
		now:      func() time.Time { return noon },
	}
}

func rings() fstest.MapFS {
	return fstest.MapFS{"dev/shm/whylate": {Mode: fs.ModeDir | 0o700}, "var/lib/whylate": {Mode: fs.ModeDir | 0o750}}
}

func lines(ps []Problem) string {
	var out []string
	for _, p := range ps {
		out = append(out, p.Severity.String()+" "+p.Error())
	}
	return strings.Join(out, "\n")
}

func TestCheckOfNothing(t *testing.T) {
	if ps := check(input(""), machine(rings())); len(ps) != 0 {
		t.Error(lines(ps))
	}
}

func TestCheck(t *testing.T) {
	cert, key := certificate(t, noon.Add(-time.Hour), noon.Add(5*day))
	old, oldKey := certificate(t, noon.Add(-2*day), noon.Add(-day))
	for name, c := range map[string]struct {
		file    string
		environ []string
		change  func(fstest.MapFS, *host)
		want    []string // each a part of its own problem
	}{
		"open to others": {file: "listen: {http: ':7700'}", want: []string{"warning /etc/whylate/whylate.yaml:1:16: listen.http = \":7700\": other machines reach it, and there is no TLS", "listen.http = \":7700\": other machines reach it, and there are no tokens: whoever reaches it may read everything and import; set tokens_file"}},
		"tokens":         {file: "tokens_file: /t", change: func(m fstest.MapFS, _ *host) { m["t"] = &fstest.MapFile{Data: []byte("x"), Mode: 0o644} }, want: []string{"warning /etc/whylate/whylate.yaml:1:14: tokens_file = \"/t\": has mode 0644: every user of this machine can reach the secret; chmod 0600 /t"}},
		"group tokens":   {file: "tokens_file: /t", change: func(m fstest.MapFS, _ *host) { m["t"] = &fstest.MapFile{Data: []byte("x"), Mode: 0o640} }},
		"no tokens":      {file: "tokens_file: /t", want: []string{"error /etc/whylate/whylate.yaml:1:14: tokens_file = \"/t\": cannot be read: file does not exist"}},
		"empty tokens":   {file: "tokens_file: /t", change: func(m fstest.MapFS, _ *host) { m["t"] = &fstest.MapFile{Data: []byte(" \n"), Mode: 0o600} }, want: []string{"tokens_file = \"/t\": is empty"}},
		"read-only data": {change: func(_ fstest.MapFS, h *host) {
			h.tryWrite = func(string) error { return &fs.PathError{Err: fs.ErrPermission} }
		}, want: []string{"error default: data_dir = \"/home/op/.local/share/whylate\": is not there and cannot be made in /: permission denied"}},
		"data is a file": {file: "data_dir: /t/x", change: func(m fstest.MapFS, _ *host) { m["t"] = &fstest.MapFile{} }, want: []string{"data_dir = \"/t/x\": "}},
		"full disk": {change: func(_ fstest.MapFS, h *host) {
			h.space = func(string) (disk, error) { return disk{free: 500 << 20, total: 100 << 30}, nil }
		}, want: []string{"warning default: data_dir = \"/home/op/.local/share/whylate\": its disk is nearly full: 500 MiB of 100.0 GiB are free"}},
		"no rings":        {change: func(m fstest.MapFS, _ *host) { delete(m, "dev/shm/whylate") }, want: []string{"warning default: rings.dir = \"/dev/shm/whylate\": is not there"}},
		"rings not asked": {file: "rings: {follow: false}", change: func(m fstest.MapFS, _ *host) { delete(m, "dev/shm/whylate") }},
		"others' rings":   {change: func(_ fstest.MapFS, h *host) { h.readDir = func(string) error { return fs.ErrPermission } }, want: []string{"error default: rings.dir = \"/dev/shm/whylate\": cannot be read: permission denied; run whylate as the engine's user"}},
		"stranger": {environ: []string{"WHYLATE_LISTEN_HTPP=x", "WHYLATE_PROBE=off", "WHYLATE_SERVICE_HOST=10.0.0.1", "WHYLATE_PORT_7700_TCP_ADDR=10.0.0.1", "WHYLATE_PORT=tcp://10.0.0.1:7700", "WHYLATE_SERVICE_PORT_HTTP=1"},
			want: []string{"warning environment variable WHYLATE_LISTEN_HTPP: means nothing to whylate; did you mean WHYLATE_LISTEN_HTTP?"}},
		"certificate ends soon": {file: "tls: {cert: /c, key: /k}", change: func(m fstest.MapFS, _ *host) {
			m["c"], m["k"] = &fstest.MapFile{Data: cert, Mode: 0o644}, &fstest.MapFile{Data: key, Mode: 0o604}
		},
			want: []string{"warning /etc/whylate/whylate.yaml:1:22: tls.key = \"/k\": has mode 0604", "warning /etc/whylate/whylate.yaml:1:13: tls.cert = \"/c\": expires on 2026-03-06; renew it"}},
		"certificate ended": {file: "tls: {cert: /c, key: /k}", change: func(m fstest.MapFS, _ *host) {
			m["c"], m["k"] = &fstest.MapFile{Data: old}, &fstest.MapFile{Data: oldKey, Mode: 0o600}
		}, want: []string{"error /etc/whylate/whylate.yaml:1:13: tls.cert = \"/c\": expired on 2026-02-28"}},
		"another's key": {file: "tls: {cert: /c, key: /k}", change: func(m fstest.MapFS, _ *host) {
			m["c"], m["k"] = &fstest.MapFile{Data: cert}, &fstest.MapFile{Data: oldKey, Mode: 0o600}
		}, want: []string{"tls.cert = \"/c\": does not go with tls.key"}},
		"no authorities": {file: "tls: {cert: /c, key: /k, client_ca: /k}", change: func(m fstest.MapFS, _ *host) {
			m["c"], m["k"] = &fstest.MapFile{Data: cert}, &fstest.MapFile{Data: key, Mode: 0o600}
		}, want: []string{"expires on", "tls.client_ca = \"/k\": holds no certificate in PEM"}},
		"agent":  {file: "agent: {server: 'srv:7701', token_file: /t, key_file: /k, spool_bytes: 900GiB}", want: []string{"error /etc/whylate/whylate.yaml:1:41: agent.token_file", "agent.spool_bytes = \"900GiB\": is more than the 50.0 GiB that are free where agent.spool_dir is"}},
		"socket": {file: "listen: {unix: /run/w/s.sock}", want: []string{"error /etc/whylate/whylate.yaml:1:16: listen.unix = \"/run/w/s.sock\": its directory /run/w is not there"}},
		"data_dir readable": {file: "data_dir: /var/lib/whylate", change: func(m fstest.MapFS, _ *host) { m["var/lib/whylate"].Mode = fs.ModeDir | 0o755 },
			want: []string{"warning /etc/whylate/whylate.yaml:1:11: data_dir = \"/var/lib/whylate\": has mode 0755"}},
		"kept too long": {file: "store: {retention: {iterations: forever}}", want: []string{"warning /etc/whylate/whylate.yaml:1:33: store.retention.iterations = \"forever\": is longer than"}},
		"broken file":   {file: "listen: {http: x}", change: func(_ fstest.MapFS, h *host) { h.stat = nil }, want: []string{"error /etc/whylate/whylate.yaml:1:16: listen.http"}},
		"anyone's file": {file: "log: {}", change: func(m fstest.MapFS, _ *host) { m["etc/whylate/whylate.yaml"] = &fstest.MapFile{Mode: 0o666} }, want: []string{"warning /etc/whylate/whylate.yaml: has mode 0666: anyone may change it"}},
	} {
		t.Run(name, func(t *testing.T) {
			files := rings()
			h := machine(files)
			if c.change != nil {
				c.change(files, &h)
			}
			got := check(input(c.file, c.environ...), h)
			if len(got) != len(c.want) {
				t.Fatalf("got\n%s\nwant\n%s", lines(got), strings.Join(c.want, "\n"))
			}
			for i, p := range got {
				if line := p.Severity.String() + " " + p.Error(); !strings.Contains(line, c.want[i]) {
					t.Errorf("got %s\nwant %s", line, c.want[i])
				}
			}
		})
	}
}

// The real host: a directory with a file, a token file that all may read, and nothing left behind.
func TestCheckOfThisMachine(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(p, []byte(text), mode), os.Chmod(p, mode)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	file := write("whylate.yaml", "tokens_file: ./tokens\ndata_dir: ./data\nrings: {dir: .}\n", 0o600)
	write("tokens", "secret", 0o604)
	ps := check(Input{File: file}, thisHost())
	if i := slices.IndexFunc(ps, func(p Problem) bool { return p.Key == "tokens_file" && strings.Contains(p.Text, "0604") }); i < 0 {
		t.Error(lines(ps))
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 2 {
		t.Errorf("the check left something behind: %v", entries)
	}
	if got := Check(filepath.Join(dir, "none.yaml")); len(got) == 0 || got[0].Severity != Error {
		t.Error(lines(got))
	}
}

func certificate(t *testing.T, from, to time.Time) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: to}, &x509.Certificate{SerialNumber: big.NewInt(1)}, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	kd, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: kd})
}
