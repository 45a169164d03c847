package otlp

import (
	"math"
	"strconv"
	"strings"

	"github.com/whylate/whylate/adapter/genai"
)

// keeper copies the allow list out of a decoded request. Everything else is dropped here and goes nowhere.
type keeper struct {
	d        *Decoder
	out      *Counts
	limits   Limits
	resource *genai.Resource
	scope    *genai.Scope
	spare    []genai.Attr // room for attributes of many spans: one allocation for all of them
	last     string       // the last span's name: mostly the next one's too
}

// block begins the spans of one resource and scope.
func (k *keeper) block(resource []pair, scope, version []byte) {
	k.resource = k.resourceOf(resource)
	k.scope = &genai.Scope{Name: genai.Label(string(scope)), Version: genai.Label(string(version))}
}

func (k *keeper) resourceOf(attributes []pair) *genai.Resource {
	out := &genai.Resource{}
	for _, p := range attributes {
		text := ""
		switch p.value.kind {
		case textual:
			text = genai.Label(string(p.value.text))
		case integer:
			text = strconv.FormatInt(p.value.number, 10)
		}
		switch key := string(p.key); key {
		case "service.name":
			out.Service = text
		case "service.instance.id":
			out.Instance = text
		case "host.name", "k8s.node.name":
			if out.Host == "" || key == "host.name" {
				out.Host = text
			}
		case "host.id":
			if out.Host == "" {
				out.Host = text
			}
		case "k8s.pod.name", "k8s.pod.uid":
			if out.Pod == "" || key == "k8s.pod.name" {
				out.Pod = text
			}
		case "k8s.namespace.name":
			out.Namespace = text
		case "process.pid", "vllm.process_id":
			out.Process = text
		case "vllm.instrumenting_module_name":
			out.Module = text
		}
	}
	return out
}

func (k *keeper) span(out *genai.Span, s *span) {
	copy(out.Trace[:], s.trace)
	copy(out.ID[:], s.id)
	copy(out.Parent[:], s.parent)
	out.Name = k.name(s.name)
	out.Kind = genai.Kind(min(s.kind, uint64(genai.Consumer)))
	if s.code != 0 {
		out.Status = genai.StatusOf(int32(min(s.code, math.MaxInt32)), string(s.message[:min(len(s.message), 1024)]))
	}
	out.Start, out.End = at(s.start), at(s.end)
	out.Dropped = uint32(min(s.dropped, math.MaxUint32))
	if len(s.state) > 0 && len(s.state) <= 4096 {
		out.Threshold = genai.ThresholdOf(string(s.state))
	}
	k.out.Surplus += s.surplus
	out.Attrs = k.room(len(s.attributes))
	for i := range s.attributes {
		k.attribute(out, s.attributes[i].key, &s.attributes[i].value)
	}
	if n := len(out.Attrs); n > 0 {
		out.Attrs = out.Attrs[:n:n]
	} else {
		out.Attrs = nil
	}
	k.events(out, s.events)
}

func (k *keeper) name(b []byte) string {
	if string(b) != k.last {
		k.last = genai.Label(string(b))
	}
	return k.last
}

// room is space for n attributes.
func (k *keeper) room(n int) []genai.Attr {
	if n > cap(k.spare)-len(k.spare) {
		k.spare = make([]genai.Attr, 0, max(n, 1024))
	}
	from := len(k.spare)
	k.spare = k.spare[:from+n]
	return k.spare[from : from : from+n]
}

// at is a time in Unix ns, 0 where it does not fit.
func at(t uint64) int64 {
	if t > math.MaxInt64 {
		return 0
	}
	return int64(t)
}

func (k *keeper) attribute(out *genai.Span, key []byte, v *value) {
	if name := genai.Named(key); name != nil {
		if keep(out, name, v) {
			k.out.Kept++
		} else {
			k.out.Unusable++
		}
		return
	}
	class := k.class(key)
	k.out.Dropped[class]++
	if class == genai.ContentKey {
		k.content(out, key, v)
	} else if v.kind == textual && len(v.text) > k.limits.Value {
		k.out.Oversize++
	}
}

func keep(out *genai.Span, name *genai.Name, v *value) bool {
	var err error
	switch v.kind {
	case integer:
		err = out.SetInt(name, v.number)
	case double:
		err = out.SetFloat(name, v.double)
	case boolean:
		err = out.SetBool(name, v.number != 0)
	case textual:
		if len(v.text) > genai.MaxText {
			return false
		}
		err = out.SetText(name, string(v.text))
	case listed:
		return len(v.list) > 0 && v.list[0].kind != listed && keep(out, name, &v.list[0])
	default:
		return false
	}
	return err == nil
}

