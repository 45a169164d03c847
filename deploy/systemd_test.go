package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/whylate/whylate/config"
)

// directives that a unit may have; a word that systemd does not know it only logs.
var directives = map[string][]string{
	"Unit":    {"Description", "Documentation", "Wants", "After"},
	"Install": {"WantedBy"},
	"Service": {"Type", "ExecStart", "Environment", "User", "Group", "StateDirectory", "StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryMode", "UMask", "Restart", "RestartSec",
		"TimeoutStopSec", "LimitNOFILE", "CPUWeight", "MemoryMax", "OOMScoreAdjust", "NoNewPrivileges", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "PrivateTmp", "ReadWritePaths",
		"DevicePolicy", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "RestrictAddressFamilies",
		"RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "MemoryDenyWriteExecute", "RemoveIPC", "SystemCallArchitectures", "SystemCallErrorNumber", "SystemCallFilter"},
}

// unit reads a unit file: values by section and directive.
func unit(t *testing.T, path string) map[string]map[string][]string {
	t.Helper()
	values := map[string]map[string][]string{}
	section := ""
	for line := range strings.Lines(read(t, path)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			section = strings.Trim(line, "[]")
			values[section] = map[string][]string{}
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || section == "" || !slices.Contains(directives[section], name) {
			t.Errorf("%s: [%s] %s is not a directive that is known here", path, section, line)
			continue
		}
		if strings.Contains(value, " #") {
			t.Errorf("%s: %s: systemd has no comments behind a value", path, line)
		}
		if len(values[section][name]) > 0 && name != "SystemCallFilter" && name != "Environment" {
			t.Errorf("%s: %s stands twice", path, name)
		}
		values[section][name] = append(values[section][name], value)
	}
	return values
}

func TestUnits(t *testing.T) {
	users := regexp.MustCompile(`(?m)^u (\S+) `).FindAllStringSubmatch(read(t, "systemd/whylate.sysusers.conf"), -1)
	paths, _ := filepath.Glob("systemd/*.service")
	if len(paths) != 2 {
		t.Fatalf("units: %v", paths)
	}
	for _, path := range paths {
		u := unit(t, path)
		service := u["Service"]
		one := func(name string) string {
			if v := service[name]; len(v) == 1 {
				return v[0]
			}
			t.Errorf("%s: %s has %d values", path, name, len(service[name]))
			return ""
		}
		called(t, path, strings.Fields(one("ExecStart"))...)
		if program := strings.Fields(one("ExecStart"))[0]; filepath.Dir(program) != "/usr/local/bin" {
			t.Errorf("%s: %s is not where the README installs it", path, program)
		}
		if !slices.ContainsFunc(users, func(m []string) bool { return m[1] == one("User") }) {
			t.Errorf("%s: the user %s is not made by whylate.sysusers.conf", path, one("User"))
		}
		for name, want := range map[string]string{"NoNewPrivileges": "yes", "ProtectSystem": "strict", "ReadWritePaths": "-/dev/shm", "CapabilityBoundingSet": "", "UMask": "0077", "Type": "exec"} {
			if got := one(name); got != want {
				t.Errorf("%s: %s=%s, want %s", path, name, got, want)
			}
		}
		// The state directory is where the defaults point with the unit's environment.
		c, err := config.Load(config.Input{Environ: service["Environment"], ReadFile: func(string) ([]byte, error) { return nil, os.ErrNotExist }})
		if err != nil {
			t.Fatal(err)
		}
		dir := c.DataDir
		if strings.Contains(path, "agent") {
			dir = c.Agent.SpoolDir
		}
		if want := "/var/lib/" + one("StateDirectory"); dir != want {
			t.Errorf("%s: it writes to %s, and its state directory is %s", path, dir, want)
		}
		if u["Install"]["WantedBy"] == nil || u["Unit"]["Description"] == nil {
			t.Errorf("%s has no description, or is wanted by nobody", path)
		}
	}
}

// Where systemd is installed it reads the units itself. The program and the user are replaced by some that are there.
func TestUnitsBySystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze on this machine")
	}
	paths, _ := filepath.Glob("systemd/*.service")
	for _, path := range paths {
		text := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAllString(read(t, path), "ExecStart=/bin/true")
		text = regexp.MustCompile(`(?m)^(User|Group)=.*`).ReplaceAllString(text, "$1=root")
		copied := filepath.Join(t.TempDir(), filepath.Base(path))
		if err := os.WriteFile(copied, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(analyze, "verify", "--man=no", copied).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}
