package timing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/whylate/whylate/ledger"
)

// A calibration as a file: JSON, so that it can be read, kept beside a run and given to a simulation.
type calibrationFile struct {
	Format     string                  `json:"format"` // [calibrationFormat]
	Version    int                     `json:"version"`
	Provenance Provenance              `json:"provenance"`
	Graphs     []graphFile             `json:"graphs,omitempty"`
	Bends      []int                   `json:"bends,omitempty"`
	Expected   map[string]expectedFile `json:"expected"` // by part
	Kinds      []kindFile              `json:"kinds"`
	Stalls     []stallFile             `json:"stalls,omitempty"`
}

type graphFile struct {
	Size    int    `json:"size"`
	Mode    string `json:"mode"`
	Prefill bool   `json:"prefill,omitempty"`
}

type expectedFile struct {
	Least float64            `json:"least_ns"`
	Per   map[string]float64 `json:"ns_per"` // by amount; what is not named costs nothing
}

type kindFile struct {
	Class     string               `json:"class"`
	Over      int                  `json:"over"`      // of sizes above this
	Residuals map[string][]float32 `json:"residuals"` // by part, in order of time: measured / expected
}

type stallFile struct {
	Extra map[string]float64 `json:"extra_ns"`
	First []string           `json:"first_with,omitempty"`
}

const (
	calibrationFormat  = "whylate-calibration"
	calibrationVersion = 1
	maxCalibration     = 16 << 20 // bytes
	maxGraphs          = 1 << 10
)

// Write writes the calibration as JSON.
func (c *Calibration) Write(w io.Writer) error {
	f := calibrationFile{Format: calibrationFormat, Version: calibrationVersion, Provenance: c.Provenance, Bends: c.basis.bends, Expected: map[string]expectedFile{}}
	for _, g := range c.basis.graphs {
		f.Graphs = append(f.Graphs, graphFile{g.Size, g.Mode.String(), g.Prefill})
	}
	for p, name := range partNames {
		per := map[string]float64{}
		for i, amount := range c.basis.names() {
			if ns := c.expected[p].per[i]; ns > 0 {
				per[amount] = ns
			}
		}
		f.Expected[name] = expectedFile{c.expected[p].least, per}
	}
	for i := range c.kinds {
		k := &c.kinds[i]
		kf := kindFile{classNames[k.class], k.from, map[string][]float32{}}
		for p, name := range partNames {
			kf.Residuals[name] = k.residuals[p]
		}
		f.Kinds = append(f.Kinds, kf)
	}
	for i := range c.stalls {
		f.Stalls = append(f.Stalls, c.stalls[i].file())
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	_, err = w.Write(append(raw, '\n'))
	return err
}

func (s *stall) file() stallFile {
	f := stallFile{Extra: map[string]float64{}}
	for p, name := range partNames {
		if s.extra[p] > 0 {
			f.Extra[name] = s.extra[p]
		}
	}
	for i, name := range ledger.WorkNames {
		if s.first&(1<<i) != 0 {
			f.First = append(f.First, name)
		}
	}
	return f
}

// Read reads a calibration that [Calibration.Write] wrote. What no calibration can say is refused with the field and its value.
func Read(r io.Reader) (*Calibration, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxCalibration+1))
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	if len(raw) > maxCalibration {
		return nil, fmt.Errorf("calibration: more than %d bytes: it is not one that whylate wrote", maxCalibration)
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("calibration: not JSON: %w", err)
	}
	if head.Format != calibrationFormat {
		return nil, fmt.Errorf("calibration: format: %.40q: want %q, as 'whylate simulate' writes it", head.Format, calibrationFormat)
	}
	if head.Version != calibrationVersion {
		return nil, fmt.Errorf("calibration: version: %d: this program reads version %d: calibrate again", head.Version, calibrationVersion)
	}
	var f calibrationFile
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	c, err := f.calibration()
	if err != nil {
		return nil, fmt.Errorf("calibration: %w", err)
	}
	return c, nil
}

func (f *calibrationFile) calibration() (*Calibration, error) {
	c := &Calibration{Provenance: f.Provenance}
	if f.Provenance.Rows < 1 {
		return nil, fmt.Errorf("provenance.rows: %d: it must be at least 1", f.Provenance.Rows)
	}
	var err error
	if c.basis, err = f.basis(); err != nil {
		return nil, err
	}
	for p, name := range partNames {
		e, ok := f.Expected[name]
		if !ok {
			return nil, fmt.Errorf("expected: no %s", name)
		}
		if c.expected[p], err = e.coefficients(c.basis.names()); err != nil {
			return nil, fmt.Errorf("expected.%s: %w", name, err)
		}
	}
	for i := range f.Kinds {
		k, err := f.Kinds[i].kind()
		if err != nil {
			return nil, fmt.Errorf("kinds[%d]: %w", i, err)
		}
		c.kinds = append(c.kinds, k)
	}
	if err := c.checkKinds(); err != nil {
		return nil, err
	}
	if len(f.Stalls) > f.Provenance.Rows {
		return nil, fmt.Errorf("stalls: %d of %d rows: there cannot be more stalls than iterations", len(f.Stalls), f.Provenance.Rows)
	}
	for i := range f.Stalls {
		s, err := f.Stalls[i].stall()
		if err != nil {
			return nil, fmt.Errorf("stalls[%d]: %w", i, err)
		}
		c.stalls = append(c.stalls, s)
	}
	c.settle()
	return c, nil
}

