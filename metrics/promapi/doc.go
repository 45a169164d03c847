// Package promapi answers Prometheus's HTTP API for queries, so that Grafana and promtool may ask whylate as they ask Prometheus: the same
// parameters, encodings, errors and status codes. What administers, writes or reads in bulk is not there.
package promapi
