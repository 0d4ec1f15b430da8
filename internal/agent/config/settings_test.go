package config

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/eviction"
)

const kubeletHead = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// load has a configuration, with a few values as flags give them by default, take a file. Given are the flags that
// were given.
func load(t *testing.T, text string, given ...string) (Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	c := Config{Eviction: Eviction{EvictionHard: eviction.Default}, Pods: Pods{MaxPods: 110}, Node: Node{Port: 10250, HealthAddress: DefaultHealthAddress}, Names: Names{ClusterDNS: []string{"10.96.0.10"}}}
	before := c
	err := c.LoadFile(path, func(flag string) bool { return slices.Contains(given, flag) })
	if err != nil && !reflect.DeepEqual(c, before) {
		t.Errorf("after %v the configuration is another one", err)
	}
	return c, err
}

func TestFileIsTaken(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		given []string
		is    func(Config) bool
	}{
		"nothing":          {"", nil, func(c Config) bool { return c.MaxPods == 110 && c.EvictionHard == eviction.Default }},
		"max-pods":         {"maxPods: 42\n", nil, func(c Config) bool { return c.MaxPods == 42 }},
		"a flag wins":      {"maxPods: 42\nport: 10999\n", []string{"max-pods"}, func(c Config) bool { return c.MaxPods == 110 && c.Port == 10999 }},
		"zero is nothing":  {"maxPods: 0\nsyncFrequency: 0s\n", nil, func(c Config) bool { return c.MaxPods == 110 }},
		"no limit of PIDs": {"podPidsLimit: -1\n", nil, func(c Config) bool { return c.PodPIDs == 0 }},
		"reserved": {"systemReserved: {cpu: 500m}\nkubeReserved: {cpu: 250m, memory: 1Gi}\n", nil, func(c Config) bool {
			return c.completeReserve() == nil && c.Reserved.Cpu().MilliValue() == 750 && c.Reserved.Memory().Value() == 1<<30
		}},
		"thresholds": {"evictionHard: {memory.available: 200Mi, nodefs.available: 5%}\n", nil,
			func(c Config) bool { return c.EvictionHard == "memory.available<200Mi,nodefs.available<5%" }},
		"no thresholds":    {"evictionHard: {}\n", nil, func(c Config) bool { return c.EvictionHard == eviction.None }},
		"thresholds of 0%": {"evictionHard: {memory.available: 0%}\n", nil, func(c Config) bool { return c.EvictionHard == eviction.None }},
		"thresholds, merged": {"evictionHard: {memory.available: 200Mi}\nmergeDefaultEvictionSettings: true\n", nil, func(c Config) bool {
			return spread(c.EvictionHard, "<")["memory.available"] == "200Mi" && spread(c.EvictionHard, "<")["pid.available"] == "1%"
		}},
		"soft thresholds": {"evictionSoft: {memory.available: 300Mi}\nevictionSoftGracePeriod: {memory.available: 1m30s}\nevictionMinimumReclaim: {nodefs.available: 500Mi}\n", nil, func(c Config) bool {
			return c.completeRoom() == nil && c.Rules.SoftGrace["memory.available"] == 90*time.Second
		}},
		"no health":            {"healthzPort: 0\n", nil, func(c Config) bool { return c.HealthAddress == "" }},
		"health elsewhere":     {"healthzBindAddress: 0.0.0.0\n", nil, func(c Config) bool { return c.HealthAddress == "0.0.0.0:10248" }},
		"taints":               {"registerWithTaints: [{key: a, effect: NoSchedule}]\n", nil, func(c Config) bool { return len(c.Taints) == 1 && c.Taints[0].Key == "a" }},
		"one pull at a time":   {"serializeImagePulls: true\n", nil, func(c Config) bool { return c.MaxPulls == 1 }},
		"seven pulls":          {"serializeImagePulls: false\nmaxParallelImagePulls: 7\n", nil, func(c Config) bool { return c.MaxPulls == 7 }},
		"verbosity":            {"logging: {verbosity: 4}\n", nil, func(c Config) bool { return c.Verbosity == 4 }},
		"a cgroup driver":      {"cgroupDriver: systemd\n", nil, func(c Config) bool { return c.CgroupDriver == "systemd" }},
		"what is so anyway":    {"authorization: {mode: Webhook}\nrotateCertificates: true\nmemorySwap: {swapBehavior: NoSwap}\nsyncFrequency: 60s\n", nil, func(Config) bool { return true }},
		"a kubelet's defaults": {"registryPullQPS: 5\nfileCheckFrequency: 20s\nkubeAPIBurst: 100\n", nil, func(Config) bool { return true }},
		"times": {"shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 10s\n", nil, func(c Config) bool {
			return c.ShutdownGrace == time.Minute && c.ShutdownGraceCritical == 10*time.Second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := load(t, kubeletHead+c.text, c.given...)
			if err != nil || !c.is(got) {
				t.Errorf("%v, %+v", err, got)
			}
		})
	}
}

func TestPathsBesideTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.yaml")
	must(t, os.WriteFile(path, []byte(kubeletHead+"staticPodPath: manifests\nresolvConf: /etc/other\n"), 0o600))
	var c Config
	must(t, c.LoadFile(path, func(string) bool { return false }))
	if c.ManifestPath != filepath.Join(filepath.Dir(path), "manifests") || c.ResolvConf != "/etc/other" {
		t.Errorf("the paths are %q and %q", c.ManifestPath, c.ResolvConf)
	}
}

func TestFileIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"cgroupDriver: mine\n":                         `cgroupDriver "mine": cgroups are made by cgroupfs or by systemd`,
		"cpuManagerPolicy: static\nreadOnlyPort: 10\n": `cannot be had: readOnlyPort 10 (leave it out: everybody who asks the node's API has a certificate or a token); cpuManagerPolicy "static"`,
		"authentication: {anonymous: {enabled: true}}": `authentication.anonymous.enabled true (leave it out or write false`,
		"maxpods: 3\n":                                          `unknown field "maxpods"`,
		"maxPods: 3\nmaxPods: 4\n":                              `"maxPods" already set`,
		"maxPods: many\n":                                       `maxPods`,
		"featureGates: {A: true}\n":                             "featureGates",
		"resolvConf: ''\n":                                      `resolvConf ""`,
		"healthzPort: 70000\n":                                  "healthzPort 70000 is not a port",
		"healthzBindAddress: here\n":                            "is not an IP address",
		"imageGCHighThresholdPercent: 0\n":                      "imageGCHighThresholdPercent 0 is not between 1 and 100",
		"containerLogMaxFiles: 1\n":                             "containerLogMaxFiles 1 is not between 2",
		"registerWithTaints: [{key: a, effect: Now}]":           "registerWithTaints",
		"imageServiceEndpoint: unix:///other\n":                 "imageServiceEndpoint",
		"maxParallelImagePulls: 0\n":                            "maxParallelImagePulls 0",
		"serializeImagePulls: true\nmaxParallelImagePulls: 3\n": "leave one of them out",
		"---\n" + kubeletHead:                                   "holds several documents",
	} {
		_, err := load(t, kubeletHead+text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "kubelet.yaml: ") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := load(t, ""); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := load(t, "apiVersion: v1\nkind: Pod\n"); err == nil || !strings.Contains(err.Error(), "can only hold a KubeletConfiguration") {
		t.Errorf("another kind: %v", err)
	}
	if c, err := load(t, kubeletHead+"maxPods: -3\n"); err != nil || c.completeReserve() == nil {
		t.Errorf("a negative number of pods is taken (%v)", err)
	}
}

