// Command whylate-agent forwards the rings of a host to a whylate server.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/whylate/whylate/agent/command"
)

// Version is set by the release build.
var Version string

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	status := command.Main(ctx, "whylate-agent", Version, os.Args[1:])
	stop()
	os.Exit(status)
}
