package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"

	"github.com/parquet-go/parquet-go/bloom"

	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
)

// filterFile says of most ids that a period has none of them, for the price of reading 32 bytes: without it a look-up by an id would
// open every period there is. It is a split block Bloom filter as Apache Parquet specifies it (XXH64 of the whole id, blocks of 256
// bits), without a header: the manifest says how long it is.
const filterFile = "ids.bloom"

// filterBits a distinct id: about one id in two hundred that is not there is looked for all the same.
const filterBits = 12

// filterOf makes the filter of all ids of the requests.
func filterOf(requests []*ledger.Request) []byte {
	ids := map[uint64]struct{}{}
	for _, r := range requests {
		for _, id := range r.IDs() {
			ids[hashID(id)] = struct{}{}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	f := make(bloom.SplitBlockFilter, bloom.NumSplitBlocksOf(int64(len(ids)), filterBits))
	for h := range ids {
		f.Insert(h)
	}
	return f.Bytes()
}

func hashID(id string) uint64 { return bloom.XXH64{}.Sum64([]byte(id)) }

// mayHave reports whether a request of the period may have an id. Periods of the first format have no filter, and one that cannot be read
// excludes nothing: whoever then looks finds out what is wrong.
func (p *period) mayHave(id string) bool {
	if p.m.Filter == nil {
		return true
	}
	if p.m.Filter.Bytes == 0 {
		return false
	}
	in, err := p.s.fs.Open(filepath.Join(p.dir, filterFile))
	if err != nil {
		return true
	}
	defer in.Close()
	has, err := bloom.CheckSplitBlock(in, p.m.Filter.Bytes, hashID(id))
	return has || err != nil
}

// writeFilter writes a filter beside the tables.
func writeFilter(f vfs.FS, dir string, filter []byte) (*fileInfo, error) {
	sum := sha256.Sum256(filter)
	info := &fileInfo{Bytes: int64(len(filter)), SHA256: hex.EncodeToString(sum[:])}
	return info, vfs.WriteFile(f, filepath.Join(dir, filterFile), filter)
}
