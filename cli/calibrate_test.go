package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/whylate/whylate/experiment/simulate/timing"
)

// What is written is a calibration, of no more than was asked for.
func TestCalibrateWritesACalibration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calibration.json")
	status, out, errOut := run(t, "calibrate", "--from", "demo", "--first", "1001", "--last", "3000", "--out", path)
	if status != ExitOK || !strings.Contains(out, "written to "+path) {
		t.Fatalf("exit %d: %s%s", status, out, errOut)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, err := timing.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if p := c.Provenance; p.Engine != "vllm 0.32.0" || p.From != 1001 || p.To != 3000 || p.Rows != 2000 {
		t.Errorf("%+v", p)
	}
	if status, _, errOut := run(t, "calibrate", "--from", "demo", "--out", filepath.Join(path, "x")); status != ExitFailed || !strings.Contains(errOut, "write the calibration") {
		t.Errorf("no such directory: exit %d: %s", status, errOut)
	}
}
