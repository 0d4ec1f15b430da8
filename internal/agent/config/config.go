package config

import (
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/network"
)

// Config says which node the agent is and where it finds things, in one part for each that is told of it. Fields
// without a stated default must be set.
type Config struct {
	Node
	Folders
	Runtime
	Pods
	Eviction
	Images
	Names
	Services
	Network
}

// Node says which node it is, and to which cluster it belongs.
type Node struct {
	// Server is the API server's URL, https://HOST:PORT. Token is a join token; a node that joined before needs none.
	Server, Token string
	// NodeName is the node's name, and the host name of pods on its network. The default is the machine's host name.
	NodeName string
	// NodeIPs are the node's addresses, the primary one first; the default is the one with which this machine speaks to
	// the server, looked up again and again; the last one counts while there is no network.
	NodeIPs []net.IP
	// Labels are set on the node; Taints are set when it registers.
	Labels map[string]string
	Taints []corev1.Taint
	// FailSwapOn and FailCgroupV1 refuse to start on a machine that swaps, or that has cgroups of version 1.
	FailSwapOn, FailCgroupV1 bool
	// Verbosity is how much is logged; the agent only tells it.
	Verbosity int
	// Port is where the agent serves logs, exec and metrics, at every address of the machine; the default is 10250.
	Port int32
	// HealthAddress is where it tells of its health to whoever asks, HOST:PORT; nowhere if it is empty.
	HealthAddress string
	// Version is the version of the agent that the node reports, such as v1.37.2.
	Version string
	// TrustInterval is how often the server is asked which authorities count; the default is join's.
	TrustInterval time.Duration
}

// Folders are where the agent keeps things, and what it keeps.
type Folders struct {
	// DataDir is the agent's folder: its certificates and its pods' files.
	DataDir string
	// LogDir is the folder of the logs, in pods/ and containers/; the default is /var/log.
	LogDir string
	// KubeletDir is where programs that extend a node look for it, such as device plugins; the default is
	// /var/lib/kubelet.
	KubeletDir string
	// ManifestPath is the folder of the static pods' manifests, or one manifest; the default is manifests in DataDir.
	ManifestPath string
	// RememberSecrets says what of Secrets is kept for a start without a control plane: RememberNoSecrets, which is the
	// default, RememberPlain, or the path of a file with the key with which all that is remembered of pods is encrypted.
	RememberSecrets string
	// MemoryDir is a folder in memory, which the agent's end leaves and the machine's does not; the default is
	// /run/everynode.
	MemoryDir string
}

// Runtime is how containers are run.
type Runtime struct {
	// RuntimeEndpoint is the runtime's socket; the default is unix:///run/containerd/containerd.sock.
	RuntimeEndpoint string
	// CgroupDriver is who makes cgroups, cgroupfs or systemd, as the container runtime must say, too; by default it alone
	// says so.
	CgroupDriver string
	// CgroupRoot is the cgroup for all pods of the node; the default is /everynode/NODE, and with systemd the machine's
	// own.
	CgroupRoot string
	// SeccompDefault gives containers the runtime's profile of system calls that ask for none and are not privileged.
	SeccompDefault bool
	// LogMaxSize is the size at which a container's log is rotated, such as 10Mi, LogMaxFiles how many files of it there
	// are at most; the defaults are 10Mi and 5.
	LogMaxSize  string
	LogMaxFiles int
	// PodPIDs is how many processes and threads a pod may have; 0 for no limit.
	PodPIDs int64
	// LogMaxBytes is what LogMaxSize says; Complete reads it.
	LogMaxBytes int64
}