func (f *calibrationFile) basis() (basis, error) {
	var b basis
	if len(f.Graphs) > maxGraphs || len(f.Bends) > maxGraphs {
		return b, fmt.Errorf("graphs, bends: %d, %d: at most %d are read", len(f.Graphs), len(f.Bends), maxGraphs)
	}
	for i, g := range f.Graphs {
		mode := ledger.GraphPiecewise
		if g.Mode == ledger.GraphFull.String() {
			mode = ledger.GraphFull
		} else if g.Mode != mode.String() {
			return b, fmt.Errorf("graphs[%d].mode: %.40q: want %q or %q", i, g.Mode, ledger.GraphFull, ledger.GraphPiecewise)
		}
		if g.Size < 1 {
			return b, fmt.Errorf("graphs[%d].size: %d: it must be at least 1", i, g.Size)
		}
		b.graphs = append(b.graphs, Graph{g.Size, mode, g.Prefill})
	}
	b.order()
	for i, at := range f.Bends {
		if at < 1 || i > 0 && at <= f.Bends[i-1] {
			return b, fmt.Errorf("bends[%d]: %d: they must be above 0 and ascend", i, at)
		}
	}
	b.bends = f.Bends
	return b, nil
}

func (f *expectedFile) coefficients(names []string) (coefficients, error) {
	c := coefficients{per: make([]float64, len(names)), least: f.Least}
	if !possible(f.Least) {
		return c, fmt.Errorf("least_ns: %g: it must be between 0 and a day", f.Least)
	}
	for name, ns := range f.Per {
		i := slices.Index(names, name)
		if i < 0 {
			return c, fmt.Errorf("ns_per: %.40q: not an amount of this calibration", name)
		}
		if !possible(ns) {
			return c, fmt.Errorf("ns_per.%s: %g: it must be between 0 and a day", name, ns)
		}
		c.per[i] = ns
	}
	return c, nil
}

func possible(ns float64) bool { return ns >= 0 && ns <= longest }

func (f *kindFile) kind() (kind, error) {
	k := kind{class: class(slices.Index(classNames[:], f.Class)), from: f.Over}
	if k.class < 0 {
		return k, fmt.Errorf("class: %.40q: want one of %q", f.Class, classNames)
	}
	for p, name := range partNames {
		k.residuals[p] = f.Residuals[name]
		if n := len(k.residuals[p]); n == 0 || n != len(f.Residuals[partNames[0]]) {
			return k, fmt.Errorf("residuals.%s: %d values: each part needs as many, and at least one", name, n)
		}
		for i, x := range k.residuals[p] {
			if !(x >= 0) || x > math.MaxFloat32 {
				return k, fmt.Errorf("residuals.%s[%d]: %g: it must be 0 or more", name, i, x)
			}
		}
	}
	return k, nil
}

// checkKinds checks that each class's kinds ascend, and that there are some with and without prefill.
func (c *Calibration) checkKinds() error {
	var have [numClasses]bool
	for i := range c.kinds {
		k := &c.kinds[i]
		if k.from < 0 || i > 0 && (c.kinds[i-1].class > k.class || c.kinds[i-1].class == k.class && c.kinds[i-1].from >= k.from) {
			return fmt.Errorf("kinds[%d].over: %d: kinds go by class, then by ascending size", i, k.from)
		}
		have[k.class] = true
	}
	if !have[classDecode] || !have[classPrefill] {
		return errors.New("kinds: there must be some of decode and some of prefill")
	}
	return nil
}

func (f *stallFile) stall() (stall, error) {
	var s stall
	for name, ns := range f.Extra {
		p := slices.Index(partNames[:], name)
		if p < 0 {
			return s, fmt.Errorf("extra_ns: %.40q: want one of %q", name, partNames)
		}
		if !possible(ns) {
			return s, fmt.Errorf("extra_ns.%s: %g: it must be between 0 and a day", name, ns)
		}
		s.extra[p] = ns
	}
	for _, name := range f.First {
		i := slices.Index(ledger.WorkNames[:], name)
		if i < 0 {
			return s, fmt.Errorf("first_with: %.40q: want one of %q", name, ledger.WorkNames)
		}
		s.first |= 1 << i
	}
	return s, nil
}
