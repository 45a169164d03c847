// Package deploy holds no code: systemd units, Dockerfile, Kubernetes manifests, Grafana dashboards and an example of whylate.yaml, and the
// tests that hold them against config, against the commands, against Kubernetes' own types, and against what engines and GPUs send. README.md says how to use them.
package deploy
