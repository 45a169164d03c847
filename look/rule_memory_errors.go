package look

import "fmt"

// memoryErrors tells of errors of a GPU's memory that it could not correct, and of rows that it could not replace.
func memoryErrors(s *Scene) (facts []Fact) {
	for _, d := range s.devices() {
		if v, ok := d.last(s, "gpu.row_remap_failed", ""); ok && v > 0 {
			facts = append(facts, Fact{Weight: Broken, Path: "gpu", About: d.id, Text: fmt.Sprintf("%s could not replace a broken row of its memory.", d), Do: "Take the GPU out of service and have the board replaced."})
		}
		ps := d.series(s, "gpu.ecc.uncorrected", "")
		if len(ps) == 0 || ps[len(ps)-1].Value == 0 {
			continue
		}
		f := Fact{Weight: Notice, Path: "gpu", About: d.id, Text: fmt.Sprintf("%s had %s of its memory since its driver was loaded", d, plural(int(ps[len(ps)-1].Value), "uncorrected error", "uncorrected errors"))}
		if by := ps[len(ps)-1].Value - ps[0].Value; by > 0 {
			f.Weight = Broken
			f.Text += fmt.Sprintf(", %s of them while it was watched", count(by))
		}
		f.Text += ": what was computed with it may be wrong."
		f.Do = "See 'nvidia-smi -q -d ECC,ROW_REMAPPER', and reset the GPU when it is empty."
		facts = append(facts, f)
	}
	return facts
}
