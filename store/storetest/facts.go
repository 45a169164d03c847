package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/internal/scenario"
	"github.com/whylate/whylate/ledger"
	"github.com/whylate/whylate/store"
	"github.com/whylate/whylate/wire"
)

// Facts adds to a book what the random scheduler and the steady engine do not tell: drafts and what became of them, the ranks'
// execution, evictions with their last users, labels.
func Facts(b *ledger.Book) *ledger.Book {
	for _, e := range b.Engines {
		for i := range e.Iterations {
			it := &e.Iterations[i]
			n := int64(it.Number)
			if n%7 != 0 {
				host := it.Duration() * (80 + n%13) / 100
				it.Execution = &ledger.Execution{Ranks: 2, Slowest: uint32(n % 2), Host: host, Device: host * (70 + n%11) / 100, Wait: host / (5 + n%5), Peak: 70 << 30,
					Padded: (it.Tokens + 7) &^ 7, Graph: ledger.GraphMode(1 + min(n%16, 2)), Eager: n%16 == 0}
			}
			if n%16 != 0 {
				continue
			}
			for k := range n % 5 { // the last users are gone long since, or not known
				v := ledger.Eviction{Iteration: it.Number, At: it.Decided, Blocks: uint32(1 + k)}
				if at := int(n/16*3+k) / 2; k > 0 && at < len(e.Sequences) && e.Sequences[at].Queued < it.Decided {
					v.Seq = e.Sequences[at]
				}
				e.Evictions = append(e.Evictions, v)
			}
		}
		for k, q := range e.Sequences {
			for i := range q.Stints {
				if s := &q.Stints[i]; k%8 == 0 && s.Phase == ledger.Decode && s.Last-s.First >= 3 && s.Last <= e.Last() {
					s.Tokens = slices.Repeat([]uint32{1}, int(s.Last-s.First+1))
					s.Tokens[0], s.Tokens[2] = 4, 3
					s.Drafts, s.Rejected = []uint16{3, 0, 2}, []uint16{1}
				}
			}
		}
	}
	for i, r := range b.Requests {
		if i%4 != 0 {
			r.Labels = ledger.Labels{Tenant: ledger.Label(uint64(1+i%3) * 0x9E3779B97F4A7C15), Class: ledger.Label(i % 2), Route: 1}
		}
	}
	return b
}

// Everything is a run in which every kind of record occurs.
const Everything = `
engine vllm max_num_seqs=8 num_gpu_blocks=8
0ms       http one trace=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
0ms       labels one tenant=5f0c1a2b3c4d5e6f class=a1b2c3d4e5f60718 route=18f6e5d4c3b2a190
1ms       submit one/0 prompt=64
1ms       submit one/1 prompt=64
2ms       arrive one/0
3ms       queue one/0 prompt=64 max=90 n=2 logprobs=2 prompt_logprobs=1 features=1
3ms       queue one/1 prompt=64 max=90 n=2
3ms       http two
3ms       submit two prompt=64
4ms       queue two prompt=64 max=300
4ms       abort one/1
5..30ms   iter one/0:32+32 two:64
6..29ms   step 1 rank=1 device=20ms wait=1ms padded=128 graph=full eager=1 peak=2100000000
31..40ms  iter one/0:4 two draft=one/0:3:1
41..50ms  iter two stop=preempt waiting=1 running=1 preempt=one/0 by=two free=1
50ms      http three
50ms      submit three prompt=32
50ms      queue three prompt=32 max=1
51..60ms  iter two stop=kv head=one/0 need=5 free=2 waiting=2 running=1 hold=two:6 evict=one/0:2,-:1
61..70ms  iter two stop=kv head=one/0 need=5 free=2 waiting=2 running=1
71..80ms  iter two end=two:length
81..90ms  iter one/0:66
91..98ms  step 8 rank=0 graph=none
91..99ms  iter one/0 three:32 end=one/0:stop,three:length
92ms      answer one/0 reason=stop
93ms      first one
94ms      last one end=disconnect wait_ms=2
94ms      first two
94ms      last two
94ms      first three
94ms      last three
0..95ms   client one first=93ms class=short output=3
`

const devices = "samples of GPUs are time series; the log has them until then (docs/gpu.md)"

// notSealed are the types and fields of the ledger that no period has, each with the reason.
var notSealed = map[string]string{
	"Book":                 "what one process has at hand, no fact of its own",
	"Source":               "about who sends at present; what was lost of it is a gap",
	"Beat":                 "about the present moment",
	"Device":               devices,
	"DeviceID":             devices,
	"DeviceSignal":         devices,
	"DeviceProcess":        devices,
	"DeviceHold":           devices,
	"DeviceError":          devices,
	"Engine.Base":          "a slice's sums begin at zero: only differences are asked for",
	"Engine.BaseEnd":       "of a slice it is where its first tile begins",
	"Engine.Firsts":        "comes beside the engine, of the whole incarnation: Slice.Firsts",
	"Engine.Began":         "comes beside the engine, of the whole incarnation: Slice.Began",
	"Sequence.BlockHashes": "read from a recording where somebody asks for them; raw hashes are not kept",
	"Engine.Host":          "joins engines that run with what is scraped of them",
	"Engine.PID":           "as Engine.Host",
}

