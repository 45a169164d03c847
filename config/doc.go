// Package config reads the one file that whylate is configured with, whylate.yaml, and says of every value where it came from.
//
// A key is declared once, in keys.go: its name, type, default, unit and meaning, and the field of [Config] that holds it. From
// that come the defaults, validation, the environment variables, the flags, docs/config.md and deploy/whylate.example.yaml.
// What is given more than once is decided by one precedence: flag, then environment, then file, then default.
//
// The file holds no secrets, only the paths of files that do.
package config
