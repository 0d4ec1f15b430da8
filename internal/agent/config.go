package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/join"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/agent/ownaddress"
	"github.com/everynode/everynode/internal/agent/podadmission"
)

// Config says which node the agent is and where it finds things. Fields without a stated default must be set.
type Config struct {
	// Server is the API server's URL, https://HOST:PORT. Token is a join token; a node that joined before needs none.
	Server, Token string
	// NodeName is the node's name, and the host name of pods on its network. The default is the machine's host name.
	NodeName string
	// NodeIPs are the node's addresses, the primary one first; the default is the one with which this machine speaks to the server, looked up
	// again and again; the last one counts while there is no network.
	NodeIPs []net.IP
	// DataDir is the agent's folder: its certificates and its pods' files.
	DataDir string
	// LogDir is the folder of the logs, in pods/ and containers/; the default is /var/log.
	LogDir string
	// KubeletDir is where programs that extend a node look for it, such as device plugins; the default is /var/lib/kubelet.
	KubeletDir string
	// ManifestPath is the folder of the static pods' manifests, or one manifest; the default is manifests in DataDir.
	ManifestPath string
	// RuntimeEndpoint is the runtime's socket; the default is unix:///run/containerd/containerd.sock.
	RuntimeEndpoint string
	// CgroupDriver is who makes cgroups, cgroupfs or systemd, as the container runtime must say, too; by default it alone says so.
	CgroupDriver string
	// CgroupRoot is the cgroup for all pods of the node; the default is /everynode/NODE, and with systemd the machine's own.
	CgroupRoot string
	// Labels are set on the node; Taints are set when it registers.
	Labels map[string]string
	Taints []corev1.Taint
	// EvictionHard says what must be free on the node before it ends pods, as eviction.Parse reads it; the default is
	// eviction.Default.
	EvictionHard string
	// EvictionSoft, EvictionSoftGrace and EvictionReclaim go with it, as eviction.Texts has them; by default there are none.
	EvictionSoft, EvictionSoftGrace, EvictionReclaim string
	// EvictionMaxPodGrace is how many seconds the containers of pods have at most that EvictionSoft ends.
	EvictionMaxPodGrace int64
	// PressureTransition is how long a pressure must be over before the node says so; the default is eviction.DefaultTransition.
	PressureTransition time.Duration
	// ImageGCHigh and ImageGCLow are percentages of the images' disk: above High images that nobody uses are removed, down to Low.
	// The defaults are 85 and 80; 100 for High switches it off.
	ImageGCHigh, ImageGCLow int
	// ImageMinAge is how old an image must be before it is removed; the default is two minutes.
	ImageMinAge time.Duration
	// ImageMaxAge is after how long without use an image is removed whatever the disk is like; 0 for never.
	ImageMaxAge time.Duration
	// MaxPods is how many pods the node takes; the default is 110.
	MaxPods int64
	// SystemReserved is what of the node's cpu, memory and ephemeral-storage pods cannot request, as amounts such as 500m and 1Gi.
	SystemReserved map[string]string
	// KubeReserved is what pods cannot request besides, for the agent and the container runtime.
	KubeReserved map[string]string
	// MaxPulls is how many images are pulled at one time; the default is five from each registry.
	MaxPulls int
	// ProviderConfig is the file that says which programs, in the folder ProviderDir, say with which credentials images are pulled; both
	// empty for none.
	ProviderConfig, ProviderDir string
	// SeccompDefault gives containers the runtime's profile of system calls that ask for none and are not privileged.
	SeccompDefault bool
	// FailSwapOn and FailCgroupV1 refuse to start on a machine that swaps, or that has cgroups of version 1.
	FailSwapOn, FailCgroupV1 bool
	// Verbosity is how much is logged; the agent only tells it.
	Verbosity int
	// LogMaxSize is the size at which a container's log is rotated, such as 10Mi, LogMaxFiles how many files of it there are at most; the
	// defaults are 10Mi and 5.
	LogMaxSize  string
	LogMaxFiles int
	// PodPIDs is how many processes and threads a pod may have; 0 for no limit.
	PodPIDs int64
	// AllowedUnsafeSysctls are kernel parameters that pods may set besides the safe ones, each a name or a prefix with * behind it.
	AllowedUnsafeSysctls []string
	// ShutdownGrace is how long pods have to end when the agent is told to; ShutdownGraceCritical is how much of that is kept for
	// critical pods. Without ShutdownGrace, and where only the agent ends and not the machine, containers run on.
	ShutdownGrace, ShutdownGraceCritical time.Duration
	// ClusterDNS are the addresses of the cluster's name servers; none means that pods resolve as the node does.
	ClusterDNS []string
	// ClusterDomain is the cluster's domain; the default is cluster.local.
	ClusterDomain string
	// ForeignDNS leaves answering at ClusterDNS to somebody else; otherwise the node itself answers its pods there.
	ForeignDNS bool
	// ResolvConf is the node's resolver file; the default is /etc/resolv.conf, or systemd-resolved's own where that
	// file names only the machine itself, which pods cannot reach.
	ResolvConf string
	// ForeignServices leaves it to somebody else that Services lead to their endpoints, such as a service proxy's daemon.
	ForeignServices bool
	// ServiceCIDR is the network that addresses of Services are from; packets to those that no Service has are dropped. The default
	// is to let them go.
	ServiceCIDR netip.Prefix
	// ProxyHealthAddress and ProxyMetricsAddress are where the health and the metrics of the service proxy are served, HOST:PORT;
	// nowhere if they are empty.
	ProxyHealthAddress, ProxyMetricsAddress string
	// ForeignNetwork leaves the CNI configuration and the routes to pods to somebody else, such as a network daemon.
	ForeignNetwork bool
	// NetworkMode is how packets get to pods on other nodes otherwise; the default is network.Auto.
	NetworkMode network.Mode
	// RememberSecrets says what of Secrets is kept for a start without a control plane: RememberNoSecrets, which is the default,
	// RememberPlain, or the path of a file with the key with which all that is remembered of pods is encrypted.
	RememberSecrets string
	// Port is where the agent serves logs, exec and metrics, at every address of the machine; the default is 10250.
	Port int32
	// HealthAddress is where it tells of its health to whoever asks, HOST:PORT; nowhere if it is empty.
	HealthAddress string
	// Version is the version of the agent that the node reports, such as v1.37.2.
	Version string

	rules      eviction.Rules
	reserved   corev1.ResourceList
	logMaxSize int64

	// trustInterval is how often the server is asked which authorities count; the default is join's.
	trustInterval time.Duration
}

