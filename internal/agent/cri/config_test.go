package cri

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/everynode/everynode/internal/agent/cgroups"
	"github.com/everynode/everynode/internal/agent/cri/resolvconf"
	"github.com/everynode/everynode/internal/testenv/needs"
)

func ptr[T any](v T) *T { return &v }

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u1", Labels: map[string]string{"app": "x"}},
		Spec: corev1.PodSpec{
			DNSPolicy: corev1.DNSClusterFirst, TerminationGracePeriodSeconds: ptr(int64(30)),
			Containers: []corev1.Container{{Name: "c", Image: "img",
				Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}, {ContainerPort: 81}}}},
		},
	}
}

func testRuntime(t *testing.T) *Runtime {
	t.Helper()
	dir := t.TempDir()
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("# mine\nnameserver 9.9.9.9\nsearch example.org lan.\noptions edns0 ndots:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return New(Config{LogRoot: dir + "/log/pods", LinkRoot: dir + "/log/containers", PodsRoot: dir + "/pods",
		Cgroups: testCgroups(t, dir+"/cgroup"), MemoryCapacity: 1000 << 20, MinOOMScore: -1000,
		DNS: resolvconf.DNS{Servers: []string{"10.96.0.10"}, Domain: "cluster.local", ResolvConf: resolv}})
}

// testCgroups are those of a node whose cgroups are mounted at a folder, which is made.
func testCgroups(t *testing.T, mount string) *cgroups.Cgroups {
	t.Helper()
	if err := os.MkdirAll(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	groups, err := cgroups.New(cgroups.Config{Node: "n1", Mount: mount})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}

func TestDNS(t *testing.T) {
	d := testRuntime(t).cfg.DNS
	cluster := runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}, Options: []string{"ndots:5"},
		Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "lan"}}
	host := runtimeapi.DNSConfig{Servers: []string{"9.9.9.9"}, Searches: []string{"example.org", "lan"},
		Options: []string{"edns0", "ndots:1"}}
	tests := []struct {
		name   string
		change func(*corev1.PodSpec)
		dns    resolvconf.DNS
		want   *runtimeapi.DNSConfig
	}{
		{"the cluster's", func(*corev1.PodSpec) {}, d, &cluster},
		{"the node's", func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }, d, &host},
		{"the node's on its network", func(s *corev1.PodSpec) { s.HostNetwork = true }, d, &host},
		{"the cluster's on the node's network", func(s *corev1.PodSpec) {
			s.HostNetwork, s.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
		}, d, &cluster},
		{"a cluster without name servers", func(*corev1.PodSpec) {}, resolvconf.DNS{ResolvConf: d.ResolvConf}, &host},
		{"the pod's own", func(s *corev1.PodSpec) {
			s.DNSPolicy = corev1.DNSNone
			s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"me"},
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("2")}, {Name: "rotate"}}}
		}, d, &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"me"}, Options: []string{"ndots:2",
			"rotate"}}},
		{"the pod's beside the cluster's", func(s *corev1.PodSpec) {
			s.DNSConfig = &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr("1")}}}
		}, d, &runtimeapi.DNSConfig{Servers: cluster.Servers, Searches: cluster.Searches, Options: []string{"ndots:1"}}},
	}
	long := strings.Repeat("a", 700)
	tests = append(tests, struct {
		name   string
		change func(*corev1.PodSpec)
		dns    resolvconf.DNS
		want   *runtimeapi.DNSConfig
	}{"a longer list than is read", func(s *corev1.PodSpec) {
		s.DNSPolicy = corev1.DNSNone
		s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"},
			Searches: []string{long + "1", long + "2", "me", long + "3", "you"}}
	}, d, &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{long + "1", long + "2", "me"}}})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := testPod()
			tt.change(&pod.Spec)
			got, err := tt.dns.Config(pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(texts(tt.want), texts(got)); diff != "" {
				t.Errorf("resolver configuration (-want +got):\n%s", diff)
			}
		})
	}
}

func texts(c *runtimeapi.DNSConfig) [3]string {
	return [3]string{strings.Join(c.Servers, " "), strings.Join(c.Searches, " "), strings.Join(c.Options, " ")}
}

