// Package deploy holds no code: systemd units, Dockerfile, Kubernetes manifests and an example of whylate.yaml, and the tests
// that hold them against config, against the commands, and against Kubernetes' own types. README.md says how to use them.
package deploy
