package deploy

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/cli"
	"github.com/whylate/whylate/config"
)

// commands is the one list of what units, images and manifests call: the program, its subcommand if it has one, and whose flags it
// takes. TestCommandsExist holds it against the command line itself.
var commands = []command{
	{"whylate", "serve", config.Server},
	{"whylate", "agent", config.Agents},
	{"whylate", "ping", 0}, // asks /healthz of the server that serve is with the same settings, for images without a shell
	{"whylate", "config", 0},
	{"whylate-agent", "", config.Agents},
}

type command struct {
	program, sub string
	role         config.Role
}

func (c command) flags() []string {
	if c.role == 0 {
		return []string{"config"}
	}
	set := flag.NewFlagSet("", flag.ContinueOnError)
	config.NewFlags(c.role).AddTo(set)
	var names []string
	set.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return names
}

// called checks a command line as a unit, an image or a manifest writes it: program, then subcommand, then flags.
func called(t *testing.T, where string, line ...string) {
	t.Helper()
	program, args := line[0][strings.LastIndexByte(line[0], '/')+1:], line[1:]
	i := slices.IndexFunc(commands, func(c command) bool {
		return c.program == program && (c.sub == "" || len(args) > 0 && c.sub == args[0])
	})
	if i < 0 {
		t.Errorf("%s calls %q, which is none of the commands in commands_test.go", where, strings.Join(line, " "))
		return
	}
	c := commands[i]
	if c.sub != "" {
		args = args[1:]
	}
	for len(args) > 0 {
		name, _, joined := strings.Cut(args[0], "=")
		long, ok := strings.CutPrefix(name, "--")
		if !ok || !slices.Contains(c.flags(), long) {
			t.Errorf("%s gives %s the argument %s, which it does not have", where, program, args[0])
			return
		}
		if args = args[1:]; !joined && len(args) > 0 {
			args = args[1:]
		}
	}
}

// The list is right as far as the commands are there: each subcommand has the flags that it is said to have.
func TestCommandsExist(t *testing.T) {
	for _, c := range commands {
		name := strings.TrimSpace(c.program + " " + c.sub)
		t.Run(name, func(t *testing.T) {
			var out, errs bytes.Buffer
			switch {
			case c.sub != "":
				if status := cli.Main([]string{c.sub, "--help"}, strings.NewReader(""), &out, &errs); status != cli.ExitOK || !strings.Contains(out.String(), "whylate "+c.sub) {
					t.Skipf("%s is not there yet: what calls it does not work", name)
				}
			default:
				tool := exec.Command("go", "run", "../cmd/"+c.program, "--help")
				tool.Stdout, tool.Stderr = &out, &out
				if err := tool.Run(); err != nil || !strings.Contains(out.String(), "-config") {
					t.Skipf("%s does not read whylate.yaml yet (no --config): the agent's unit, image and manifests do not work", name)
				}
			}
			for _, f := range c.flags() {
				if c.role != 0 && !strings.Contains(out.String(), "-"+f+" ") {
					t.Errorf("%s --help does not name --%s", name, f)
				}
			}
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settings reads a whylate.yaml strictly, as the process would without any environment.
func settings(t *testing.T, where, text string) *config.Config {
	t.Helper()
	c, err := config.Load(config.Input{File: "/etc/whylate/whylate.yaml", ReadFile: func(string) ([]byte, error) { return []byte(text), nil }})
	if err != nil {
		t.Fatalf("%s: %v", where, err)
	}
	return c
}
