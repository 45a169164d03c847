// Package engineenv finds, and makes where it must, the Python environments of real engines, and runs an engine in one.
package engineenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNotInstallable says that an environment cannot be made on this machine: no failure of ours.
var ErrNotInstallable = errors.New("the engine cannot be installed here")

// Python returns the interpreter of the environment of a vLLM version. What scripts/engine-env.sh says goes to stderr.
func Python(ctx context.Context, version string) (string, error) {
	cmd := exec.CommandContext(ctx, "scripts/engine-env.sh", version)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 3 {
		return "", fmt.Errorf("vLLM %s: %w", version, ErrNotInstallable)
	}
	if err != nil {
		return "", fmt.Errorf("vLLM %s: scripts/engine-env.sh: %w", version, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "bin", "python"), nil
}
