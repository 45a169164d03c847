package metrics

import (
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"

	"github.com/whylate/whylate/exposition"
	"github.com/whylate/whylate/signals"
)

// mostMetadata bounds what is kept of metrics: a name, a type, a unit and a help text each.
const mostMetadata = 20_000

// mostHelp is how much of a help text is kept.
const mostHelp = 300

// metadataOf is what senders say of their metrics, by family. It is not kept on disk: each says it again.
type metadataOf struct {
	mu sync.RWMutex
	by map[string]metadata.Metadata
}

func (m *metadataOf) put(family string, md metadata.Metadata) {
	if md.IsEmpty() || !isName(family) {
		return
	}
	md.Help = strings.ToValidUTF8(md.Help[:min(len(md.Help), mostHelp)], "")
	m.mu.RLock()
	same := m.by[family] == md
	m.mu.RUnlock()
	if same {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[string]metadata.Metadata{}
	}
	if _, known := m.by[family]; known || len(m.by) < mostMetadata {
		m.by[family] = md
	}
}

// isCounter reports whether a sender has said that a metric counts.
func (m *metadataOf) isCounter(name string, told model.MetricType) bool {
	if told == "" || told == model.MetricTypeUnknown {
		m.mu.RLock()
		defer m.mu.RUnlock()
		told = m.by[name].Type
		if told == "" {
			base, _ := exposition.Split(name)
			told = m.by[base].Type
		}
	}
	switch told {
	case model.MetricTypeCounter, model.MetricTypeHistogram:
		return true
	}
	return false
}

// Metadata is what is known of metrics, by family: of whylate's signals from the registry, of all others from who sends them.
func (db *DB) Metadata() map[string]metadata.Metadata {
	out := map[string]metadata.Metadata{}
	db.metadata.mu.RLock()
	for name, md := range db.metadata.by {
		out[name] = md
	}
	db.metadata.mu.RUnlock()
	for i := range signals.All() {
		s := &signals.All()[i]
		out[NameOf(s)] = metadata.Metadata{Type: model.MetricType(s.Kind), Unit: UnitOf(s), Help: s.Question}
	}
	return out
}
