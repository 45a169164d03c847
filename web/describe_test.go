package web_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// object is a piece of JSON; encoding/json sorts its keys.
type object = map[string]any

// describer writes JSON schemas of Go types. What the source says of a type and its fields becomes their description, so the
// document cannot say otherwise than the code.
type describer struct {
	t       *testing.T
	schemas object
	owner   map[string]reflect.Type
	docs    map[string]string   // "package.Type" or "package.Type.Field"
	values  map[string][]string // "package.Type": the values of its string constants
	counts  map[string]int      // "package.Type": how many numeric constants it has
}

const module = "github.com/whylate/whylate/"

func newDescriber(t *testing.T, packages ...string) *describer {
	d := &describer{t: t, schemas: object{}, owner: map[string]reflect.Type{}, docs: map[string]string{}, values: map[string][]string{}, counts: map[string]int{}}
	for _, p := range packages {
		files, err := filepath.Glob("../" + p + "/*.go")
		if err != nil || len(files) == 0 {
			t.Fatal(p, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			d.read(p, f)
		}
	}
	return d
}

// read collects the comments of types and fields, and the constants of named types.
func (d *describer) read(pkg string, f *ast.File) {
	for _, decl := range f.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range g.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				name := pkg + "." + s.Name.Name
				d.docs[name] = sentence(g.Doc)
				if st, ok := s.Type.(*ast.StructType); ok {
					for _, field := range st.Fields.List {
						for _, n := range field.Names {
							text := sentence(field.Doc)
							if text == "" {
								text = sentence(field.Comment)
							}
							d.docs[name+"."+n.Name] = text
						}
					}
				}
			case *ast.ValueSpec:
				typ, ok := s.Type.(*ast.Ident)
				if !ok || g.Tok != token.CONST {
					continue
				}
				for _, v := range s.Values {
					if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
						d.values[pkg+"."+typ.Name] = append(d.values[pkg+"."+typ.Name], strings.Trim(lit.Value, `"`))
					} else if ok {
						d.counts[pkg+"."+typ.Name]++
					}
				}
			}
		}
	}
}

var links = regexp.MustCompile(`\*?\[([A-Za-z.]+)\]`)

func sentence(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return strings.Join(strings.Fields(links.ReplaceAllString(c.Text(), "$1")), " ")
}

func key(t reflect.Type) string {
	return strings.TrimPrefix(t.PkgPath(), module) + "." + t.Name()
}

var textType = reflect.TypeFor[encoding.TextMarshaler]()

// of is the schema of a type; named types with fields or fixed values become components.
func (d *describer) of(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Pointer:
		return d.of(t.Elem())
	case t.Implements(textType) && t.Kind() == reflect.Uint8:
		return d.component(t, d.enumeration)
	case t.Implements(textType):
		return d.component(t, func(reflect.Type) object { return object{"type": "string"} })
	case t.Kind() == reflect.Struct:
		return d.component(t, d.structure)
	case t.Kind() == reflect.String && len(d.values[key(t)]) > 0:
		return d.component(t, func(t reflect.Type) object { return object{"type": "string", "enum": unique(d.values[key(t)])} })
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": d.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.of(t.Elem())}
	case reflect.Interface:
		return object{"type": []string{"object", "array", "string", "number", "boolean", "null"}}
	}
	d.t.Fatalf("no schema for %s", t)
	return nil
}

func (d *describer) component(t reflect.Type, make func(reflect.Type) object) object {
	name := t.Name()
	if other, ok := d.owner[name]; ok && other != t {
		name = strings.ToUpper(t.PkgPath()[len(module):][:1]) + t.PkgPath()[len(module)+1:] + t.Name()
		if other, ok := d.owner[name]; ok && other != t {
			d.t.Fatalf("%s and %s have one name", other, t)
		}
	}
	if _, ok := d.owner[name]; !ok {
		d.owner[name] = t
		s := make(t)
		if text := d.docs[key(t)]; text != "" {
			s["description"] = text
		}
		d.schemas[name] = s
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (d *describer) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if f.Anonymous && name == "" { // its fields stand beside ours
			s := d.structure(f.Type)
			for k, v := range s["properties"].(object) {
				properties[k] = v
			}
			required = append(required, s["required"].([]string)...)
			continue
		}
		if name == "" {
			d.t.Fatalf("%s.%s has no JSON name", t, f.Name)
		}
		s := d.of(f.Type)
		optional := strings.Contains(opts, "omitempty") || strings.Contains(opts, "omitzero")
		if k := f.Type.Kind(); !optional && (k == reflect.Slice || k == reflect.Map) {
			s["type"] = []string{s["type"].(string), "null"} // none may be written as null
		}
		if text := d.docs[key(t)+"."+f.Name]; text != "" {
			s["description"] = text
		}
		properties[name] = s
		if !optional {
			required = append(required, name)
		}
	}
	return object{"type": "object", "properties": properties, "required": required}
}

// enumeration is an enumeration that is written as its name: a name of the list, or a number that has none.
func (d *describer) enumeration(t reflect.Type) object {
	name := func(n uint64) string {
		v := reflect.New(t).Elem()
		v.SetUint(n)
		b, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			d.t.Fatal(err)
		}
		return string(b)
	}
	var names, quoted []string
	for n := uint64(0); n < 255 && !strings.HasSuffix(name(n), ")") && (n == 0 || name(n) != name(n-1)); n++ {
		if n > 0 && name(n) == names[0] {
			break
		}
		names = append(names, name(n))
		quoted = append(quoted, regexp.QuoteMeta(name(n)))
	}
	if last := name(255); strings.HasSuffix(last, "(255)") {
		return object{"type": "string", "pattern": "^(" + strings.Join(quoted, "|") + "|" + strings.TrimSuffix(last, "(255)") + `\([0-9]+\))$`, "examples": names}
	}
	return object{"type": "string", "enum": names}
}

func unique(in []string) []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range in {
		if !seen[s] {
			out = append(out, s)
		}
		seen[s] = true
	}
	return out
}

// shortened cuts the lists of an example to what shows their form.
func shortened(v any) any {
	switch v := v.(type) {
	case []any:
		if len(v) > 2 {
			v = v[:2]
		}
		for i := range v {
			v[i] = shortened(v[i])
		}
		return v
	case map[string]any:
		for k := range v {
			v[k] = shortened(v[k])
		}
	}
	return v
}

func exampleOf(t *testing.T, b []byte) any {
	t.Helper()
	var v any
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(fmt.Errorf("%s: %w", b, err))
	}
	return shortened(v)
}