const defaultPort = 10250

// addressFile is the name of the file in the data folder that keeps the node's last address.
const addressFile = "node-address"

// complete checks the configuration and fills in defaults.
func (c Config) complete() (Config, error) {
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("find the machine's host name, to name the node: %w", err)
		}
		c.NodeName = nameOf(name)
	}
	if msgs := validation.IsDNS1123Subdomain(c.NodeName); len(msgs) > 0 {
		return c, fmt.Errorf("node name %q: %s", c.NodeName, msgs[0])
	}
	switch {
	case c.Server == "":
		return c, errors.New("the agent needs the API server's URL; give it as --server https://HOST:PORT")
	case c.DataDir == "":
		return c, errors.New("the agent needs a data folder")
	}
	setDefault(&c.LogDir, "/var/log")
	setDefault(&c.KubeletDir, "/var/lib/kubelet")
	setDefault(&c.RuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	setDefault(&c.ClusterDomain, "cluster.local")
	setDefault(&c.ResolvConf, findResolvConf("/"))
	for _, text := range c.ClusterDNS {
		if _, err := netip.ParseAddr(text); err != nil {
			return c, fmt.Errorf("the address %q of the cluster's name server is not an IP address", text)
		}
	}
	if c.Port == 0 {
		c.Port = defaultPort
	}
	if err := c.completeRoom(); err != nil {
		return c, err
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("find the data folder %s: %w", c.DataDir, err)
	}
	c.DataDir = dir
	setDefault(&c.ManifestPath, filepath.Join(dir, "manifests"))
	return c, c.checkRemember()
}

// nameOf is the name of the node on the machine with that host name, which may have capitals; names of nodes have none.
func nameOf(hostname string) string { return strings.ToLower(strings.TrimSpace(hostname)) }

// completeRoom checks what says how much of the node pods may use.
func (c *Config) completeRoom() error {
	setDefault(&c.EvictionHard, eviction.Default)
	var err error
	texts := eviction.Texts{Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGrace, Reclaim: c.EvictionReclaim}
	if c.rules, err = eviction.ParseRules(texts); err != nil {
		return err
	}
	if c.EvictionMaxPodGrace < 0 || c.PressureTransition < 0 {
		return errors.New("--eviction-max-pod-grace-period and --eviction-pressure-transition-period cannot be negative")
	}
	if c.PressureTransition == 0 {
		c.PressureTransition = eviction.DefaultTransition
	}
	c.rules.MaxPodGrace, c.rules.Transition = c.EvictionMaxPodGrace, c.PressureTransition
	if c.ShutdownGraceCritical < 0 || c.ShutdownGraceCritical > c.ShutdownGrace {
		return fmt.Errorf("--shutdown-grace-period-critical-pods %s is not between 0 and --shutdown-grace-period %s",
			c.ShutdownGraceCritical, c.ShutdownGrace)
	}
	if err := errors.Join(podadmission.CheckSysctls(c.AllowedUnsafeSysctls), c.completeReserve()); err != nil {
		return err
	}
	return c.completeImages()
}

// completeImages checks what says which images are removed.
func (c *Config) completeImages() error {
	if c.ImageGCHigh == 0 {
		c.ImageGCHigh = 85
	}
	if c.ImageGCLow == 0 {
		c.ImageGCLow = min(80, c.ImageGCHigh)
	}
	if c.ImageMinAge < 0 || c.ImageMaxAge < 0 || c.ImageMaxAge > 0 && c.ImageMaxAge <= c.ImageMinAge {
		return fmt.Errorf("--image-maximum-gc-age %s must be longer than --minimum-image-ttl-duration %s, or 0 for never; neither can be negative", c.ImageMaxAge, c.ImageMinAge)
	}
	if c.ImageMinAge == 0 {
		c.ImageMinAge = 2 * time.Minute
	}
	if c.ImageGCLow < 0 || c.ImageGCLow > c.ImageGCHigh || c.ImageGCHigh > 100 {
		return fmt.Errorf("--image-gc-low-threshold %d and --image-gc-high-threshold %d: percentages are needed, the first not above the second",
			c.ImageGCLow, c.ImageGCHigh)
	}
	return nil
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// addresses are the node's, as they were last until Look or Run is called.
func (c Config) addresses(ctx context.Context) (*ownaddress.Addresses, error) {
	return ownaddress.New(ctx, ownaddress.Config{Fixed: c.NodeIPs, Server: c.Server, File: filepath.Join(c.DataDir, addressFile)})
}

// findAddress looks where the node is. One that has joined before goes on without an answer: with the address that it had last,
// or without one until there is one.
func (c Config) findAddress(ctx context.Context, addresses *ownaddress.Addresses) error {
	err := addresses.Look(ctx)
	if err != nil && len(addresses.List()) == 0 && !join.Joined(c.DataDir) {
		return err
	}
	return nil
}