// everyFact: whatever the ledger can say is sealed and comes back, or is listed in notSealed. A new field of the ledger fails here until it has
// a column or a reason.
func everyFact(t *testing.T, open Open) {
	run, err := scenario.Parse(Everything)
	if err != nil {
		t.Fatal(err)
	}
	a, err := run.Assemble(func(f wire.Frame) bool { // one completion is lost, and its time unknown
		var d wire.Done
		return f.Type == wire.TypeDone && wire.Decode(f, &d) == nil && d.Iteration == 5
	})
	if err != nil {
		t.Fatal(err)
	}
	b := a.Book()
	e, r := b.Engines[0], b.Requests[0]
	q := r.Sequences[0]
	e.Capabilities = map[string]bool{"drafts": true}
	e.Gaps = append(e.Gaps, ledger.Gap{Engine: e.ID.String(), At: e.Iterations[2].Start + 1})
	for _, one := range []any{&e.ID, &e.Clock, &e.Gaps[0], &e.Iterations[1], e.Iterations[0].Execution, e.Preemptions[0], &e.Evictions[0], q, &q.Skips[0],
		r, &r.Labels, &r.FrontClock, &r.Clients[0], &r.Clients[0].Clock} {
		fill(reflect.ValueOf(one).Elem())
	}
	r.Clients[0].Gaps = []uint32{5, 6}
	slices.SortFunc(e.Gaps, func(x, y ledger.Gap) int { return cmp.Compare(x.At, y.At) })
	for i := range e.Gaps {
		e.Gaps[i].Engine = e.ID.String()
	}

	s := must(t, open, filepath.Join(t.TempDir(), "data"))
	if _, err := s.Seal(ctx, store.Cut(e, b.Requests, nil, 0, e.Completed(), Over(e.Completed()))); err != nil {
		t.Fatal(err)
	}
	got, err := s.Slice(ctx, e.ID, e.First, e.Last())
	if err != nil {
		t.Fatal(err)
	}
	c := comparison{set: map[string]bool{}, differs: map[string]string{}, seen: map[uintptr]bool{}}
	c.value("Engine", reflect.ValueOf(e), reflect.ValueOf(got.Engine))
	fields := map[string]bool{}
	fieldsOf(reflect.TypeFor[ledger.Book](), fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		kind, _, _ := strings.Cut(name, ".")
		why, listed := notSealed[name]
		switch {
		case notSealed[kind] != "":
		case !c.set[name]:
			if !listed {
				t.Errorf("ledger.%s is nowhere set in this test, so nobody knows whether it is sealed: set it", name)
			}
		case c.differs[name] != "" && !listed:
			t.Errorf("ledger.%s does not survive sealing: give it a column, or a reason in notSealed: %s", name, c.differs[name])
		case c.differs[name] == "" && listed:
			t.Errorf("ledger.%s is sealed; notSealed says otherwise: %s", name, why)
		}
	}
}

// fill sets the plain fields of a struct that are zero.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if !f.IsZero() {
			continue
		}
		switch {
		case f.CanInt():
			f.SetInt(int64(i + 2))
		case f.Kind() == reflect.Uint8: // an enumeration
			f.SetUint(1)
		case f.CanUint():
			f.SetUint(uint64(i + 2))
		case f.Kind() == reflect.String:
			f.SetString(v.Type().Field(i).Name)
		case f.Kind() == reflect.Bool:
			f.SetBool(true)
		}
	}
}

// ofLedger is the ledger's struct that a type is, or is made of; nil if there is none.
func ofLedger(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return ofLedger(t.Elem())
	case reflect.Struct:
		if t.PkgPath() == reflect.TypeFor[ledger.Book]().PkgPath() {
			return t
		}
	}
	return nil
}

// fieldsOf collects the fields of a struct of the ledger and of all that it is made of, as "Type.Field".
func fieldsOf(t reflect.Type, into map[string]bool) {
	for i := range t.NumField() {
		name := t.Name() + "." + t.Field(i).Name
		if into[name] {
			continue
		}
		into[name] = true
		if inner := ofLedger(t.Field(i).Type); inner != nil {
			fieldsOf(inner, into)
		}
	}
}

// comparison holds two ledgers against each other, field by field.
type comparison struct {
	set     map[string]bool   // fields that are not zero somewhere in the first
	differs map[string]string // fields that are not the same somewhere, with an example
	seen    map[uintptr]bool
}

func (c *comparison) value(name string, a, b reflect.Value) {
	differ := func() {
		if c.differs[name] == "" {
			c.differs[name] = fmt.Sprintf("%v became %v", a, b)
		}
	}
	switch {
	case ofLedger(a.Type()) == nil:
		if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
			return
		}
		if fmt.Sprint(a) != fmt.Sprint(b) {
			differ()
		}
	case a.Kind() == reflect.Pointer:
		if a.IsNil() != b.IsNil() {
			differ()
		}
		if a.IsNil() || b.IsNil() || c.seen[a.Pointer()] {
			return
		}
		c.seen[a.Pointer()] = true
		c.value(name, a.Elem(), b.Elem())
	case a.Kind() == reflect.Slice:
		if a.Len() != b.Len() {
			differ()
		}
		for i := range min(a.Len(), b.Len()) {
			c.value(name, a.Index(i), b.Index(i))
		}
	case a.Kind() == reflect.Struct:
		for i := range a.NumField() {
			inner := a.Type().Name() + "." + a.Type().Field(i).Name
			c.set[inner] = c.set[inner] || !a.Field(i).IsZero()
			c.value(inner, a.Field(i), b.Field(i))
		}
	}
}
