package look

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/whylate/whylate/signals"
)

// Weight orders facts.
type Weight int

// The weights: the service does not do its work; a measurement is certainly wrong; something is to be known when reading the rest.
const (
	Broken Weight = iota
	Wrong
	Notice
)

// MarshalText gives a weight its name.
func (w Weight) MarshalText() ([]byte, error) { return []byte(weights[w]), nil }

// UnmarshalText reads that name.
func (w *Weight) UnmarshalText(text []byte) error {
	n := slices.Index(weights, string(text))
	if n < 0 {
		return fmt.Errorf("%q is no weight: %s", text, strings.Join(weights, ", "))
	}
	*w = Weight(n)
	return nil
}

var weights = []string{"broken", "wrong", "notice"}

// Fact is something that is certain from what was read.
type Fact struct {
	ID      string       `json:"id"` // of its rule
	Weight  Weight       `json:"weight"`
	Path    signals.Path `json:"path"`
	About   string       `json:"about,omitempty"`
	Text    string       `json:"text"`              // what, with its numbers
	Instead string       `json:"instead,omitempty"` // what can be said or used in its place
	Do      string       `json:"do,omitempty"`      // what to do
}

// rule finds facts of one kind in a scene, and takes out of the evidence what is none.
type rule struct {
	id   string
	find func(*Scene) []Fact
}

// rules in the order in which they run: what discredits a reading comes before what relies on it.
var rules = []rule{
	{"time-impossible", ttftImpossible},
	{"clocks-apart", clocksApart},
	{"hit-rate-gauge", hitRateGauge},
	{"throughput-gauge", throughputGauge},
	{"no-first-token", noFirstToken},
	{"prof-invalid", profInvalid},
	{"gone-silent", gone},
	{"progress", progress},
	{"hidden-queues", hiddenQueues},
	{"nobody-ready", nobodyReady},
	{"counter-misread", misreadCounters},
	{"preemptions", preemptionsCounted},
	{"ranks-uneven", ranksUneven},
	{"replicas-uneven", replicasUneven},
	{"first-token-gap", firstTokenGap},
	{"itl-is-per-step", itlPerStep},
	{"acceptance", acceptance},
	{"prompt-throughput", promptThroughput},
	{"mixed-versions", mixedVersions},
	{"gone-with-a-version", goneWithAVersion},
	{"iteration-statistics", iterationStatistics},
	{"passes-progress", passesProgress},
	{"passes", passes},
	{"passes-time", passesTime},
	{"passes-lost", passesLost},
	{"labels-explode", labelsExplode},
	{"bucket-edges", bucketEdges},
	{"queries", checkQueries},
	{"corrupt", corrupt},
	{"gpu-blanks", blanks},
	{"gpu-clocks", clocks},
	{"gpu-xid", driverErrors},
	{"gpu-memory-errors", memoryErrors},
	{"gpu-counters-disguised", disguised},
	{"gpu-energy", energyFalls},
	{"gpu-partitioned", partitioned},
	{"gpu-owners", owners},
	{"gpu-renames", deviceRenames},
}

// careRules are for whoever looks after what arrives: nothing is wrong with the engines because of them, nor with what is read.
var careRules = []rule{
	{"two-names", twoNames},
	{"two-nodes", twoNodes},
	{"two-meanings", twoMeanings},
}

// logRules watch each log while its lines go by.
var logRules = []struct {
	id    string
	watch func() watch
}{
	{"log-death", func() watch { return &logDeath{} }},
	{"log-progress", func() watch { return &logProgress{} }},
	{"log-preemptions", func() watch { return &logPreemptions{} }},
	{"log-retractions", func() watch { return &logRetractions{} }},
	{"log-room", func() watch { return &logRoom{} }},
	{"log-decode-node", func() watch { return &logDecodeNode{} }},
	{"log-prefill-node", func() watch { return &logPrefillNode{} }},
	{"log-deferred", func() watch { return &logDeferred{} }},
	{"log-sums", func() watch { return &logSums{} }},
	{"log-graph", func() watch { return &logGraph{} }},
	{"log-compile", func() watch { return &logCompile{} }},
	{"log-iterations", func() watch { return &logIterations{} }},
	{"log-speculation", func() watch { return &logSpeculation{} }},
	{"log-transfers", func() watch { return &logTransfers{} }},
	{"log-gone", func() watch { return &logGone{} }},
}

func judge(s *Scene, more ...rule) []Fact {
	var facts []Fact
	for _, r := range slices.Concat(rules, more) {
		for _, f := range r.find(s) {
			f.ID = r.id
			facts = append(facts, f)
		}
	}
	for _, l := range s.Logs {
		facts = append(facts, l.facts(len(s.Logs) == 1)...)
	}
	slices.SortStableFunc(facts, func(a, b Fact) int { return cmp.Compare(a.Weight, b.Weight) })
	return facts
}