func TestHostname(t *testing.T) {
	d := resolvconf.DNS{Domain: "cluster.local"}
	for _, tt := range []struct {
		want   string
		change func(*corev1.Pod)
	}{
		{"p", func(*corev1.Pod) {}},
		{"h", func(p *corev1.Pod) { p.Spec.Hostname = "h" }},
		{strings.Repeat("a", 62), func(p *corev1.Pod) { p.Name = strings.Repeat("a", 62) + "-tail" }},
		{"p.sub.ns.svc.cluster.local", func(p *corev1.Pod) {
			p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "sub",
				ptr(true)
		}},
		{"p", func(p *corev1.Pod) { p.Spec.Subdomain = "sub" }},
	} {
		pod := testPod()
		tt.change(pod)
		if got := d.Hostname(pod); got != tt.want {
			t.Errorf("host name %q, want %q", got, tt.want)
		}
	}
}

func TestSandboxConfig(t *testing.T) {
	r := testRuntime(t)
	pod := testPod()
	config, err := r.sandboxConfig(pod, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := config.LogDirectory, r.cfg.LogRoot+"/ns_p_u1"; got != want {
		t.Errorf("log folder %s, want %s", got, want)
	}
	if got, want := config.Linux.CgroupParent, "/everynode/n1/kubepods/besteffort/podu1"; got != want {
		t.Errorf("cgroup %s, want %s", got, want)
	}
	wantLabels := map[string]string{"app": "x", "io.kubernetes.pod.name": "p", "io.kubernetes.pod.namespace": "ns",
		"io.kubernetes.pod.uid": "u1"}
	if diff := cmp.Diff(wantLabels, config.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if len(config.PortMappings) != 1 || config.PortMappings[0].HostPort != 8080 ||
		config.PortMappings[0].ContainerPort != 80 {
		t.Errorf("port mappings %v, want that of the one host port", config.PortMappings)
	}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: ptr("deny.json")}}
	if hard, err := r.sandboxConfig(pod, 3); err != nil ||
		hard.Linux.SecurityContext.Seccomp.ProfileType != runtimeapi.SecurityProfile_RuntimeDefault {
		t.Errorf("the sandbox has the profile of the containers: %v, %v",
			hard.GetLinux().GetSecurityContext().GetSeccomp(), err)
	}
	if config.Metadata.Attempt != 3 || config.Hostname != "p" {
		t.Errorf("attempt %d and host name %s", config.Metadata.Attempt, config.Hostname)
	}
	pod.Spec.HostNetwork, pod.Spec.HostPID = true, true
	if config, err = r.sandboxConfig(pod, 0); err != nil {
		t.Fatal(err)
	}
	n := config.Linux.SecurityContext.NamespaceOptions
	if n.Network != runtimeapi.NamespaceMode_NODE || n.Pid != runtimeapi.NamespaceMode_NODE ||
		n.Ipc != runtimeapi.NamespaceMode_POD {
		t.Errorf("namespaces %v, want the node's network and processes", n)
	}
	if len(config.PortMappings) > 0 || config.Hostname != "" {
		t.Errorf("ports %v and host name %q for a pod on the node's network", config.PortMappings, config.Hostname)
	}
}

