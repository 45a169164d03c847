package config

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"reflect"
	"strings"
	"testing"
)

const home = "HOME=/home/op"

// input is a file in /etc/whylate and an environment.
func input(text string, environ ...string) Input {
	return Input{File: "/etc/whylate/whylate.yaml", Environ: append(environ, home), Dir: "/srv",
		ReadFile: func(string) ([]byte, error) { return []byte(text), nil }}
}

func TestDefaults(t *testing.T) {
	none := Input{Environ: []string{home}, ReadFile: func(string) ([]byte, error) { return nil, fs.ErrNotExist }}
	c, err := Load(none)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.HTTP != "127.0.0.1:7700" || c.Listen.Agents != "127.0.0.1:7701" || c.DataDir != "/home/op/.local/share/whylate" || c.Rings.Dir != "/dev/shm/whylate" ||
		!c.Rings.Follow || c.Store.Retention.Requests != 30*day || c.Store.WAL.SegmentBytes != 64<<20 || c.TLS.Cert != "" {
		t.Errorf("%+v", c)
	}
	none.Environ = nil
	if c, err = Load(none); err != nil || c.DataDir != "/var/lib/whylate" || c.Agent.SpoolDir != "/var/lib/whylate-agent" || c.Agent.KeyFile != "/var/lib/whylate-agent/key" {
		t.Errorf("without a home: %v, %+v", err, c)
	}
	none.Environ = []string{"XDG_DATA_HOME=/data"}
	if c, err = Load(none); err != nil || c.DataDir != "/data/whylate" {
		t.Errorf("XDG_DATA_HOME: %v, %+v", err, c)
	}
}

func TestPrecedence(t *testing.T) {
	in := input("listen:\n  http: 10.0.0.1:1\n  agents: 10.0.0.1:2\nlog: {level: warn}\nrings:\n  dir: rings\n",
		"WHYLATE_LISTEN_HTTP=10.0.0.2:1", "WHYLATE_LOG_LEVEL=", "WHYLATE_DATA_DIR=data")
	in.Flags = NewFlags(Server)
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	in.Flags.AddTo(set)
	if err := set.Parse([]string{"--listen-http", "10.0.0.9:9", "--listen-http", "10.0.0.3:1", "--rings-follow=false", "--tokens-file", "./tokens"}); err != nil {
		t.Fatal(err)
	}
	c, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"listen.http":   "listen.http = 10.0.0.3:1, from flag --listen-http; hides 10.0.0.2:1 from environment variable WHYLATE_LISTEN_HTTP, 10.0.0.1:1 from /etc/whylate/whylate.yaml:2:9, 127.0.0.1:7700 from default",
		"listen.agents": "listen.agents = 10.0.0.1:2, from /etc/whylate/whylate.yaml:3:11; hides 127.0.0.1:7701 from default",
		"log.level":     "log.level = warn, from /etc/whylate/whylate.yaml:4:14; hides info from default",
		"log.format":    "log.format = text, from default",
		"rings.dir":     "rings.dir = /etc/whylate/rings, from /etc/whylate/whylate.yaml:6:8; hides /dev/shm/whylate from default",
		"data_dir":      "data_dir = /srv/data, from environment variable WHYLATE_DATA_DIR; hides /home/op/.local/share/whylate from default",
		"rings.follow":  "rings.follow = false, from flag --rings-follow; hides true from default",
		"tokens_file":   `tokens_file = /srv/tokens, from flag --tokens-file; hides "" from default`,
	} {
		e, err := c.Explain(key)
		if err != nil || e.String() != want {
			t.Errorf("%v\n got %s\nwant %s", err, e, want)
		}
	}
	if c.Listen.HTTP != "10.0.0.3:1" || c.Rings.Follow || c.Log.Level != "warn" {
		t.Errorf("%+v", c)
	}
	if _, err := c.Explain("listen.htp"); err == nil || !strings.Contains(err.Error(), "did you mean listen.http?") {
		t.Errorf("unknown key: %v", err)
	}
}

