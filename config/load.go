package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultFile is read where no other is named, if it is there.
const DefaultFile = "/etc/whylate/whylate.yaml"

// FileVariable names the file where --config does not.
const FileVariable = "WHYLATE_CONFIG"

// Input is what settings are made from. The zero Input is the defaults, seen from this process's home and directory.
type Input struct {
	File     string   // the file to read, which must be there; "" reads the one of --config, else $WHYLATE_CONFIG, else DefaultFile if it is there
	Environ  []string // os.Environ(); nil is an empty environment
	Flags    *Flags   // nil is none
	ReadFile func(name string) ([]byte, error)
	Dir      string // the directory that relative paths of variables and flags are below; "" is the current one
}

// layer is a value of one source, as text that its kind reads back.
type layer struct {
	source Source
	text   string // as written
	value  string // as understood
}

// Load reads file, environment and flags. The error is [Problems], all that there are, in the order of the places they stand in.
func Load(in Input) (*Config, error) {
	c, problems := load(in)
	if errs := problems.errorsOnly(); len(errs) > 0 {
		return nil, errs
	}
	return c, nil
}

// load also returns warnings, and the configuration as far as it could be made.
func load(in Input) (*Config, Problems) {
	env := lookupIn(in.Environ)
	home, _ := env("HOME")
	dir := in.Dir
	if dir == "" {
		dir, _ = os.Getwd()
	}
	here := place{dir: dir, home: home}

	c := &Config{layers: map[string][]layer{}}
	var problems Problems
	problems = append(problems, c.defaults(env, here)...)

	name, data, missing := in.read(env)
	if missing != nil {
		problems = append(problems, *missing)
	}
	values, ps := parseFile(name, data)
	problems = append(problems, ps...)
	beside := here
	if beside.dir = filepath.Dir(name); !filepath.IsAbs(name) {
		beside.dir = filepath.Join(dir, beside.dir)
	}
	problems = append(problems, c.apply(values, beside)...)
	problems = append(problems, c.apply(fromEnvironment(env), here)...)
	problems = append(problems, c.apply(in.Flags.given(), here)...)
	c.derive()
	if len(problems.errorsOnly()) == 0 {
		problems = append(problems, c.rules()...)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Source.Origin, b.Source.Origin), cmp.Compare(a.Source.Line, b.Source.Line), cmp.Compare(a.Source.Column, b.Source.Column))
	})
	return c, problems
}

// read finds the file and reads it.
func (in *Input) read(env lookup) (name string, data []byte, problem *Problem) {
	readFile := in.ReadFile
	if readFile == nil {
		readFile = readSome
	}
	name, optional := in.File, false
	if name == "" && in.Flags != nil {
		name = in.Flags.file
	}
	if name == "" {
		name, _ = env(FileVariable)
	}
	if name == "" {
		name, optional = DefaultFile, true
	}
	data, err := readFile(name)
	switch {
	case err == nil:
		return name, data, nil
	case optional && errors.Is(err, fs.ErrNotExist):
		return "", nil, nil
	}
	return name, nil, &Problem{Source: Source{Origin: FromFile, Name: name}, Text: "cannot be read: " + reason(err), Remedy: "name the file with --config or $" + FileVariable}
}

// readSome reads a file as far as is needed to know that it is too large.
func readSome(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// reason is an error of the file system without the path, which stands elsewhere.
func reason(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func (c *Config) defaults(env lookup, here place) Problems {
	var problems Problems
	for i := range keys {
		k := &keys[i]
		text := k.Default
		if k.fallback != nil {
			text = cmp.Or(k.fallback(env), text)
		}
		if strings.HasPrefix(text, "~/") && here.home == "" {
			text = "/var/lib/whylate" // a service without a home
			if k.For == Agents {
				text = "/var/lib/whylate-agent"
			}
		}
		problems = append(problems, c.set(given{k, text, Source{}}, here)...)
	}
	return problems
}

// derive fills in what depends on another key.
func (c *Config) derive() {
	if c.Agent.KeyFile == "" {
		c.Agent.KeyFile = filepath.Join(c.Agent.SpoolDir, "key")
		layers := c.layers["agent.key_file"]
		layers[len(layers)-1].value = c.Agent.KeyFile
	}
}

func (c *Config) apply(values []given, in place) Problems {
	var problems Problems
	for _, g := range values {
		problems = append(problems, c.set(g, in)...)
	}
	return problems
}

// set puts one value into its field, or says what is wrong with it.
func (c *Config) set(g given, in place) Problems {
	k := g.key
	wrong := func(err error) Problems {
		return Problems{{Source: g.source, Key: k.Name, Value: k.show(g.text), Text: err.Error(), Allowed: k.allowed()}}
	}
	if err := printable(g.text); err != nil && !k.kind.list {
		return wrong(err)
	}
	v, err := k.kind.parse(g.text, in)
	if err != nil {
		return wrong(err)
	}
	if err := k.within(v); err != nil {
		return wrong(err)
	}
	put(k.field(c), v)
	c.layers[k.Name] = append(c.layers[k.Name], layer{g.source, g.text, k.kind.format(v)})
	return nil
}

// show is the value for an error: withheld where it may be a secret instead of the path of one.
func (k *Key) show(text string) string {
	if strings.Contains(text, "@") || k.kind.list {
		return ""
	}
	if k.kind.secret {
		if _, err := parseSecretPath(text, place{dir: "/", home: "/"}); err != nil {
			return ""
		}
	}
	return text
}

// allowed says what may be written.
func (k *Key) allowed() string {
	if len(k.OneOf) > 0 {
		return strings.Join(k.OneOf, ", ")
	}
	s := k.kind.allowed
	switch {
	case k.Least != "" && k.Most != "":
		s += fmt.Sprintf(" (from %s to %s)", k.Least, k.Most)
	case k.Least != "":
		s += fmt.Sprintf(" (at least %s)", k.Least)
	}
	return s
}

// within checks the key's bounds and words.
func (k *Key) within(v any) error {
	if len(k.OneOf) > 0 && !slices.Contains(k.OneOf, v.(string)) {
		if n := Nearest(strings.ToLower(v.(string)), k.OneOf); n != "" && v != "" {
			return fmt.Errorf("is not one of its words, did you mean %s?", n)
		}
		return errors.New("is not one of its words")
	}
	if k.Least != "" && number(v) < number(k.bound(k.Least)) {
		return errors.New("is too small")
	}
	if k.Most != "" && number(v) > number(k.bound(k.Most)) {
		return errors.New("is too large")
	}
	return nil
}

func (k *Key) bound(text string) any {
	v, err := k.kind.parse(text, place{})
	if err != nil {
		panic(fmt.Sprintf("bound %q of %s: %v", text, k.Name, err)) // a test tries them all
	}
	return v
}

func lookupIn(environ []string) lookup {
	return func(name string) (string, bool) {
		for _, e := range environ {
			if n, v, ok := strings.Cut(e, "="); ok && n == name {
				return v, true
			}
		}
		return "", false
	}
}

// fromEnvironment are the values that variables give. An empty variable is one that is not set: nothing else can be said of
// it in a unit file or a manifest.
func fromEnvironment(env lookup) []given {
	var values []given
	for i := range keys {
		k := &keys[i]
		if v, ok := env(k.Env()); ok && v != "" {
			values = append(values, given{k, v, Source{Origin: FromEnvironment, Name: k.Env()}})
		}
	}
	return values
}
