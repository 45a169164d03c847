package bundle

import (
	"archive/zip"
	"fmt"
	"strings"
)

// packed is what members of a zip take in it, by path.
type packed map[string]int64

// screen takes out of a zip what must not be read, before anybody walks through it: the library would mend such names, and no bundle of ours
// has them.
func screen(z *zip.Reader, l Limits, pack packed) (refused []Refusal) {
	count := map[string]int{}
	for _, f := range z.File {
		count[strings.TrimSuffix(f.Name, "/")]++
	}
	var sound []*zip.File
	for _, f := range z.File {
		why := unsafe(f.Name)
		switch n := count[strings.TrimSuffix(f.Name, "/")]; {
		case why != "":
		case n > 1 && !strings.HasSuffix(f.Name, "/"):
			why = fmt.Sprintf("it is there %d times: which one is meant?", n)
		case f.Flags&1 != 0:
			why = "it is encrypted: unpack it with its password"
		case f.Method != zip.Store && f.Method != zip.Deflate:
			why = fmt.Sprintf("it is packed by method %d, which is not known here: use deflate", f.Method)
		case strings.HasPrefix(f.Name, "__MACOSX/"):
			why = "what a file system put beside a file"
		case f.UncompressedSize64 > uint64(l.Bytes):
			why = fmt.Sprintf("it would unpack to %d bytes, over %d", f.UncompressedSize64, l.Bytes)
		}
		if why != "" {
			refused = append(refused, Refusal{printable(f.Name), why})
			continue
		}
		pack[f.Name] = int64(f.CompressedSize64)
		sound = append(sound, f)
	}
	z.File = sound
	return refused
}

// tooDense says that a member is a bomb; "" where it is none.
func tooDense(packed, unpacked int64, l Limits) string {
	if unpacked <= small || unpacked/max(packed, 1) <= l.Ratio {
		return ""
	}
	return fmt.Sprintf("a bomb: %d bytes that would unpack to %d, more than %d times as many", packed, unpacked, l.Ratio)
}

// printable is a name for messages.
func printable(name string) string {
	q := fmt.Sprintf("%.200q", name)
	return q[1 : len(q)-1]
}
