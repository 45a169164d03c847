// Package metrics keeps time series: Prometheus's own TSDB and PromQL engine as a library, behind a guard. There are two stores of one data
// directory: *detail* has series as their producers send them, for days; *rollup* has registered signals, a point a minute, for months. Nothing
// gets into either but through the guard, which bounds how many series there are and refuses what must not become a label.
//
// It is the only package that imports Prometheus's TSDB.
package metrics
