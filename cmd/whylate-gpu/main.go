// Command whylate-gpu reads a host's GPUs through NVIDIA's library for whylate-agent and 'whylate serve', which start it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/whylate/whylate/gpu/nvml"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := nvml.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}