// The same trouble has the same words, whatever the runtime calls the container this time.
func TestErrorText(t *testing.T) {
	id, digest := strings.Repeat("0af9", 16), "sha256:"+strings.Repeat("b", 64)
	err := grpcstatus.Error(codes.Unknown, `failed to generate container "`+id+`" spec: image `+digest+` of `+id+` is bad`)
	if got, want := ErrorText(err), `failed to generate container "ID" spec: image `+digest+` of ID is bad`; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// The file's first line is what programs know it by.
func TestHostsFile(t *testing.T) {
	r, pod := testRuntime(t), testPod()
	for header, hostNetwork := range map[string]bool{"# Kubernetes-managed hosts file.": false,
		"# Kubernetes-managed hosts file (host network).": true} {
		pod.Spec.HostNetwork = hostNetwork
		path, err := r.cfg.DNS.WriteHosts(r.podDir(pod.UID), pod, []string{"10.0.0.1"})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if first, _, _ := strings.Cut(string(text), "\n"); err != nil || first != header {
			t.Errorf("the file begins with %q (%v), want %q", first, err, header)
		}
	}
}

// On a disk that is full the running containers of the pod keep what they had.
func TestHostsFileOnAFullDisk(t *testing.T) {
	needs.Root(t, "mounting needs root")
	r, pod := testRuntime(t), testPod()
	if err := os.MkdirAll(r.cfg.PodsRoot, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", r.cfg.PodsRoot, "tmpfs", 0, "size=65536"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(r.cfg.PodsRoot, 0); err != nil {
			t.Error(err)
		}
	})
	path, err := r.cfg.DNS.WriteHosts(r.podDir(pod.UID), pod, []string{"10.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	full := os.WriteFile(filepath.Join(r.cfg.PodsRoot, "full"), make([]byte, 1<<20), 0o600)
	if !errors.Is(full, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", full)
	}
	if _, err := r.cfg.DNS.WriteHosts(r.podDir(pod.UID), pod, []string{"10.0.0.1"}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	for i := range 500 {
		pod.Spec.HostAliases = append(pod.Spec.HostAliases,
			corev1.HostAlias{IP: "10.0.0.2", Hostnames: []string{fmt.Sprintf("alias-%d", i)}})
	}
	if _, err := r.cfg.DNS.WriteHosts(r.podDir(pod.UID), pod, []string{"10.0.0.9"}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v, want that the disk is full", err)
	}
	after, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(before), string(after)); diff != "" {
		t.Errorf("the file became another one (-before +after):\n%s", diff)
	}
	pod.Spec.HostAliases = nil
	if _, err := r.cfg.DNS.WriteHosts(r.podDir(pod.UID), pod, nil); err != nil {
		t.Error(err)
	}
	shorter, err := os.ReadFile(path)
	if err != nil || len(shorter) >= len(before) || !strings.HasPrefix(string(before), string(shorter)) {
		t.Errorf("without an address the file is %q (%v)", shorter, err)
	}
}

// Which processors are slowed down for their heat is not for containers to see.
func TestThrottling(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/cache", "cpu12/thermal_throttle",
		"cpufreq/thermal_throttle"} {
		if err := os.MkdirAll(filepath.Join(root, "sys/devices/system/cpu", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{root + "/sys/devices/system/cpu/cpu0/thermal_throttle",
		root + "/sys/devices/system/cpu/cpu12/thermal_throttle"}
	if diff := cmp.Diff(want, throttled(root)); diff != "" {
		t.Errorf("masked paths (-want +got):\n%s", diff)
	}
}

func TestContainerConfig(t *testing.T) {
	r := testRuntime(t)
	pod := testPod()
	c := &pod.Spec.Containers[0]
	c.Lifecycle = &corev1.Lifecycle{StopSignal: ptr(corev1.Signal("SIGUSR1"))}
	spec := &ContainerSpec{Pod: pod, Container: c, Attempt: 2, Image: Image{Ref: "sha256:1", User: "daemon"},
		Command: []string{"run"},
		Env:     []EnvVar{{"A", "1"}},
		Mounts: []Mount{{ContainerPath: "/data", HostPath: "/srv", ReadOnly: true,
			Propagation: corev1.MountPropagationHostToContainer}}}
	config, err := r.containerConfig(spec)
	if err != nil {
		t.Fatal(err)
	}
	if config.LogPath != "c/2.log" || config.Metadata.Attempt != 2 ||
		config.Annotations["io.kubernetes.container.restartCount"] != "2" {
		t.Errorf("log %s, attempt %d, annotations %v; want all to tell of the second restart", config.LogPath,
			config.Metadata.Attempt, config.Annotations)
	}
	if config.StopSignal != runtimeapi.Signal_SIGNAL_SIGUSR1 {
		t.Errorf("stop signal %v", config.StopSignal)
	}
	var mounts []string
	for _, m := range config.Mounts {
		mounts = append(mounts, m.ContainerPath+" "+strings.TrimPrefix(m.HostPath,
			r.cfg.PodsRoot)+" "+m.Propagation.String())
	}
	want := []string{"/data /srv PROPAGATION_HOST_TO_CONTAINER", "/etc/hosts /u1/etc-hosts PROPAGATION_PRIVATE",
		"/dev/termination-log /u1/containers/c/2 PROPAGATION_PRIVATE"}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if got := config.Linux.SecurityContext; got.RunAsUsername != "daemon" || len(got.MaskedPaths) == 0 ||
		got.Seccomp.ProfileType != runtimeapi.SecurityProfile_Unconfined {
		t.Errorf("security %v, want the image's user, masked paths, and no seccomp profile where none is asked for",
			got)
	}
}

func TestSeccompDefault(t *testing.T) {
	for name, c := range map[string]struct {
		on         bool
		privileged bool
		asks       corev1.SeccompProfileType
		want       runtimeapi.SecurityProfile_ProfileType
	}{
		"off":            {false, false, "", runtimeapi.SecurityProfile_Unconfined},
		"on":             {true, false, "", runtimeapi.SecurityProfile_RuntimeDefault},
		"on, privileged": {true, true, "", runtimeapi.SecurityProfile_Unconfined},
		"on, asks for none": {true, false, corev1.SeccompProfileTypeUnconfined,
			runtimeapi.SecurityProfile_Unconfined},
		"off, asks for default": {false, false, corev1.SeccompProfileTypeRuntimeDefault,
			runtimeapi.SecurityProfile_RuntimeDefault},
	} {
		r, pod := testRuntime(t), testPod()
		r.cfg.SeccompDefault = c.on
		container := &pod.Spec.Containers[0]
		container.SecurityContext = &corev1.SecurityContext{Privileged: &c.privileged}
		if c.asks != "" {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: c.asks}}
		}
		got, err := r.securityContext(&ContainerSpec{Pod: pod, Container: container})
		if err != nil || got.Seccomp.ProfileType != c.want {
			t.Errorf("%s: %v, %v, want %v", name, got.GetSeccomp(), err, c.want)
		}
	}
}

func TestUsers(t *testing.T) {
	tests := []struct {
		name      string
		image     Image
		pod       *corev1.PodSecurityContext
		container *corev1.SecurityContext
		user      string
		err       string
	}{
		{"the image's number", Image{UID: ptr(int64(7))}, nil, nil, "7", ""},
		{"the pod's", Image{UID: ptr(int64(7))}, &corev1.PodSecurityContext{RunAsUser: ptr(int64(8))}, nil, "8", ""},
		{"the container's", Image{}, &corev1.PodSecurityContext{RunAsUser: ptr(int64(8))},
			&corev1.SecurityContext{RunAsUser: ptr(int64(9))}, "9", ""},
		{"not root", Image{UID: ptr(int64(7))}, &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil, "7", ""},
		{"an image that is root", Image{UID: ptr(int64(0))}, &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)}, nil,
			"",
			`container has runAsNonRoot and image will run as root (pod: "p_ns(u1)", container: c)`},
		{"an image that names its user", Image{User: "daemon"}, &corev1.PodSecurityContext{RunAsNonRoot: ptr(true)},
			nil, "",
			`container has runAsNonRoot and image has non-numeric user (daemon), cannot verify user is non-root (pod: "p_ns(u1)", container: c)`},
		{"a container that contradicts itself", Image{}, nil,
			&corev1.SecurityContext{RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(0))}, "",
			`container's runAsUser breaks non-root policy (pod: "p_ns(u1)", container: c)`},
		{"a container that may be root in a pod that may not", Image{},
			&corev1.PodSecurityContext{RunAsNonRoot: ptr(true)},
			&corev1.SecurityContext{RunAsNonRoot: ptr(false)}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := testPod()
			pod.Spec.SecurityContext, pod.Spec.Containers[0].SecurityContext = tt.pod, tt.container
			got, err := testRuntime(t).securityContext(&ContainerSpec{Pod: pod, Container: &pod.Spec.Containers[0],
				Image: tt.image})
			var config *ConfigError
			if tt.err != "" {
				if !errors.As(err, &config) || err.Error() != tt.err {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			user := ""
			if got.RunAsUser != nil {
				user = resource.NewQuantity(got.RunAsUser.Value, resource.DecimalSI).String()
			}
			if user != tt.user {
				t.Errorf("user %q, want %q", user, tt.user)
			}
		})
	}
}