// class remembers the classes of keys that come again and again.
func (k *keeper) class(key []byte) genai.Class {
	if c, ok := k.d.classes[string(key)]; ok {
		return c
	}
	c := genai.ClassOf(string(key))
	if len(key) <= 128 && len(k.d.classes) < 4096 {
		if k.d.classes == nil {
			k.d.classes = map[string]genai.Class{}
		}
		k.d.classes[string(key)] = c
	}
	return c
}

func (k *keeper) content(out *genai.Span, key []byte, v *value) {
	if out.Content == nil {
		out.Content = &genai.Content{}
	}
	c := out.Content
	if v.kind == textual {
		before := c.Oversized
		c.Measure(key, v.text, k.limits.Value)
		k.out.Oversize += c.Oversized - before
		return
	}
	c.Attributes++
	c.Bytes += weigh(v, c, 0)
}

// weigh is the size in bytes of the texts of a structured value; roles of messages on the way are counted.
func weigh(v *value, c *genai.Content, depth int) (n int64) {
	switch v.kind {
	case textual, binaryBytes:
		return int64(len(v.text))
	case listed:
		for i := range v.list {
			n += weigh(&v.list[i], c, depth+1)
		}
	case paired:
		for i := range v.pairs {
			p := &v.pairs[i]
			if string(p.key) == "role" && depth <= 1 && p.value.kind == textual && len(p.value.text) <= 24 {
				c.Role(string(p.value.text))
			}
			n += int64(len(p.key)) + weigh(&p.value, c, depth+1)
		}
	case none:
	default:
		return 8
	}
	return n
}

// events keeps the few that an account needs. Events of the old conventions are messages: they are measured like attributes.
func (k *keeper) events(out *genai.Span, events []event) {
	for i := range events {
		e := &events[i]
		kept := genai.Event{At: at(e.at)}
		switch name := string(e.name[:min(len(e.name), 64)]); {
		case name == "schedule":
			kept.Name = name
			for j := range e.attributes {
				v := &e.attributes[j].value
				switch string(e.attributes[j].key) {
				case "bid":
					kept.BID = short(v)
				case "forward_mode":
					kept.Mode = short(v)
				case "batch_size":
					kept.Size = number(v)
				}
			}
		case name == "retract":
			kept.Name = name
		case name == "exception":
			kept.Name = name
			for j := range e.attributes {
				if p := &e.attributes[j]; string(p.key) == "exception.type" && !out.Has(genai.ErrorType) {
					k.attribute(out, p.key, &p.value)
				}
			}
		case strings.HasSuffix(name, ".message") || name == "gen_ai.choice" || strings.HasPrefix(name, "gen_ai.content."):
			k.message(out, name, e.attributes)
			continue
		default:
			continue
		}
		out.Events = append(out.Events, kept)
	}
}

// message measures an event that is a message: gen_ai.user.message and its kin.
func (k *keeper) message(out *genai.Span, name string, attributes []pair) {
	if out.Content == nil {
		out.Content = &genai.Content{}
	}
	out.Content.Attributes++
	if role, ok := strings.CutPrefix(strings.TrimSuffix(name, ".message"), "gen_ai."); ok && strings.HasSuffix(name, ".message") {
		out.Content.Role(role)
	} else if name == "gen_ai.choice" {
		out.Content.Role("assistant")
	}
	for i := range attributes {
		out.Content.Bytes += weigh(&attributes[i].value, out.Content, 2)
	}
}

func short(v *value) string {
	text := ""
	switch v.kind {
	case textual:
		text = string(v.text[:min(len(v.text), genai.MaxText+1)])
	case integer:
		text = strconv.FormatInt(v.number, 10)
	}
	if !genai.Identifier(text) {
		return ""
	}
	return text
}

func number(v *value) int64 {
	switch v.kind {
	case integer:
		return max(v.number, 0)
	case double:
		if v.double >= 0 && v.double < 1<<53 {
			return int64(v.double)
		}
	case textual:
		if len(v.text) < 20 {
			n, _ := strconv.ParseInt(string(v.text), 10, 64)
			return max(n, 0)
		}
	}
	return 0
}
