package look

import "fmt"

// progress comes before load: requests run, and no token comes out.
func progress(s *Scene) (facts []Fact) {
	for _, w := range s.Engines() {
		running, ok := s.last("request.running", w)
		if !ok || running == 0 {
			continue
		}
		by, over, ok := s.grown("tokens.generated", w)
		if !ok || by > 0 {
			continue
		}
		during := "between the first scrape and the last"
		if over > 0 {
			during = "in " + seconds(float64(over)/1e9)
		}
		f := Fact{Weight: Broken, Path: "token", About: w.String(), Text: fmt.Sprintf("%s: %s requests run, and not one token came out %s.", w, count(running), during),
			Do: "A GPU that is busy is no progress. Look at the engine's last log line and at 'whylate top'; if it stays so, take a stack of the worker before restarting it."}
		for _, r := range s.about("tokens.generated", w) {
			if r.Native.Late {
				f.Weight = Notice
				f.Text = fmt.Sprintf("%s: %s requests run, and none ended %s. %s moves only when a request ends, so whether tokens come out is not known.", w, count(running), during, r.Native.Name)
				f.Do = ""
			}
		}
		facts = append(facts, f)
	}
	return facts
}
