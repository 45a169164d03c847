package account

// Statement is the account of a set of requests: means per request, so that sets of different size compare. The difference
// of two statements sums, part by part, to the change of the mean that it explains (up to a nanosecond a part).
type Statement struct {
	Requests int        `json:"requests"`
	E2E      int64      `json:"mean_e2e_ns"`
	Parts    []MeanPart `json:"parts"`
}

// MeanPart is one part's mean over the requests of a statement.
type MeanPart struct {
	Part Part  `json:"part"`
	NS   int64 `json:"mean_ns"`
}

// StatementOf makes the statement of a set of accounts.
func StatementOf(accounts []*Account) Statement {
	s := Statement{Requests: len(accounts)}
	n := int64(max(len(accounts), 1))
	sums := make([]int64, len(Parts))
	for _, a := range accounts {
		for i := range a.Lines {
			sums[i] += a.Lines[i].NS
		}
	}
	for i, p := range Parts {
		s.Parts = append(s.Parts, MeanPart{p, sums[i] / n})
		s.E2E += sums[i]
	}
	s.E2E /= n
	return s
}

// Sub is the difference s − o, part by part; Requests is that of s.
func (s Statement) Sub(o Statement) Statement {
	d := Statement{Requests: s.Requests, E2E: s.E2E - o.E2E}
	for i, p := range s.Parts {
		d.Parts = append(d.Parts, MeanPart{p.Part, p.NS - o.Parts[i].NS})
	}
	return d
}
