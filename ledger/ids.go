package ledger

import (
	"slices"
	"strings"
)

// IDs returns every id under which a person may know the request, the most telling first, each once.
func (r *Request) IDs() []string {
	ids := []string{r.RequestID, r.ResponseID}
	for _, q := range r.Sequences {
		ids = append(ids, q.External, q.Parent, q.ID)
		if r.ResponseID == "" && strings.HasPrefix(q.External, "cmpl-") && r.RequestID != "" {
			ids = append(ids, "cmpl-"+r.RequestID) // the completion id in the response body
		}
	}
	ids = append(ids, r.TraceID)
	var out []string
	for _, id := range ids {
		if id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// Name is the id by which answers call the request: the client's own if there is one. It may be asked of nil.
func (r *Request) Name() string {
	if r != nil {
		if ids := r.IDs(); len(ids) > 0 {
			return ids[0]
		}
	}
	return "unknown"
}
