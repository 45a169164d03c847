package cli

import (
	"log/slog"

	"github.com/whylate/whylate/config"
	"github.com/whylate/whylate/gpu"
)

// gpuSettings say how a server samples its own host's GPUs; nil where it does not.
func gpuSettings(c *config.Config, log *slog.Logger) *gpu.Settings {
	if !c.GPU.Sample {
		return nil
	}
	return &gpu.Settings{Every: c.GPU.Every, Helper: c.GPU.Helper, SMI: c.GPU.SMI, Log: log}
}
