package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Check says what is wrong with the file at path, as a process that is started here and now would find it: the file, this
// process's environment, and the files, directories and disks that they name. "" is the file that Load would read.
//
// The agent's section is looked at where it says anything. Nothing is changed: where it is tried whether a directory can be
// written, the file is removed again.
func Check(path string) []Problem {
	return check(Input{File: path, Environ: os.Environ()}, thisHost())
}

func check(in Input, h host) []Problem {
	c, problems := load(in)
	problems = append(problems, strangers(in.Environ)...)
	if len(problems.errorsOnly()) > 0 {
		return problems // what else there is depends on what is meant
	}
	ch := checker{c: c, h: h}
	ch.file(in)
	ch.identity("tls.cert", c.TLS.Cert, "tls.key", c.TLS.Key)
	ch.authorities("tls.client_ca", c.TLS.ClientCA)
	ch.secret("tokens_file", c.TokensFile, true)
	ch.secret("metrics.remote.token_file", c.Metrics.Remote.TokenFile, true)
	ch.secret("metrics.remote.password_file", c.Metrics.Remote.PasswordFile, true)
	ch.authorities("metrics.remote.ca", c.Metrics.Remote.CA)
	ch.secret("listen.agents_tokens", c.Listen.AgentsTokens, true)
	ch.secret("export.headers_file", c.Export.HeadersFile, true)
	ch.authorities("export.tls.ca", c.Export.TLS.CA)
	ch.identity("export.tls.cert", c.Export.TLS.Cert, "export.tls.key", c.Export.TLS.Key)
	ch.dir("data_dir", c.DataDir)
	ch.socket("listen.unix", c.Listen.Unix)
	agent := c.mentions("agent.")
	if c.Rings.Follow || agent {
		ch.rings(c.Rings.Dir)
	}
	if agent {
		ch.secret("agent.token_file", c.Agent.TokenFile, true)
		ch.secret("agent.key_file", c.Agent.KeyFile, false)
		ch.authorities("agent.tls.ca", c.Agent.TLS.CA)
		ch.identity("agent.tls.cert", c.Agent.TLS.Cert, "agent.tls.key", c.Agent.TLS.Key)
		ch.dir("agent.spool_dir", c.Agent.SpoolDir)
		ch.room("agent.spool_dir", c.Agent.SpoolDir, uint64(c.Agent.SpoolBytes), "agent.spool_bytes")
	}
	return append(problems, ch.problems...)
}

// mentions reports whether any key below prefix is set somewhere.
func (c *Config) mentions(prefix string) bool {
	for i := range keys {
		if strings.HasPrefix(keys[i].Name, prefix) && c.Source(keys[i].Name).Origin != FromDefault {
			return true
		}
	}
	return false
}

type checker struct {
	c        *Config
	h        host
	problems []Problem
}

func (ch *checker) add(s Severity, key, text, remedy string) {
	e, _ := ch.c.Explain(key)
	ch.problems = append(ch.problems, Problem{Severity: s, Source: e.Source, Key: key, Value: e.Value, Text: text, Remedy: remedy})
}

// file warns where others can write the file: they could send records and tokens elsewhere.
func (ch *checker) file(in Input) {
	name, _, _ := in.read(lookupIn(in.Environ))
	if name == "" {
		return
	}
	if info, err := ch.h.stat(name); err == nil && info.Mode().Perm()&0o002 != 0 {
		ch.problems = append(ch.problems, Problem{Severity: Warning, Source: Source{Origin: FromFile, Name: name},
			Text: fmt.Sprintf("has mode %04o: anyone may change it", info.Mode().Perm()), Remedy: "chmod o-w " + name})
	}
}

