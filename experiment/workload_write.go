package experiment

import (
	"bufio"
	"fmt"
	"io"
)

// Write writes the requests as a workload, one a line, in the order given. A request that a [Reader] would refuse, for its own
// fields or for its place, ends the writing with the error that names it; what was written before stays.
func Write(w io.Writer, requests []Request) error {
	out := bufio.NewWriter(w)
	check := Reader{ids: make(map[string]int)}
	for i := range requests {
		request := &requests[i]
		object, err := request.MarshalJSON()
		if err == nil {
			err = check.fits(request)
		}
		if err != nil {
			return fmt.Errorf("write request %d: %w", i+1, err)
		}
		check.last = request
		if request.ID != "" {
			check.ids[request.ID] = i + 1
		}
		if _, err := out.Write(append(object, '\n')); err != nil {
			return fmt.Errorf("write workload: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write workload: %w", err)
	}
	return nil
}
