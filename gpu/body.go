package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// body is one way to read GPUs: a program that prints lines, and what a line means.
type body struct {
	name    string
	command func() (*exec.Cmd, error)
	// line reads one line. A line that changes what is to be asked returns errAgain: the program is to be started anew.
	line func(text string) (Reading, error)
}

// errAgain says that a program is to be started anew at once, asked for less.
type errAgain struct{ what string }

func (e errAgain) Error() string { return e.what }

// Helper is the program that reads GPUs through NVML. It is a program of its own, since loading a library makes a program a dynamic one,
// which does not start in an image without a C library, and since a driver's fault is then its own.
const Helper = "whylate-gpu"

// Line is what the helper prints of a device: who it is where that has changed, and the sample.
type Line struct {
	UUID    string  `json:"uuid"`
	Device  *Device `json:"device,omitempty"`
	Reading Reading `json:"-"`
	Sample  any     `json:"sample"`
}

// throughNVML asks the helper.
func throughNVML(helper string, every time.Duration) body {
	devices := map[string]Device{}
	return body{name: NVML,
		command: func() (*exec.Cmd, error) {
			path, err := find(helper, Helper)
			if err != nil {
				return nil, err
			}
			return exec.Command(path, "--every", every.String()), nil
		},
		line: func(text string) (Reading, error) {
			r := Reading{Body: NVML}
			l := Line{Sample: &r.Sample}
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				return r, fmt.Errorf("a line of %s: %w", Helper, err)
			}
			if l.Device != nil {
				devices[l.UUID] = *l.Device
			}
			d, known := devices[l.UUID]
			if !known {
				return r, fmt.Errorf("a line of %s about the device %q, of which it has not said who it is", Helper, clip(l.UUID))
			}
			r.Device = d
			return r, nil
		}}
}

// throughSMI asks nvidia-smi, for ever fewer columns until it knows all of them.
func throughSMI(smi string, every time.Duration, now func() int64) body {
	columns := slices.Concat(whose, measured)
	var notes []string
	return body{name: SMI,
		command: func() (*exec.Cmd, error) {
			path, err := find(smi, "nvidia-smi")
			if err != nil {
				return nil, err
			}
			return exec.Command(path, "--query-gpu="+strings.Join(columns, ","), "--format=csv,noheader,nounits", fmt.Sprintf("--loop-ms=%d", every.Milliseconds())), nil
		},
		line: func(text string) (Reading, error) {
			if m := unknownField.FindStringSubmatch(text); m != nil {
				i := slices.Index(columns, m[1])
				if i < 0 || m[1] == "uuid" {
					return Reading{}, fmt.Errorf("nvidia-smi: %s", clip(text))
				}
				columns = slices.Delete(columns, i, i+1)
				notes = append(notes, m[1]+" is not known to this driver, and is not asked for")
				return Reading{}, errAgain{m[1]}
			}
			if !strings.Contains(text, ",") { // it speaks of itself: that it has no driver, that it has no device
				return Reading{}, errors.New(clip(text))
			}
			r, err := Row(text, columns, now(), every)
			r.Device.Notes = notes
			return r, err
		}}
}

// find is where a program lies: where it was said, beside this program, or on the path.
func find(said, name string) (string, error) {
	if said != "" {
		return said, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); exists(beside) {
			return beside, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside this program nor on the PATH", name)
	}
	return path, nil
}

func exists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
