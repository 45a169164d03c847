package config

import (
	"flag"
	"strings"
)

// Flags are the command-line flags of one process. They only keep what was written: Load reads it, with file and environment,
// so that all that is wrong is said at once.
type Flags struct {
	role   Role
	file   string
	values map[string]string // by key
	order  []string
}

// NewFlags makes the flags of a process.
func NewFlags(role Role) *Flags { return &Flags{role: role, values: map[string]string{}} }

// AddTo declares the flags, --config among them. A cobra command takes them with AddGoFlagSet.
func (f *Flags) AddTo(set *flag.FlagSet) {
	set.StringVar(&f.file, "config", f.file, "the configuration `file` ($"+FileVariable+", default "+DefaultFile+" if it is there)")
	for i := range keys {
		k := &keys[i]
		if k.For&f.role == 0 {
			continue
		}
		set.Var(&flagValue{f, k}, k.Flag(f.role), k.help())
	}
}

// help is one line: the first sentence, the type, the variable and the default.
func (k *Key) help() string {
	doc, _, _ := strings.Cut(k.Doc, ". ")
	doc = strings.ReplaceAll(strings.TrimSuffix(doc, "."), "`", "'")
	if doc[1] >= 'a' { // not an acronym
		doc = strings.ToLower(doc[:1]) + doc[1:]
	}
	kind := k.kind.name
	if k.kind.secret {
		kind = path.name
	}
	if len(k.OneOf) > 0 {
		kind = strings.Join(k.OneOf, "|")
	}
	if kind == boolean.name {
		kind = "bool"
	}
	s := doc + " (`" + strings.ReplaceAll(kind, " ", "-") + "`, $" + k.Env()
	if k.Default != "" {
		s += ", default " + k.Default
	}
	return s + ")"
}

// given are the values in the order of the command line.
func (f *Flags) given() []given {
	if f == nil {
		return nil
	}
	var values []given
	for _, name := range f.order {
		k := find(name)
		values = append(values, given{k, f.values[name], Source{Origin: FromFlag, Name: "--" + k.Flag(f.role)}})
	}
	return values
}

type flagValue struct {
	flags *Flags
	key   *Key
}

// Set keeps the text; given twice, the last one counts.
func (v *flagValue) Set(text string) error {
	if _, ok := v.flags.values[v.key.Name]; !ok {
		v.flags.order = append(v.flags.order, v.key.Name)
	}
	v.flags.values[v.key.Name] = text
	return nil
}

// String is what was given. It is empty before, so that help does not print the default twice.
func (v *flagValue) String() string {
	if v == nil || v.flags == nil {
		return ""
	}
	return v.flags.values[v.key.Name]
}

// IsBoolFlag lets a switch stand without a value.
func (v *flagValue) IsBoolFlag() bool {
	return v.key != nil && v.key.kind.name == boolean.name
}