// secret looks at a file that holds one. It reads no more of it than whether it is empty.
func (ch *checker) secret(key, path string, needed bool) {
	if path == "" {
		return
	}
	info, err := ch.h.stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !needed:
		return // whoever needs it makes it
	case err != nil:
		ch.add(Error, key, "cannot be read: "+reason(err), "make it with mode 0600, owned by the user that whylate runs as")
		return
	case !info.Mode().IsRegular():
		ch.add(Error, key, "is not a file", "")
		return
	}
	if data, err := ch.h.readFile(path); err != nil {
		ch.add(Error, key, "cannot be read: "+reason(err), "let the user that whylate runs as read it")
	} else if len(strings.TrimSpace(string(data))) == 0 {
		ch.add(Error, key, "is empty", "")
	}
	ch.mode(key, path, info)
}

// mode warns of a secret that every user of the machine can read. A group may: Kubernetes hands secrets to one.
func (ch *checker) mode(key, path string, info fs.FileInfo) {
	switch m := info.Mode().Perm(); {
	case m&0o007 != 0:
		ch.add(Warning, key, fmt.Sprintf("has mode %04o: every user of this machine can reach the secret", m), "chmod 0600 "+path)
	case m&0o020 != 0:
		ch.add(Warning, key, fmt.Sprintf("has mode %04o: its group can change the secret", m), "chmod 0640 "+path)
	}
}

// expiresSoon is how long before its end a certificate is worth a warning.
const expiresSoon = 14 * day

// identity looks at a certificate and its key.
func (ch *checker) identity(certKey, cert, keyKey, key string) {
	if cert == "" {
		return
	}
	certPEM, err := ch.h.readFile(cert)
	if err != nil {
		ch.add(Error, certKey, "cannot be read: "+reason(err), "")
	}
	keyPEM, kerr := ch.h.readFile(key)
	if kerr != nil {
		ch.add(Error, keyKey, "cannot be read: "+reason(kerr), "")
	}
	if err != nil || kerr != nil {
		return
	}
	if info, err := ch.h.stat(key); err == nil {
		ch.mode(keyKey, key, info)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		ch.add(Error, certKey, "does not go with "+keyKey+": "+strings.TrimPrefix(err.Error(), "tls: "), "")
		return
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		ch.add(Error, certKey, "is not a certificate", "")
		return
	}
	switch now := ch.h.now(); {
	case now.After(leaf.NotAfter):
		ch.add(Error, certKey, "expired on "+leaf.NotAfter.UTC().Format(time.DateOnly), "renew it")
	case now.Before(leaf.NotBefore):
		ch.add(Warning, certKey, "is valid only from "+leaf.NotBefore.UTC().Format(time.RFC3339), "look at this machine's clock")
	case now.Add(expiresSoon).After(leaf.NotAfter):
		ch.add(Warning, certKey, "expires on "+leaf.NotAfter.UTC().Format(time.DateOnly), "renew it")
	}
}

func (ch *checker) authorities(key, path string) {
	if path == "" {
		return
	}
	pem, err := ch.h.readFile(path)
	if err != nil {
		ch.add(Error, key, "cannot be read: "+reason(err), "")
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		ch.add(Error, key, "holds no certificate in PEM", "")
	}
}

// dir looks whether a directory can be written, or made.
func (ch *checker) dir(key, path string) {
	at, info, err := ch.existing(path)
	switch {
	case err != nil:
		ch.add(Error, key, "cannot be reached: "+reason(err), "")
		return
	case !info.IsDir():
		ch.add(Error, key, at+" is not a directory", "")
		return
	}
	if err := ch.h.tryWrite(at); err != nil {
		what := "cannot be written: "
		if at != path {
			what = "is not there and cannot be made in " + at + ": "
		}
		ch.add(Error, key, what+reason(err), "give it to the user that whylate runs as")
		return
	}
	if at == path && info.Mode().Perm()&0o007 != 0 && key == "data_dir" {
		ch.add(Warning, key, fmt.Sprintf("has mode %04o: every user of this machine can read what was recorded", info.Mode().Perm()), "chmod o-rwx "+path)
	}
	ch.room(key, path, 0, "")
}

// fullBelow is the share of a disk that should be free, and least what no disk may fall below, in bytes.
const (
	fullBelow = 0.10
	least     = 1 << 30
)