func TestResources(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		if cpu != "" {
			out[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			out[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return out
	}
	tests := []struct {
		name             string
		requests, limits corev1.ResourceList
		priority         int32
		lowest           int64
		want             [5]int64 // shares, quota, period, memory, OOM score
	}{
		{"nothing", nil, nil, 0, -1000, [5]int64{2, 0, 0, 0, 1000}},
		{"requests", list("500m", "250Mi"), nil, 0, -1000, [5]int64{512, 0, 0, 0, 750}},
		{"limits that requests equal", list("2", "100Mi"), list("2", "100Mi"), 0, -1000,
			[5]int64{2048, 200000, 100000, 100 << 20, -997}},
		{"a share too small to count", list("100m", "1Ki"), nil, 0, -1000, [5]int64{102, 0, 0, 0, 999}},
		{"all the memory", list("", "2000Mi"), nil, 0, -1000, [5]int64{2, 0, 0, 0, 3}},
		{"a tiny limit", list("1m", ""), list("1m", ""), 0, -1000, [5]int64{2, 1000, 100000, 0, 999}},
		{"a pod that the node needs", nil, nil, 2_000_001_000, -1000, [5]int64{2, 0, 0, 0, -997}},
		{"a pod that the cluster needs", nil, nil, 2_000_000_000, -1000, [5]int64{2, 0, 0, 0, 1000}},
		{"guaranteed, by an agent that may not lower scores", list("1", "1Mi"), list("1", "1Mi"), 0, 0,
			[5]int64{1024, 100000, 100000, 1 << 20, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := testRuntime(t)
			r.cfg.MinOOMScore = tt.lowest
			pod := testPod()
			pod.Spec.Priority = &tt.priority
			pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: tt.requests, Limits: tt.limits}
			got := r.resources(pod, &pod.Spec.Containers[0])
			if have := [5]int64{got.CpuShares, got.CpuQuota, got.CpuPeriod, got.MemoryLimitInBytes,
				got.OomScoreAdj}; have != tt.want {
				t.Errorf("shares, quota, period, memory, score are %v, want %v", have, tt.want)
			}
		})
	}
}

// A sidecar is not killed before a container that may depend on it, and what the pod asks for as a whole counts for
// each.
func TestOOMScores(t *testing.T) {
	r, pod := testRuntime(t), testPod()
	asks := func(name, memory string) corev1.Container {
		return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}}}
	}
	small, large := asks("small", "10Mi"), asks("large", "700Mi")
	small.RestartPolicy, large.RestartPolicy = ptr(corev1.ContainerRestartPolicyAlways), ptr(corev1.ContainerRestartPolicyAlways)
	pod.Spec.InitContainers = []corev1.Container{small, large, asks("init", "20Mi")}
	pod.Spec.Containers = []corev1.Container{asks("a", "500Mi"), asks("b", "200Mi")}
	scores := func() (out []int64) {
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				out = append(out, r.resources(pod, &list[i]).OomScoreAdj)
			}
		}
		return out
	}
	if diff := cmp.Diff([]int64{800, 300, 980, 500, 800}, scores()); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1810Mi")}}
	if diff := cmp.Diff([]int64{700, 200, 880, 400, 700}, scores()); diff != "" {
		t.Errorf("scores with 400Mi more for the pod (-want +got):\n%s", diff)
	}
}

