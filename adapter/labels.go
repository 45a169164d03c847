package adapter

import "github.com/whylate/whylate/exposition"

// Workload is namespace/pod of whoever a series is about: what a relabelling scrape has put aside as exported_ is the truth, the plain labels
// are then the exporter's.
func Workload(ls exposition.Labels) string {
	for _, prefix := range []string{"exported_", ""} {
		if pod := ls.Get(prefix + "pod"); pod != "" {
			if ns := ls.Get(prefix + "namespace"); ns != "" {
				return ns + "/" + pod
			}
			return pod
		}
	}
	return ""
}
