// Package web is whylate over HTTP: /api/v1 as openapi.json describes it, /healthz, /readyz and /metrics. Its handlers know an
// [api.Service] and nothing else: they read the question, ask, and write what was answered exactly as the command line's -o json does.
package web