// room warns where the disk is nearly full, or could not take what another key allows.
func (ch *checker) room(key, path string, need uint64, needKey string) {
	at, _, err := ch.existing(path)
	if err != nil {
		return
	}
	d, err := ch.h.space(at)
	switch {
	case err != nil || d.total == 0:
		return
	case need > 0 && d.free < need:
		ch.add(Warning, needKey, fmt.Sprintf("is more than the %s that are free where %s is", roughly(d.free), key), "")
	case need > 0:
	case d.free < least || float64(d.free) < fullBelow*float64(d.total):
		ch.add(Warning, key, fmt.Sprintf("its disk is nearly full: %s of %s are free", roughly(d.free), roughly(d.total)), "make room, or shorten store.retention")
	}
}

func roughly(n uint64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// existing is path, or the nearest directory above it that is there.
func (ch *checker) existing(path string) (string, fs.FileInfo, error) {
	for {
		info, err := ch.h.stat(path)
		if !errors.Is(err, fs.ErrNotExist) || path == filepath.Dir(path) {
			return path, info, err
		}
		path = filepath.Dir(path)
	}
}

func (ch *checker) socket(key, path string) {
	if path == "" {
		return
	}
	if info, err := ch.h.stat(path); err == nil && info.Mode().Type() != fs.ModeSocket {
		ch.add(Error, key, "is there and is not a socket", "remove it, or name another path")
		return
	}
	dir := filepath.Dir(path)
	if info, err := ch.h.stat(dir); err != nil || !info.IsDir() {
		ch.add(Error, key, "its directory "+dir+" is not there", "make it")
	} else if err := ch.h.tryWrite(dir); err != nil {
		ch.add(Error, key, "cannot be made in "+dir+": "+reason(err), "give it to the user that whylate runs as")
	}
}

func (ch *checker) rings(dir string) {
	info, err := ch.h.stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		ch.add(Warning, "rings.dir", "is not there: no engine with the probe has run on this machine, or its /dev/shm is another one",
			"start the engine with the probe; in containers mount one memory volume there and in the engine's (probes/vllm/README.md)")
	case err != nil:
		ch.add(Error, "rings.dir", "cannot be reached: "+reason(err), "run whylate as the engine's user")
	case !info.IsDir():
		ch.add(Error, "rings.dir", "is not a directory", "")
	default:
		if err := ch.h.readDir(dir); err != nil {
			ch.add(Error, "rings.dir", "cannot be read: "+reason(err), "run whylate as the engine's user: rings have mode 0600")
		}
	}
}

// probeVariables are the variables of the probe and of this package that are no key's.
var probeVariables = []string{FileVariable, "WHYLATE_PROBE", "WHYLATE_RING_BYTES", "WHYLATE_DEPLOYMENT", "WHYLATE_REPLICA", "WHYLATE_BLOCK_HASHES", "WHYLATE_INCARNATION"}

// Variables are all environment variables that mean something to whylate or to its probe.
func Variables() []string {
	names := slices.Clone(probeVariables)
	for i := range keys {
		names = append(names, keys[i].Env())
	}
	slices.Sort(names)
	return names
}

// strangers warns of variables that look like ours and mean nothing: a typo there is otherwise silent.
func strangers(environ []string) []Problem {
	known := Variables()
	var problems []Problem
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "WHYLATE_") || slices.Contains(known, name) || fromKubernetes.MatchString(e) {
			continue
		}
		problems = append(problems, Problem{Severity: Warning, Source: Source{Origin: FromEnvironment, Name: shorten(name)},
			Text: "means nothing to whylate", Nearest: Nearest(name, known), Remedy: "docs/config.md lists the variables"})
	}
	return problems
}

// fromKubernetes is a variable that a cluster makes for each Service, here for one whose name begins with whylate.
var fromKubernetes = regexp.MustCompile(`^WHYLATE_.*(_SERVICE_HOST=|_SERVICE_PORT(_[A-Z0-9_]+)?=|PORT=(tcp|udp|sctp)://|PORT_\d+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?=)|^WHYLATE_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?)=`)

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
