package config

import "time"

// Objectives are what is promised of a request; 0 promises nothing.
type Objectives struct {
	TTFT, TPOT, E2E time.Duration
}

var objectiveKeys = []Key{
	{Name: "objectives.ttft", kind: duration, Default: "0", Most: "1h", For: Server, field: func(c *Config) any { return &c.Objectives.TTFT },
		Doc: "What is promised of the time from a request's arrival to its first token. The histogram `whylate_request_ttft_seconds` has it as the bound of a bucket, so the share within it is counted. 0 promises nothing."},
	{Name: "objectives.tpot", kind: duration, Default: "0", Most: "1h", For: Server, field: func(c *Config) any { return &c.Objectives.TPOT },
		Doc: "What is promised of the mean gap between a request's tokens, as above in `whylate_request_tpot_seconds`. 0 promises nothing."},
	{Name: "objectives.e2e", kind: duration, Default: "0", Most: "24h", For: Server, field: func(c *Config) any { return &c.Objectives.E2E },
		Doc: "What is promised of a whole request, first seen to last byte, as above in `whylate_request_e2e_seconds`. 0 promises nothing."},
}
