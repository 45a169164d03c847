package deploy

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A wrong version is refused before anything is built.
func TestDistRefuses(t *testing.T) {
	for _, version := range []string{"", "1", "latest", "1.2.3 4", "1.2.3;x", "../1.2.3"} {
		out, err := exec.Command("../scripts/dist.sh", version, t.TempDir()).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "VERSION is '"+version+"'") {
			t.Errorf("%q: %v\n%s", version, err, out)
		}
	}
}

// The archives hold what they should, and two builds under different circumstances are the same bytes. It builds all of them
// twice, so it runs only when it is asked for: DIST=1 go test ./deploy -run TestDist
func TestDist(t *testing.T) {
	if os.Getenv("DIST") == "" {
		t.Skip("DIST=1 builds the archives twice, which takes minutes")
	}
	dirs := []string{t.TempDir(), t.TempDir()}
	for i, env := range [][]string{{"SOURCE_DATE_EPOCH=1700000000"}, {"SOURCE_DATE_EPOCH=1700000000", "GOFLAGS=-mod=mod", "GOAMD64=v3", "CGO_ENABLED=1", "TZ=Asia/Tokyo", "TMPDIR=" + t.TempDir()}} {
		cmd := exec.Command("../scripts/dist.sh", "v9.8.7-test.1", dirs[i])
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	sums := read(t, filepath.Join(dirs[0], "SHA256SUMS"))
	if other := read(t, filepath.Join(dirs[1], "SHA256SUMS")); sums != other {
		t.Errorf("two builds differ:\n%s\n%s", sums, other)
	}
	check := exec.Command("sha256sum", "-c", "SHA256SUMS")
	check.Dir = dirs[0]
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for name, program := range map[string]string{"whylate-9.8.7-test.1-linux-amd64": "whylate", "whylate-agent-9.8.7-test.1-linux-amd64": "whylate-agent", "whylate-agent-9.8.7-test.1-linux-arm64": "whylate-agent"} {
		var want []string
		for _, f := range []string{program, "whylate-gpu", "LICENSE", "NOTICE", "README.md", "THIRD_PARTY_LICENSES.txt", "docs/config.md", "docs/operations.md", "systemd/" + program + ".service", "systemd/whylate.sysusers.conf", "whylate.example.yaml"} {
			want = append(want, name+"/"+f)
		}
		slices.Sort(want)
		if got := contents(t, filepath.Join(dirs[0], name+".tar.gz")); !slices.Equal(got, want) {
			t.Errorf("%s holds\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// contents are the names of an archive's files.
func contents(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			names = append(names, h.Name)
		}
		if h.ModTime.Unix() != 1700000000 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s: %v, owner %d:%d %q", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
	}
}