func TestAgentFlags(t *testing.T) {
	in := input("")
	in.Flags = NewFlags(Agents)
	set := flag.NewFlagSet("agent", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	in.Flags.AddTo(set)
	if err := set.Parse([]string{"--server", "srv:7701", "--tls-ca", "/ca.pem"}); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(in); err != nil || c.Agent.Server != "tls://srv:7701" || c.Agent.TLS.CA != "/ca.pem" {
		t.Errorf("%v %+v", err, c)
	}
	if err := set.Parse([]string{"--listen-http", "x"}); err == nil {
		t.Error("the agent took a flag of the server")
	}
}

// The messages themselves are the contract: where, key, value, what is wrong, what was meant, what is allowed.
func TestProblems(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		environ []string
		want    []string
	}{
		"typo in a section": {file: "listen:\n  htp: 1.2.3.4:5\n", want: []string{"w.yaml:2:3: listen.htp: no such key; did you mean listen.http?; allowed: in listen http, agents, unix, agents_tokens"}},
		"typo at the top":   {file: "lissten: {}\n", want: []string{"w.yaml:1:1: lissten: no such key; did you mean listen?; allowed: listen, tls, tokens_file, data_dir, rings, gpu, log, store, limits, metrics, agent"}},
		"wrong section":     {file: "store:\n  segment_bytes: 1MiB\n", want: []string{"w.yaml:2:3: store.segment_bytes: no such key; did you mean store.wal.segment_bytes?; allowed: in store seal_every, hot_period, hot_iterations, retention, wal"}},
		"dotted":            {file: "listen.http: :1\n", want: []string{"w.yaml:1:1: listen.http: no such key; nest it: a line listen:, below it indented http:"}},
		"several at once": {file: "listen:\n  http: 7700\nstore:\n  seal_every: 15\n  hot_period: 48h\nlog:\n  level: warning\n", environ: []string{"WHYLATE_LIMITS_CONNECTIONS=many"}, want: []string{
			`w.yaml:2:9: listen.http = "7700": is not host:port; allowed: host:port, such as 127.0.0.1:7700 or [::1]:7700; :7700 is every interface; off is none`,
			`w.yaml:4:15: store.seal_every = "15": has no unit; allowed: a number with its unit, such as 500ms, 90s, 15m, 24h or 7d (from 1s to 24h)`,
			`w.yaml:5:15: store.hot_period = "48h": is too large; allowed: a number with its unit, such as 500ms, 90s, 15m, 24h or 7d (from 1s to 24h)`,
			`w.yaml:7:10: log.level = "warning": is not one of its words, did you mean warn?; allowed: debug, info, warn, error`,
			`environment variable WHYLATE_LIMITS_CONNECTIONS: limits.connections = "many": is not a whole number; allowed: a whole number (from 1 to 1000000)`,
		}},
		"twice":              {file: "data_dir: /a\ndata_dir: /b\n", want: []string{"w.yaml:2:1: data_dir: stands twice, first on line 1; remove one"}},
		"no value":           {file: "data_dir:\n", want: []string{`w.yaml:1:10: data_dir: has no value; allowed: the path of a file or directory; remove the line to have the default, or write "" for none`}},
		"a list":             {file: "data_dir: [a]\n", want: []string{"w.yaml:1:11: data_dir: holds a list or keys; allowed: the path of a file or directory"}},
		"value as section":   {file: "listen: here\n", want: []string{"w.yaml:1:9: listen: listen holds keys, not a single value or a list; allowed: http, agents, unix, agents_tokens"}},
		"a list as file":     {file: "- a\n", want: []string{"w.yaml:1:1: the file holds keys, not a single value or a list; allowed: listen, tls, tokens_file, data_dir, rings, gpu, log, store, limits, metrics, agent"}},
		"alias":              {file: "data_dir: &d /a\nlisten: *d\n", want: []string{"w.yaml:1:11: data_dir: is an anchor or an alias; write the value out", "w.yaml:2:9: listen: is an anchor or an alias; write the value out"}},
		"tag":                {file: "data_dir: !!binary aGk=\n", want: []string{"w.yaml:1:11: data_dir: has a YAML tag; allowed: the path of a file or directory; remove the tag !!binary"}},
		"merge":              {file: "<<: {data_dir: /a}\n", want: []string{"w.yaml:1:1: has a key that is not a plain word; allowed: listen, tls, tokens_file, data_dir, rings, gpu, log, store, limits, metrics, agent"}},
		"second document":    {file: "log: {}\n---\nlog: {}\n", want: []string{"w.yaml:2:1: is a second document; remove the line ---, and what follows it"}},
		"not YAML":           {file: "log:\n\tlevel: warn\n", want: []string{"w.yaml:2:1: is not YAML: found character that cannot start any token; look for a tab, a missing space after a colon, or a missing quote on this line or the one before"}},
		"bool":               {file: "rings: {follow: yes}\n", want: []string{`w.yaml:1:17: rings.follow = "yes": is neither true nor false; allowed: true or false`}},
		"control character":  {file: "data_dir: \"a\\u0007\"\n", want: []string{`w.yaml:1:11: data_dir = "a\a": has a control character or is not UTF-8; allowed: the path of a file or directory`}},
		"secret in the file": {file: "tokens_file: hunter2-abcdef\n", want: []string{"w.yaml:1:14: tokens_file: does not look like a path; the secret itself must not stand here; allowed: the path of a file, beginning with /, ./, ../ or ~/"}},
		"key without cert":   {file: "tls: {key: /k}\n", want: []string{`w.yaml:1:12: tls.key = "/k": needs tls.cert beside it`}},
		"one port for two":   {file: "listen:\n  http: :7701\n", want: []string{`default: listen.agents = "127.0.0.1:7701": is the address of listen.http; each needs its own port`}},
		"too short kept":     {file: "store: {retention: {requests: 10m}, seal_every: 15m}\n", want: []string{`w.yaml:1:31: store.retention.requests = "10m": is shorter than store.seal_every, so a sealed period would be dropped as it is written`}},
		"TLS switched off":   {file: "agent: {server: 'tcp://s:1', tls: {ca: /a, name: b}}\n", want: []string{`w.yaml:1:40: agent.tls.ca = "/a": has no effect: agent.server is tcp://s:1, without TLS`, `w.yaml:1:50: agent.tls.name = "b": has no effect: agent.server is tcp://s:1, without TLS`}},
	} {
		t.Run(name, func(t *testing.T) {
			in := input(c.file, c.environ...)
			in.File = "w.yaml"
			got, err := Load(in)
			if err == nil {
				t.Fatalf("taken: %+v", got)
			}
			if want := strings.Join(c.want, "\n"); err.Error() != want {
				t.Errorf("got\n%s\nwant\n%s", err, want)
			}
			var p Problem
			if !errors.As(err, &p) {
				t.Error("the error holds no Problem")
			}
		})
	}
}

