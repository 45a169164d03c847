package rollup

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/whylate/whylate/adapter"
	"github.com/whylate/whylate/metrics"
)

// repeated are native labels that say again who a measurement is about, or what it is made of: who says it once, in words that all producers share.
var repeated = []string{"instance", "model_name", "model", "engine", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank", "engine_type", "dynamo_component", "requested_model", "le",
	"pod", "namespace", "container", "exported_pod", "exported_namespace", "exported_container", "exported_job", "exported_instance", "Hostname", "hostname", "node",
	"gpu", "UUID", "uuid", "gpu_uuid", "device", "pci_bus_id", "modelName", "DCGM_FI_DRIVER_VERSION", "GPU_I_PROFILE", "GPU_I_ID"}

// labelsOf are a signal's: who it is about, under which native name it came, and what native labels say beside.
func labelsOf(r *adapter.Reading) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, l := range r.Labels {
		if !slices.Contains(repeated, l.Name) {
			b.Set(l.Name, l.Value)
		}
	}
	w := r.Who
	for _, l := range []struct{ name, value string }{
		{labels.MetricName, metrics.NameOf(r.Signal)}, {"native", r.Family}, {"producer", w.Producer}, {"instance", w.Target}, {"model", w.Model}, {"rank", w.Rank}, {"role", w.Role},
		{"node", w.Node}, {"workload", w.Workload}, {"device", w.Device}, {"index", w.Index}, {"slice", w.Slice},
	} {
		if l.value != "" {
			b.Set(l.name, l.value)
		}
	}
	return b.Labels()
}
