package deploy

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/whylate/whylate/config"
)

// decode reads the documents of a manifest into Kubernetes' own types; an unknown, misspelt or doubled field is an error.
func decode(text string) ([]runtime.Object, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Yaml: true, Strict: true})
	var objects []runtime.Object
	for r := yaml.NewDocumentDecoder(io.NopCloser(strings.NewReader(text))); ; {
		buf := make([]byte, 1<<20)
		n, err := r.Read(buf)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		o, _, err := strict.Decode(bytes.TrimSpace(buf[:n]), nil, nil)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// manifests are the objects of all files.
func manifests(t *testing.T) map[string][]runtime.Object {
	t.Helper()
	paths, _ := filepath.Glob("kubernetes/*.yaml")
	all := map[string][]runtime.Object{}
	for _, path := range paths {
		objects, err := decode(read(t, path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if len(objects) == 0 {
			t.Errorf("%s is empty", path)
		}
		all[path] = objects
	}
	return all
}

func TestManifestsDecode(t *testing.T) {
	all := manifests(t)
	if len(all) < 5 {
		t.Errorf("%d manifests", len(all))
	}
	// The decoder is as strict as it is meant to be.
	for _, wrong := range []string{
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selecter: {a: b}}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{name: a, Port: 1}]}\n",
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, name: b}\n",
		"apiVersion: v1\nkind: Nothing\n",
	} {
		if _, err := decode(wrong); err == nil {
			t.Errorf("taken:\n%s", wrong)
		}
	}
}

// workload is a pod's template with what is around it.
type workload struct {
	file, name string
	meta       metav1.ObjectMeta
	selector   *metav1.LabelSelector
	template   corev1.PodTemplateSpec
	claims     []corev1.PersistentVolumeClaim
	patch      bool
}

func workloads(all map[string][]runtime.Object) []workload {
	var out []workload
	for _, file := range slices.Sorted(maps.Keys(all)) {
		for _, o := range all[file] {
			w := workload{file: file, patch: strings.Contains(file, "patch")}
			switch o := o.(type) {
			case *appsv1.StatefulSet:
				w.name, w.meta, w.selector, w.template, w.claims = o.Name, o.ObjectMeta, o.Spec.Selector, o.Spec.Template, o.Spec.VolumeClaimTemplates
			case *appsv1.DaemonSet:
				w.name, w.meta, w.selector, w.template = o.Name, o.ObjectMeta, o.Spec.Selector, o.Spec.Template
			case *appsv1.Deployment:
				w.name, w.meta, w.selector, w.template = o.Name, o.ObjectMeta, o.Spec.Selector, o.Spec.Template
			default:
				continue
			}
			out = append(out, w)
		}
	}
	return out
}

func containers(w workload) []corev1.Container {
	return append(slices.Clone(w.template.Spec.InitContainers), w.template.Spec.Containers...)
}

func ours(c corev1.Container) bool { return strings.HasPrefix(c.Image, "registry.example/whylate") }