// What the node says of its configuration is a file with which another node is the same.
func TestConfigzIsAFile(t *testing.T) {
	from := Config{
		Node:     Node{Server: "https://127.0.0.1:6443", NodeName: "n", NodeIPs: []net.IP{{127, 0, 0, 1}}, Taints: []corev1.Taint{{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute}}, Verbosity: 2, FailSwapOn: true, Port: 10999, HealthAddress: "127.0.0.2:10999"},
		Folders:  Folders{DataDir: t.TempDir(), ManifestPath: "/m"},
		Runtime:  Runtime{RuntimeEndpoint: "unix:///r", CgroupDriver: "systemd", CgroupRoot: "/c", SeccompDefault: true, PodPIDs: 9, LogMaxSize: "1Mi", LogMaxFiles: 3},
		Names:    Names{ClusterDomain: "c.local", ClusterDNS: []string{"10.0.0.1"}, ResolvConf: "/etc/r"},
		Pods:     Pods{MaxPods: 7, SystemReserved: map[string]string{"cpu": "1"}, KubeReserved: map[string]string{"memory": "1Gi"}, AllowedUnsafeSysctls: []string{"kernel.msg*"}, ShutdownGrace: time.Minute, ShutdownGraceCritical: time.Second},
		Images:   Images{ImageMinAge: time.Hour, ImageMaxAge: 100 * time.Hour, ImageGCHigh: 70, ImageGCLow: 60, MaxPulls: 3},
		Eviction: Eviction{EvictionHard: "memory.available<200Mi,nodefs.available<5%", EvictionSoft: "memory.available<300Mi", EvictionSoftGrace: "memory.available=1m", EvictionReclaim: "nodefs.available=1Gi", EvictionMaxPodGrace: 30, PressureTransition: time.Minute},
	}
	for name, change := range map[string]func(*Config){
		"everything is set": func(*Config) {},
		"nothing is kept":   func(c *Config) { c.EvictionHard, c.HealthAddress, c.MaxPulls, c.PodPIDs = eviction.None, "", 1, 0 },
	} {
		from := from
		change(&from)
		text, err := json.Marshal(from.Configz())
		must(t, err)
		var page struct {
			Kubeletconfig json.RawMessage `json:"kubeletconfig"`
		}
		must(t, json.Unmarshal(text, &page))
		got, err := load(t, string(page.Kubeletconfig))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, page.Kubeletconfig)
		}
		// What a kubelet has no words for.
		got.Server, got.NodeName, got.DataDir, got.NodeIPs = from.Server, from.NodeName, from.DataDir, from.NodeIPs
		if !reflect.DeepEqual(got, from) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, from)
		}
	}
}

// kubeadm is what kubeadm writes.
const kubeadm = kubeletHead + `authentication:
  anonymous: {enabled: false}
  webhook: {cacheTTL: 0s, enabled: true}
  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}
authorization:
  mode: Webhook
  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}
cgroupDriver: systemd
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json: {infoBufferSize: "0"}
    text: {infoBufferSize: "0"}
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`

func TestFileOfKubeadm(t *testing.T) {
	_, err := load(t, kubeadm)
	if err == nil || strings.Contains(err.Error(), ";") || !strings.Contains(err.Error(), "authentication.x509.clientCAFile") {
		t.Errorf("of kubeadm's file %v, and want the authority refused alone", err)
	}
	mended := strings.Replace(kubeadm, "  x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}\n", "", 1)
	if c, err := load(t, mended); err != nil || c.ManifestPath != "/etc/kubernetes/manifests" || c.CgroupDriver != "systemd" {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestMachinesThatAreRefused(t *testing.T) {
	root := t.TempDir()
	must(t, errors.Join(os.MkdirAll(filepath.Join(root, "proc"), 0o755), os.MkdirAll(filepath.Join(root, "sys/fs/cgroup"), 0o755)))
	both := Config{Node: Node{FailSwapOn: true, FailCgroupV1: true}}
	must(t, (&Config{}).CheckMachine(root))
	if err := both.CheckMachine(root); err == nil || !strings.Contains(err.Error(), "cgroups of version 1") {
		t.Errorf("version 1: %v", err)
	}
	must(t, os.WriteFile(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(root, "proc/swaps"), []byte("Filename\tType\n"), 0o600))
	must(t, both.CheckMachine(root))
	must(t, os.WriteFile(filepath.Join(root, "proc/swaps"), []byte("Filename\tType\n/dev/sda2 partition 1 0 -2\n"), 0o600))
	if err := both.CheckMachine(root); err == nil || !strings.Contains(err.Error(), "swaps to /dev/sda2") {
		t.Errorf("swap: %v", err)
	}
}
