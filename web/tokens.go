package web

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Role is what a token allows. Each role may do what those before it may.
type Role int

const (
	Public   Role = 0 // needs no token
	Viewer   Role = 1 // may ask
	Operator Role = 2 // may change what there is, or have all of it: import, store
)

// String is the role's name in a token file.
func (r Role) String() string {
	return [...]string{"public", "viewer", "operator"}[min(max(r, 0), 2)]
}

// minToken is the least length of a token: shorter ones can be guessed.
const minToken = 16

// Tokens are the bearer tokens that a server accepts. Only their hashes are kept.
type Tokens struct {
	hashes [][sha256.Size]byte
	roles  []Role
}

// ParseTokens reads a token file: one "role token" a line, where the role is viewer or operator; empty lines and lines that begin
// with # are skipped. name is what errors call the file. An error never shows a token.
func ParseTokens(name string, b []byte) (*Tokens, error) {
	t := &Tokens{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s line %d has %d words: give a role and a token, such as 'viewer 5f0c…'", name, n, len(fields))
		}
		role, ok := map[string]Role{"viewer": Viewer, "operator": Operator}[fields[0]]
		if !ok {
			return nil, fmt.Errorf("%s line %d: role %.20q: give viewer or operator", name, n, fields[0])
		}
		token := fields[1]
		if len(token) < minToken {
			return nil, fmt.Errorf("%s line %d: the token has %d characters, too few to be safe: give at least %d, for example of 'openssl rand -hex 32'", name, n, len(token), minToken)
		}
		if !printable(token) {
			return nil, fmt.Errorf("%s line %d: the token has characters that no HTTP header carries: use letters, digits and - . _ ~ + / =", name, n)
		}
		hash := sha256.Sum256([]byte(token))
		for k, h := range t.hashes {
			if h == hash {
				return nil, fmt.Errorf("%s line %d: the token stands there twice, as %s and as %s: leave one", name, n, t.roles[k], role)
			}
		}
		t.hashes, t.roles = append(t.hashes, hash), append(t.roles, role)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read tokens of %s: %w", name, err)
	}
	if len(t.hashes) == 0 {
		return nil, fmt.Errorf("%s holds no token, so nobody could ask anything: add a line such as 'viewer TOKEN', or configure no token file", name)
	}
	return t, nil
}

// LoadTokens reads a token file. A warning is not empty if others than its owner can read or change it.
func LoadTokens(path string) (t *Tokens, warning string, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("token file: %w; make it with lines such as 'viewer TOKEN'", err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("token file: %w", err)
	}
	if t, err = ParseTokens(path, b); err != nil {
		return nil, "", err
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		warning = fmt.Sprintf("token file %s has mode %04o, so others on this host can read it: chmod 600 %s", path, info.Mode().Perm(), path)
	}
	return t, warning, nil
}

// Role is what a token allows, Public if it is none of them. The time it takes does not depend on which token nearly matches.
func (t *Tokens) Role(token string) Role {
	hash := sha256.Sum256([]byte(token))
	role := Public
	for k := range t.hashes {
		same := subtle.ConstantTimeCompare(hash[:], t.hashes[k][:])
		role = Role(subtle.ConstantTimeSelect(same, int(t.roles[k]), int(role)))
	}
	return role
}

func printable(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}