// What refers to something refers to something that is there.
func TestManifestsFitTogether(t *testing.T) {
	all := manifests(t)
	configs := map[string]string{} // whylate.yaml by ConfigMap
	var services []*corev1.Service
	for _, objects := range all {
		for _, o := range objects {
			switch o := o.(type) {
			case *corev1.ConfigMap:
				configs[o.Name] = o.Data["whylate.yaml"]
			case *corev1.Service:
				services = append(services, o)
			}
		}
	}
	readme := read(t, "README.md")
	env := config.Variables()

	for _, w := range workloads(all) {
		pod := w.template.Spec
		where := w.file + ": " + w.name
		if !w.patch {
			for k, v := range w.selector.MatchLabels {
				if w.template.Labels[k] != v {
					t.Errorf("%s: the selector wants %s=%s, the pod has %q", where, k, v, w.template.Labels[k])
				}
			}
		}
		volumes := map[string]corev1.Volume{}
		for _, v := range pod.Volumes {
			volumes[v.Name] = v
			if v.ConfigMap != nil && configs[v.ConfigMap.Name] == "" {
				t.Errorf("%s: there is no ConfigMap %s", where, v.ConfigMap.Name)
			}
			if v.Secret != nil && !strings.Contains(readme, "create secret generic "+v.Secret.SecretName) {
				t.Errorf("%s: README.md does not say how the Secret %s is made", where, v.Secret.SecretName)
			}
			if v.Secret != nil && *v.Secret.DefaultMode&0o007 != 0 {
				t.Errorf("%s: everyone may read the Secret %s", where, v.Secret.SecretName)
			}
		}
		for _, c := range w.claims {
			volumes[c.Name] = corev1.Volume{Name: c.Name}
		}
		used := map[string]bool{}
		for _, c := range containers(w) {
			where := where + ": " + c.Name
			for _, m := range c.VolumeMounts {
				if _, ok := volumes[m.Name]; !ok {
					t.Errorf("%s mounts %s, which is no volume", where, m.Name)
				}
				used[m.Name] = true
			}
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, "WHYLATE_") && !slices.Contains(env, e.Name) {
					t.Errorf("%s sets %s, which nobody reads", where, e.Name)
				}
			}
			for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
				if p != nil && !slices.ContainsFunc(c.Ports, func(cp corev1.ContainerPort) bool { return cp.Name == p.HTTPGet.Port.StrVal }) {
					t.Errorf("%s is probed at %s, which is no port of it", where, p.HTTPGet.Port.String())
				}
			}
			if ours(c) {
				ourContainer(t, where, w, c, volumes, configs, readme)
			}
		}
		for name := range volumes {
			if !used[name] {
				t.Errorf("%s: nobody mounts %s", where, name)
			}
		}
		if strings.Contains(w.file, "engine-") && w.patch || strings.Contains(w.file, "daemonset") {
			ringsAreShared(t, where, w, volumes)
		}
		if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
			if w.file != "kubernetes/engine-example.yaml" {
				t.Errorf("%s: a Service named whylate would set variables that begin with WHYLATE_", where)
			}
		}
	}

	for _, s := range services {
		found := false
		for _, w := range workloads(all) {
			fits := !w.patch && len(s.Spec.Selector) > 0
			for k, v := range s.Spec.Selector {
				fits = fits && w.template.Labels[k] == v
			}
			if !fits {
				continue
			}
			found = true
			for _, p := range s.Spec.Ports {
				if !slices.ContainsFunc(containers(w), func(c corev1.Container) bool {
					return slices.ContainsFunc(c.Ports, func(cp corev1.ContainerPort) bool {
						return cp.Name == p.TargetPort.StrVal && cp.ContainerPort == p.Port
					})
				}) {
					t.Errorf("Service %s: port %s leads nowhere", s.Name, p.Name)
				}
			}
		}
		if !found {
			t.Errorf("Service %s selects nothing", s.Name)
		}
	}
}

// ourContainer holds a container of ours against its settings.
func ourContainer(t *testing.T, where string, w workload, c corev1.Container, volumes map[string]corev1.Volume, configs map[string]string, readme string) {
	t.Helper()
	agent := strings.HasPrefix(c.Image, "registry.example/whylate-agent:")
	entry := "/whylate"
	if agent {
		entry = "/whylate-agent"
	}
	called(t, where, append([]string{entry}, c.Args...)...)

	i := slices.Index(c.Args, "--config")
	if i < 0 {
		t.Errorf("%s names no --config", where)
		return
	}
	mount := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == c.Args[i+1] })
	if mount < 0 || c.VolumeMounts[mount].SubPath != "whylate.yaml" {
		t.Errorf("%s reads %s, which is not mounted", where, c.Args[i+1])
		return
	}
	text := configs[volumes[c.VolumeMounts[mount].Name].ConfigMap.Name]
	s := settings(t, where, text)

	writes, reads := []string{s.DataDir}, []string{s.TokensFile, s.Listen.AgentsTokens, s.TLS.Cert, s.TLS.Key, s.TLS.ClientCA}
	if agent {
		writes, reads = []string{s.Agent.SpoolDir, s.Rings.Dir}, []string{s.Agent.TokenFile, s.Agent.KeyFile, s.Agent.TLS.CA, s.Agent.TLS.Cert, s.Agent.TLS.Key}
	}
	for _, p := range writes {
		if m := mounted(c, p); m == nil || m.ReadOnly {
			t.Errorf("%s writes to %s, where nothing can be written", where, p)
		}
	}
	for _, p := range reads {
		if p == "" {
			continue
		}
		m := mounted(c, p)
		if m == nil || volumes[m.Name].Secret == nil {
			t.Errorf("%s reads %s, where no Secret is mounted", where, p)
			continue
		}
		key := strings.TrimPrefix(p, m.MountPath+"/")
		secret := volumes[m.Name].Secret.SecretName
		if !regexp.MustCompile(`create secret generic ` + secret + `[^\n]*(\\\n[^\n]*)*--from-file=` + regexp.QuoteMeta(key) + `\b`).MatchString(readme) {
			t.Errorf("%s reads %s of the Secret %s, which README.md does not put there", where, key, secret)
		}
	}
	if !agent {
		for name, addr := range map[string]string{"http": s.Listen.HTTP, "agents": s.Listen.Agents} {
			if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name && port(addr) == itoa(p.ContainerPort) }) {
				t.Errorf("%s listens on %s, and its port %s is another one", where, addr, name)
			}
		}
		if (c.LivenessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS) != (s.TLS.Cert != "") {
			t.Errorf("%s is probed with %s", where, c.LivenessProbe.HTTPGet.Scheme)
		}
	}
	if agent {
		if v := volumes[mounted(c, s.Agent.SpoolDir).Name].EmptyDir; v != nil && v.SizeLimit.Value() < s.Agent.SpoolBytes {
			t.Errorf("%s: the spool may take %s, and its volume has %s", where, config.FormatSize(s.Agent.SpoolBytes), v.SizeLimit)
		}
	}
	sc := c.SecurityContext
	if sc == nil || sc.ReadOnlyRootFilesystem == nil || !*sc.ReadOnlyRootFilesystem || sc.AllowPrivilegeEscalation == nil || *sc.AllowPrivilegeEscalation || !slices.Contains(sc.Capabilities.Drop, "ALL") {
		t.Errorf("%s may do more than it needs", where)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s has no bounds", where)
	}
}

