package agent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/whylate/whylate/wire"
)

const keySize = 32 // bytes

// LoadKey reads the key of block hashes from a file: 64 hex digits. If there is no file, it makes one that only its owner can read. Agents
// that share a key give equal prefixes equal hashes, on whatever host; without the key, nobody can test a guessed prompt against them.
func LoadKey(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of block hashes: %w", err)
	}
	key, err := hex.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(key) != keySize {
		return nil, fmt.Errorf("read the key of block hashes: %s does not hold %d hex digits; make it with 'openssl rand -hex %d', or remove it and the agent makes one",
			path, 2*keySize, keySize)
	}
	return key, nil
}

// makeKey writes a new key in full before it gives the file its name, so that nobody ever reads half of one.
func makeKey(path string) ([]byte, error) {
	wrap := func(err error) error { return fmt.Errorf("make the key of block hashes: %w", err) }
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, wrap(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".key-*") // 0600
	if err != nil {
		return nil, wrap(err)
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintf(f, "%x\n", key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, wrap(err)
	}
	switch err := os.Link(f.Name(), path); {
	case errors.Is(err, fs.ErrExist): // another agent was faster
		return LoadKey(path)
	case err != nil:
		return nil, wrap(err)
	}
	return key, nil
}

// keyer replaces raw block hashes by keyed ones.
type keyer struct {
	mac    hash.Hash
	sum    [sha256.Size]byte
	hashes wire.Hashes
	cache  wire.Cache
	built  []byte // the last frame, for reuse
}

func newKeyer(key []byte) *keyer { return &keyer{mac: hmac.New(sha256.New, key)} }

// withheld says why a frame must not leave the host.
type withheld struct{ why string }

func (w withheld) Error() string { return w.why }

// frame gives the bytes of f as they may leave the host, valid until the next call. What cannot be known to hold no raw hash is
// withheld.
func (k *keyer) frame(f wire.Frame) ([]byte, error) {
	var m wire.Message
	var hashes *[]uint64
	switch f.Type {
	case wire.TypeHashes:
		m, hashes = &k.hashes, &k.hashes.Hashes
	case wire.TypeCache:
		m, hashes = &k.cache, &k.cache.Hashes
	default:
		if wire.NewMessage(f.Type) == nil {
			return nil, withheld{fmt.Sprintf("not sent: this agent does not know message type %d, which may carry block hashes; upgrade the agent", f.Type)}
		}
		return f.Raw, nil
	}
	if err := wire.Decode(f, m); err != nil {
		return nil, withheld{fmt.Sprintf("not sent: its block hashes cannot be keyed: %v", err)}
	}
	for i, h := range *hashes {
		(*hashes)[i] = k.hash(h)
	}
	var err error
	if k.built, err = wire.Append(k.built[:0], f.Sequence, m); err != nil {
		return nil, withheld{fmt.Sprintf("not sent: its block hashes cannot be keyed: %v", err)}
	}
	return k.built, nil
}

// hash is the first 8 bytes of the HMAC-SHA256 of a raw hash.
func (k *keyer) hash(raw uint64) uint64 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], raw)
	k.mac.Reset()
	k.mac.Write(b[:])
	return binary.LittleEndian.Uint64(k.mac.Sum(k.sum[:0]))
}