// What the pod may use as a whole bounds its cgroup, and each container that has no limit of its own.
func TestPodLevelResources(t *testing.T) {
	r, pod := testRuntime(t), testPod()
	own := corev1.Container{Name: "own", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("10Mi")}}}
	pod.Spec.Containers = append(pod.Spec.Containers, own)
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"),
		corev1.ResourceMemory: resource.MustParse("100Mi")}
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts, Limits: amounts}
	if got, want := r.PodCgroup(pod), "/everynode/n1/kubepods/podu1"; got != want {
		t.Errorf("cgroup %s, want the %s of a guaranteed pod", got, want)
	}
	for i, want := range []int64{100 << 20, 10 << 20} {
		got := r.resources(pod, &pod.Spec.Containers[i])
		if got.MemoryLimitInBytes != want || got.CpuQuota != 50000 {
			t.Errorf("container %d has a limit of %d bytes and a quota of %d, want %d and 50000", i,
				got.MemoryLimitInBytes, got.CpuQuota, want)
		}
	}
}

func TestCapability(t *testing.T) {
	for text, want := range map[string]bool{
		"Name:\tx\nCapEff:\t000001ffffffffff\n": true, "CapEff:\t00000000feffffff\n": false, "": false,
	} {
		if got := hasCapability(text, capSysResource); got != want {
			t.Errorf("CAP_SYS_RESOURCE in %q: %t, want %t", text, got, want)
		}
	}
}