// ringsAreShared: engine and agent have the same directory of rings, as the same user.
func ringsAreShared(t *testing.T, where string, w workload, volumes map[string]corev1.Volume) {
	t.Helper()
	users := map[int64]bool{}
	for _, c := range containers(w) {
		dir := ""
		for _, e := range c.Env {
			if e.Name == "WHYLATE_RING_DIR" {
				dir = e.Value
			}
		}
		m := mounted(c, dir)
		if dir == "" || m == nil || m.MountPath != dir || m.ReadOnly {
			t.Errorf("%s: %s has no directory of rings", where, c.Name)
			continue
		}
		v := volumes[m.Name]
		switch {
		case v.EmptyDir != nil:
			if v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit == nil {
				t.Errorf("%s: rings belong into memory, with a limit", where)
			}
			if len(containers(w)) < 2 {
				t.Errorf("%s: nobody else has this volume", where)
			}
		case v.HostPath == nil || !strings.HasPrefix(v.HostPath.Path, "/dev/shm/"):
			t.Errorf("%s: rings belong into memory", where)
		}
		if c.SecurityContext == nil || c.SecurityContext.RunAsUser == nil {
			t.Errorf("%s: %s runs as whoever its image says, and rings have mode 0600", where, c.Name)
			continue
		}
		users[*c.SecurityContext.RunAsUser] = true
	}
	if len(users) > 1 {
		t.Errorf("%s: engine and agent run as different users, and rings have mode 0600", where)
	}
}

// mounted is the mount that a path lies in, the deepest.
func mounted(c corev1.Container, path string) *corev1.VolumeMount {
	var best *corev1.VolumeMount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if (path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")) && (best == nil || len(m.MountPath) > len(best.MountPath)) {
			best = m
		}
	}
	return best
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// The server's address is the one that agents are told, and both ways of running an agent have the same user.
func TestAgentsFindTheServer(t *testing.T) {
	all := manifests(t)
	var agents, server *config.Config
	users := map[int64]string{}
	for _, objects := range all {
		for _, o := range objects {
			if m, ok := o.(*corev1.ConfigMap); ok {
				c := settings(t, m.Name, m.Data["whylate.yaml"])
				if m.Name == "whylate-agent" {
					agents = c
				} else {
					server = c
				}
			}
		}
	}
	if want := "tls://whylate.whylate.svc:" + port(server.Listen.Agents); agents.Agent.Server != want {
		t.Errorf("agents look for %s, the server is %s", agents.Agent.Server, want)
	}
	if server.Rings.Follow {
		t.Error("the server would look for rings in its own container")
	}
	for _, w := range workloads(all) {
		for _, c := range containers(w) {
			if strings.Contains(c.Image, "whylate-agent") {
				users[*c.SecurityContext.RunAsUser] = w.file
			}
		}
	}
	if len(users) != 1 {
		t.Errorf("agents run as %v", users)
	}
}
