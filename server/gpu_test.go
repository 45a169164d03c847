package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/whylate/whylate/gpu"
	"github.com/whylate/whylate/internal/vfs"
	"github.com/whylate/whylate/ledger"
)

// A server samples its own host's GPUs, keeps what it read, and knows it after a restart.
func TestSamplesItsOwnHost(t *testing.T) {
	helper := filepath.Join(t.TempDir(), gpu.Helper)
	text := `#!/bin/sh
n=1; while :; do echo "{\"uuid\":\"GPU-a\",\"device\":{\"uuid\":\"GPU-a\",\"name\":\"NVIDIA H100\"},\"sample\":{\"Time\":$n,\"Every\":100000000,\"State\":1,\"Values\":[{\"Signal\":0,\"Value\":0.5}]}}"; n=$((n+1)); sleep 0.05; done
`
	if err := os.WriteFile(helper, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewMemory()
	s := startWith(t, disk, Settings{GPU: &gpu.Settings{Every: gpu.Least, Body: gpu.NVML, Helper: helper}})
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(time.Minute); ; <-again.C {
		l, err := s.Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Devices) == 1 && l.Devices[0].Samples > 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%+v", l)
		}
	}
	s.stop()
	after := startWith(t, disk, Settings{})
	defer after.stop()
	l, err := after.Devices(t.Context())
	if err != nil || len(l.Devices) != 1 || l.Devices[0].Samples < 4 || l.Devices[0].Readings[0].Value != 0.5 || l.Devices[0].State != ledger.DeviceAnswers || l.Devices[0].Name != "NVIDIA H100" {
		t.Fatalf("%+v %v", l, err)
	}
}
