// Package whylate is the root of the module; see docs/architecture.md for what lies where. It holds only tests of the whole.
package whylate
