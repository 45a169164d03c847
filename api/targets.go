package api

import "context"

// Scraper is a [Service] that knows what its process reads metrics pages of.
type Scraper interface {
	// Targets lists every address whose metrics page is read, with how the last reading went.
	Targets(context.Context) (*TargetList, error)
}

// TargetList is what is scraped, in order of job and address.
type TargetList struct {
	Targets  []Target   `json:"targets"`
	NotTaken []NotTaken `json:"not_taken,omitempty"` // of the settings
}

// TargetHealth says how the last scrape of a target ended.
type TargetHealth string

// The states of a target.
const (
	TargetUnknown TargetHealth = "unknown" // not read yet
	TargetUp      TargetHealth = "up"
	TargetDown    TargetHealth = "down"
)

// Target is one address whose metrics page is read.
type Target struct {
	Job      string            `json:"job"`
	URL      string            `json:"url"`    // without a password
	Labels   map[string]string `json:"labels"` // that its series get, job and instance among them
	Health   TargetHealth      `json:"health"`
	LastAt   int64             `json:"last_at_unix_ns,omitempty"` // when the last scrape began; 0 = there was none
	TookNs   int64             `json:"took_ns,omitempty"`
	Interval int64             `json:"interval_ns"`
	Samples  int               `json:"samples"`            // on its last page, 0 where it is not text; before relabelling and budgets
	LeftOut  uint64            `json:"left_out"`           // lines of its pages since the start that Prometheus's parser would have refused, each with its whole page
	Problems []string          `json:"problems,omitempty"` // of the last page, the first few of them
	Error    string            `json:"error,omitempty"`    // why the last scrape brought nothing
	Remedy   string            `json:"remedy,omitempty"`   // and what to do

	Engines    []string          `json:"engines,omitempty"`    // of the ledger, that are one with what is read there
	Discovered map[string]string `json:"discovered,omitempty"` // labels before relabelling
}

// NotTaken is something of the settings that is not done here.
type NotTaken struct {
	Job    string `json:"job,omitempty"` // "" = it is of no one job
	What   string `json:"what"`
	Remedy string `json:"remedy"`
}
