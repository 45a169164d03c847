package deploy

import (
	"encoding/json"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/config"
)

// stage is one FROM of a Dockerfile.
type stage struct {
	name, from string
	lines      [][2]string // instruction and its arguments
}

func (s *stage) all(instruction string) []string {
	var out []string
	for _, l := range s.lines {
		if l[0] == instruction {
			out = append(out, l[1])
		}
	}
	return out
}

// stages reads a Dockerfile, with lines that go on joined.
func stages(t *testing.T, text string) []stage {
	t.Helper()
	known := []string{"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
	var out []stage
	text = strings.ReplaceAll(text, "\\\n", "")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		instruction, args, _ := strings.Cut(line, " ")
		if !slices.Contains(known, instruction) {
			t.Errorf("%s is no instruction", instruction)
		}
		if instruction == "FROM" {
			m := regexp.MustCompile(`^(?:--platform=\S+ )?(\S+) AS (\S+)$`).FindStringSubmatch(args)
			if m == nil {
				t.Fatalf("FROM %s has no name", args)
			}
			out = append(out, stage{name: m[2], from: m[1]})
			continue
		}
		if len(out) == 0 {
			t.Fatalf("%s before FROM", line)
		}
		s := &out[len(out)-1]
		s.lines = append(s.lines, [2]string{instruction, args})
	}
	return out
}

// list is a command in its JSON form; the form with a shell would not work without one.
func list(t *testing.T, args string) []string {
	t.Helper()
	var out []string
	if err := json.Unmarshal([]byte(args), &out); err != nil {
		t.Errorf("%s is not a list, and there is no shell: %v", args, err)
	}
	return out
}

func TestDockerfile(t *testing.T) {
	ss := stages(t, read(t, "docker/Dockerfile"))
	build := ss[0]
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../go.mod"))[1]
	if !strings.HasPrefix(build.from, "golang:"+goVersion+"-") {
		t.Errorf("it is built with %s, and go.mod says %s", build.from, goVersion)
	}
	if !strings.Contains(strings.Join(build.all("ENV"), " "), "CGO_ENABLED=0") {
		t.Error("binaries are not static")
	}
	_ = &cli.Version // what the next line sets is there
	made := map[string]bool{}
	for _, run := range build.all("RUN") {
		for _, m := range regexp.MustCompile(`/out/[\w./-]+`).FindAllString(run, -1) {
			made[m] = true
		}
		if m := regexp.MustCompile(`go build .* -o \S+ (\./cmd/\S+)$`).FindStringSubmatch(run); m != nil && !strings.Contains(run, "-X github.com/whylate/whylate/cli.Version=$VERSION") {
			t.Errorf("%s gets no version", m[1])
		}
	}
	names := []string{}
	for _, s := range ss[1:] {
		names = append(names, s.name)
		if s.from != "scratch" {
			t.Errorf("%s is made from %s", s.name, s.from)
		}
		files := map[string]bool{}
		for _, c := range s.all("COPY") {
			fields := strings.Fields(c)
			var from string
			for strings.HasPrefix(fields[0], "--") {
				if v, ok := strings.CutPrefix(fields[0], "--from="); ok {
					from = v
				}
				fields = fields[1:]
			}
			if from != build.name {
				t.Errorf("%s copies from %q", s.name, from)
			}
			for _, src := range fields[:len(fields)-1] {
				if strings.HasPrefix(src, "/out/") && !made[src] {
					t.Errorf("%s copies %s, which nothing makes", s.name, src)
				}
				if rest, ok := strings.CutPrefix(src, "/src/"); ok {
					if _, err := os.Stat("../" + rest); err != nil {
						t.Errorf("%s copies %s, which is not in the repository", s.name, rest)
					}
				}
			}
			files[strings.TrimSuffix(fields[len(fields)-1], "/")] = true
		}
		if u := s.all("USER"); len(u) != 1 || regexp.MustCompile(`^(0|root)\b`).MatchString(u[0]) {
			t.Errorf("%s runs as %v", s.name, u)
		}
		entry := list(t, s.all("ENTRYPOINT")[0])
		if !files[entry[0]] {
			t.Errorf("%s starts %s, which is not in it", s.name, entry[0])
		}
		line := entry
		for _, c := range s.all("CMD") {
			line = append(slices.Clone(entry), list(t, c)...)
		}
		called(t, "image "+s.name, line...)
		for _, h := range s.all("HEALTHCHECK") {
			_, cmd, _ := strings.Cut(h, "CMD ")
			check := list(t, cmd)
			called(t, "HEALTHCHECK of "+s.name, check...)
			if !files[check[0]] {
				t.Errorf("%s is checked by %s, which is not in it", s.name, check[0])
			}
		}
		// Where it writes by default is a directory of its user.
		c, err := config.Load(config.Input{Environ: s.all("ENV"), ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
		if err != nil {
			t.Fatal(err)
		}
		dir := c.DataDir
		if s.name == "agent" {
			dir = c.Agent.SpoolDir
		}
		if !files[dir] {
			t.Errorf("%s writes to %s, which is not in it", s.name, dir)
		}
		for _, v := range s.all("VOLUME") {
			if v != dir {
				t.Errorf("%s: the volume is %s, and the data are in %s", s.name, v, dir)
			}
		}
		for _, e := range s.all("EXPOSE") {
			if want := port(c.Listen.HTTP) + " " + port(c.Listen.Agents); e != want {
				t.Errorf("%s exposes %s, the defaults are %s", s.name, e, want)
			}
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"agent", "server"}) {
		t.Errorf("images: %v", names)
	}
	for _, dir := range []string{"cmd", "internal", "go.mod", "LICENSE", "NOTICE"} {
		for line := range strings.Lines(read(t, "docker/Dockerfile.dockerignore")) {
			if ok, _ := path.Match(strings.TrimSpace(line), dir); ok {
				t.Errorf("%s is left out of the build", dir)
			}
		}
	}
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
