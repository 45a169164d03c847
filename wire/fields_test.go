package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// The vectors say what is in a message as JSON, under the names of docs/formats/stream.md. This file goes between such
// objects and the structs. testdata/README.md explains the form to whoever implements it in another language.

// renamed lists the struct fields whose name in stream.md is not just their own in snake case; an empty name marks what is
// in the frame's header and not in its body.
var renamed = map[string]string{
	"Scheduled.Full":        "",
	"Scheduled.SkipsListed": "",
	"Delivered.Same":        "",
	"Delivered.Handles":     "handle",
	"Queued.Repeat":         "",
	"Queued.Update":         "",
	"Hashes.Hashes":         "hash",
	"Cache.Kind":            "",
	"Cache.Blocks":          "n",
	"Cache.Hashes":          "hash",
	"Client.Gaps":           "gap",
}

var wordBreak = regexp.MustCompile("([a-z0-9])([A-Z])")

// wireName is the name of field f of struct type t in stream.md, or "" for what is in the frame's header.
func wireName(t reflect.Type, f reflect.StructField) string {
	if f.Name == "Time" {
		return ""
	}
	if name, ok := renamed[t.Name()+"."+f.Name]; ok {
		return name
	}
	return strings.ToLower(wordBreak.ReplaceAllString(f.Name, "${1}_${2}"))
}

// exact is the largest integer up to which every JSON reader is exact; larger ones are written as strings.
const exact = 1 << 53

// appendFields appends v (a message, a list or a plain value) as JSON, fields in the order of the wire.
func appendFields(dst []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		dst = append(dst, '{')
		for _, f := range reflect.VisibleFields(v.Type()) {
			owner := v.Type()
			if len(f.Index) > 1 {
				owner = v.Type().Field(f.Index[0]).Type
			}
			if name := wireName(owner, f); name != "" && !f.Anonymous {
				if dst[len(dst)-1] != '{' {
					dst = append(dst, ',')
				}
				dst = append(strconv.AppendQuote(dst, name), ':')
				dst = appendFields(dst, v.FieldByIndex(f.Index))
			}
		}
		return append(dst, '}')
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendFields(dst, v.Index(i))
		}
		return append(dst, ']')
	case reflect.Int16, reflect.Int32, reflect.Int64:
		return appendInteger(dst, strconv.FormatInt(v.Int(), 10), math.Abs(float64(v.Int())))
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return appendInteger(dst, strconv.FormatUint(v.Uint(), 10), float64(v.Uint()))
	}
	b, err := json.Marshal(v.Interface())
	if err != nil {
		panic(err)
	}
	return append(dst, b...)
}

func appendInteger(dst []byte, digits string, size float64) []byte {
	if size > exact {
		return strconv.AppendQuote(dst, digits)
	}
	return append(dst, digits...)
}

// fieldsOf is the JSON object of what is in m's body.
func fieldsOf(m Message) (json.RawMessage, error) {
	if hello, ok := m.(*Hello); ok {
		return json.Marshal(hello)
	}
	return appendFields(nil, reflect.ValueOf(m).Elem()), nil
}

// messageOf is the inverse of fieldsOf, with the time and flags of the header. Every field must be there, and no other.
func messageOf(t Type, time int64, flags uint8, fields json.RawMessage) (Message, error) {
	m := NewMessage(t)
	if hello, ok := m.(*Hello); ok {
		h, err := ParseHello(fields)
		*hello = h
		hello.Time = time
		return hello, err
	}
	m.layout(cursor{time: time, flags: flags}) // reads the header; the body it misses comes from the fields
	decoder := json.NewDecoder(bytes.NewReader(fields))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return nil, err
	}
	return m, setFields(reflect.ValueOf(m).Elem(), object)
}

func setFields(v reflect.Value, from any) error {
	switch v.Kind() {
	case reflect.Struct:
		object, ok := from.(map[string]any)
		if !ok {
			return fmt.Errorf("%v where an object belongs", from)
		}
		used := 0
		for _, f := range reflect.VisibleFields(v.Type()) {
			owner := v.Type()
			if len(f.Index) > 1 {
				owner = v.Type().Field(f.Index[0]).Type
			}
			name := wireName(owner, f)
			if name == "" || f.Anonymous {
				continue
			}
			value, ok := object[name]
			if !ok {
				return fmt.Errorf("field %s is missing", name)
			}
			if err := setFields(v.FieldByIndex(f.Index), value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			used++
		}
		if used != len(object) {
			return fmt.Errorf("%d fields known, %d given", used, len(object))
		}
		return nil
	case reflect.Slice:
		list, ok := from.([]any)
		if !ok {
			return fmt.Errorf("%v where a list belongs", from)
		}
		v.Set(reflect.MakeSlice(v.Type(), len(list), len(list)))
		for i := range list {
			if err := setFields(v.Index(i), list[i]); err != nil {
				return fmt.Errorf("entry %d: %w", i, err)
			}
		}
		return nil
	case reflect.String:
		v.SetString(from.(string))
		return nil
	}
	digits := fmt.Sprint(from)
	switch {
	case v.CanInt():
		n, err := strconv.ParseInt(digits, 10, v.Type().Bits())
		v.SetInt(n)
		return err
	case v.CanUint():
		n, err := strconv.ParseUint(digits, 10, v.Type().Bits())
		v.SetUint(n)
		return err
	case v.CanFloat():
		x, err := strconv.ParseFloat(digits, v.Type().Bits())
		v.SetFloat(x)
		return err
	}
	return fmt.Errorf("no rule for %s", v.Type())
}