// Pods says what pods may have of the node, and how they leave it.
type Pods struct {
	// MaxPods is how many pods the node takes; the default is 110.
	MaxPods int64
	// SystemReserved is what of the node's cpu, memory and ephemeral-storage pods cannot request, as amounts such as 500m
	// and 1Gi.
	SystemReserved map[string]string
	// KubeReserved is what pods cannot request besides, for the agent and the container runtime.
	KubeReserved map[string]string
	// AllowedUnsafeSysctls are kernel parameters that pods may set besides the safe ones, each a name or a prefix with *
	// behind it.
	AllowedUnsafeSysctls []string
	// ShutdownGrace is how long pods have to end when the agent is told to; ShutdownGraceCritical is how much of that is
	// kept for critical pods. Without ShutdownGrace, and where only the agent ends and not the machine, containers run
	// on.
	ShutdownGrace, ShutdownGraceCritical time.Duration
	// Reserved is what SystemReserved and KubeReserved say together; Complete reads it.
	Reserved corev1.ResourceList
}

// Eviction says when pods must make room.
type Eviction struct {
	// EvictionHard says what must be free on the node before it ends pods, as eviction.Parse reads it; the default is
	// eviction.Default.
	EvictionHard string
	// EvictionSoft, EvictionSoftGrace and EvictionReclaim go with it, as eviction.Texts has them; by default there are
	// none.
	EvictionSoft, EvictionSoftGrace, EvictionReclaim string
	// EvictionMaxPodGrace is how many seconds the containers of pods have at most that EvictionSoft ends.
	EvictionMaxPodGrace int64
	// PressureTransition is how long pressure must be over before the node's condition says so; the default is
	// eviction.DefaultTransition.
	PressureTransition time.Duration
	// Rules are what EvictionHard and the others say; Complete reads them.
	Rules eviction.Rules
}

// Images says how images are pulled, and which are removed.
type Images struct {
	// ImageGCHigh and ImageGCLow are percentages of the images' disk: above High images that nobody uses are removed,
	// down to Low. The defaults are 85 and 80; 100 for High switches it off.
	ImageGCHigh, ImageGCLow int
	// ImageMinAge is how old an image must be before it is removed; the default is two minutes.
	ImageMinAge time.Duration
	// ImageMaxAge is after how long without use an image is removed, however full the disk is; 0 for never.
	ImageMaxAge time.Duration
	// MaxPulls is how many images are pulled at one time; the default is five from each registry.
	MaxPulls int
	// ProviderConfig is the file that says which programs, in the folder ProviderDir, say with which credentials images
	// are pulled; both empty for none.
	ProviderConfig, ProviderDir string
}

// Names is how pods resolve names.
type Names struct {
	// ClusterDNS are the addresses of the cluster's name servers; none means that pods resolve as the node does.
	ClusterDNS []string
	// ClusterDomain is the cluster's domain; the default is cluster.local.
	ClusterDomain string
	// ForeignDNS leaves answering at ClusterDNS to somebody else; otherwise the node itself answers its pods there.
	ForeignDNS bool
	// ResolvConf is the node's resolver file; the default is /etc/resolv.conf, or systemd-resolved's own where that
	// file names only the machine itself, which pods cannot reach.
	ResolvConf string
}

// Services is how Services lead to their endpoints.
type Services struct {
	// ForeignServices leaves it to somebody else that Services lead to their endpoints, such as a service proxy's daemon.
	ForeignServices bool
	// ServiceCIDR is the network that addresses of Services are from; packets to those that no Service has are dropped.
	// The default is to let them go.
	ServiceCIDR netip.Prefix
	// ProxyHealthAddress and ProxyMetricsAddress are where the health and the metrics of the service proxy are served,
	// HOST:PORT; nowhere if they are empty.
	ProxyHealthAddress, ProxyMetricsAddress string
}

// Network is how packets get to pods on other nodes.
type Network struct {
	// ForeignNetwork leaves the CNI configuration and the routes to pods to somebody else, such as a network daemon.
	ForeignNetwork bool
	// NetworkMode is how packets get to pods on other nodes otherwise; the default is network.Auto.
	NetworkMode network.Mode
}