// Nothing that may be a secret comes out again, wherever it was put.
func TestSecretsAreNotPrinted(t *testing.T) {
	const secret = "s3cr3t-0123456789abcdef"
	for i := range keys {
		k := &keys[i]
		if !k.Secret() {
			continue
		}
		in := input("", k.Env()+"="+secret)
		if _, err := Load(in); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", k.Env(), err)
		}
	}
	for _, file := range []string{"token: " + secret, "agent:\n  token: " + secret, "agent:\n  server: op:" + secret + "@srv:1", "tokens_file: [" + secret + "]", "tokens_file: !!str " + secret} {
		if _, err := Load(input(file)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, p := range strangers([]string{"WHYLATE_TOKEN=" + secret}) {
		if strings.Contains(p.Error(), secret) {
			t.Error(p)
		}
	}
}

func TestMissingFile(t *testing.T) {
	in := Input{File: "/no/such", ReadFile: func(n string) ([]byte, error) { return nil, &fs.PathError{Op: "open", Path: n, Err: fs.ErrNotExist} }}
	if _, err := Load(in); err == nil || err.Error() != "/no/such: cannot be read: file does not exist; name the file with --config or $WHYLATE_CONFIG" {
		t.Errorf("%v", err)
	}
	in.File, in.Environ = "", []string{FileVariable + "=/other"}
	if _, err := Load(in); err == nil || !strings.HasPrefix(err.Error(), "/other: cannot be read") {
		t.Errorf("%v", err)
	}
	in.Flags = NewFlags(Server)
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	in.Flags.AddTo(set)
	if err := set.Parse([]string{"--config", "/flagged"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(in); err == nil || !strings.HasPrefix(err.Error(), "/flagged: cannot be read") {
		t.Errorf("%v", err)
	}
	in.Flags, in.Environ = nil, nil
	if _, err := Load(in); err != nil {
		t.Errorf("without any file: %v", err)
	}
	in.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrPermission }
	if _, err := Load(in); err == nil {
		t.Error("a default file that may not be read was passed over in silence")
	}
}

func TestLargeFile(t *testing.T) {
	if _, err := Load(input(strings.Repeat("# x\n", maxFile))); err == nil || !strings.Contains(err.Error(), "is larger than 1MiB") {
		t.Errorf("%v", err)
	}
}

func TestWriteYAML(t *testing.T) {
	in := input("listen: {http: '[::1]:7700', agents: off}\nstore: {retention: {requests: forever}, wal: {segment_bytes: 1.5MiB}}\nagent: {server: 'unix:///run/w#.sock', key_file: ~/a b}\n", "WHYLATE_LOG_FORMAT=json")
	c, err := Load(in)
	if err != nil {
		t.Fatal(err)
	}
	var first bytes.Buffer
	if err := c.WriteYAML(&first); err != nil {
		t.Fatal(err)
	}
	again, err := Load(input(first.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, &first)
	}
	if err := equal(c, again); err != nil {
		t.Errorf("%v\n%s", err, &first)
	}
	if !strings.Contains(first.String(), "  format: json # environment variable WHYLATE_LOG_FORMAT\n") || again.Agent.KeyFile != "/home/op/a b" {
		t.Errorf("%s", &first)
	}
}

func TestGetenv(t *testing.T) {
	c, err := Load(input("agent: {server: 'srv:1', spool_bytes: 2GB}\n", "WHYLATE_AGENT_TOKEN_FILE=/t"))
	if err != nil {
		t.Fatal(err)
	}
	get := c.Getenv(func(name string) string { return "next " + name })
	for name, want := range map[string]string{"WHYLATE_AGENT_SERVER": "tls://srv:1", "WHYLATE_AGENT_SPOOL_BYTES": "2000000000", "WHYLATE_AGENT_TOKEN_FILE": "/t", "WHYLATE_RING_DIR": "/dev/shm/whylate", "WHYLATE_AGENT_TLS_CA": "", "HOME": "next HOME"} {
		if got := get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// equal compares values, not where they came from.
func equal(a, b *Config) error {
	for i := range keys {
		if x, y := get(keys[i].field(a)), get(keys[i].field(b)); !reflect.DeepEqual(x, y) {
			return fmt.Errorf("%s: %v is not %v", keys[i].Name, x, y)
		}
	}
	return nil
}

func TestSyntaxErrorHasNoPanic(t *testing.T) {
	for _, s := range []string{"\x00", "{", "? a", "a: |\n", "%YAML 9.9\n---\n", "\xff\xfe", "!!", "&a [*a]", "? {a: b}\n: c\n"} {
		_, _ = Load(input(s))
	}
}

func FuzzLoad(f *testing.F) {
	var example bytes.Buffer
	if err := WriteExample(&example); err != nil {
		f.Fatal(err)
	}
	f.Add(example.String(), "")
	f.Add(strings.ReplaceAll(example.String(), "# ", ""), "15m")
	f.Add("listen: {http: ':0'}\ntokens_file: ./x\nstore: {seal_every: 1d}\n", "WHYLATE")
	f.Add("a: &a [*a]\n", "~/x")
	f.Add("<<: *a\n? - x\n: y\n", "1.5GiB")
	f.Fuzz(func(t *testing.T, file, value string) {
		c, err := Load(input(file))
		if err == nil {
			var out bytes.Buffer
			if err := c.WriteYAML(&out); err != nil {
				t.Fatal(err)
			}
			again, err := Load(input(out.String()))
			if err != nil {
				t.Fatalf("what was written is not read: %v\n%s", err, &out)
			}
			if err := equal(c, again); err != nil {
				t.Fatalf("%v\n%s", err, &out)
			}
		} else {
			var ps Problems
			if !errors.As(err, &ps) || len(ps) == 0 {
				t.Fatalf("an error without problems: %v", err)
			}
			for _, p := range ps {
				if strings.ContainsAny(p.Error(), "\n\x00\x1b") || p.Text == "" || p.Source.Origin == FromFile && p.Source.Name == "" {
					t.Fatalf("%q", p.Error())
				}
			}
		}
		for i := range keys {
			k := &keys[i]
			if strings.ContainsRune(value, 0) || value == "" {
				continue
			}
			if c, err := Load(input("", k.Env()+"="+value)); err == nil {
				if e, _ := c.Explain(k.Name); e.Source.Origin != FromEnvironment {
					t.Fatalf("%s: %v", k.Name, e)
				}
			}
		}
	})
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"http", "htp", 1}, {"htpt", "http", 1}, {"", "abc", 3}, {"level", "label", 2}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
