package cli

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/agent"
	agentconfig "github.com/everynode/everynode/internal/agent/config"
	"github.com/everynode/everynode/internal/agent/eviction"
	"github.com/everynode/everynode/internal/agent/network"
	"github.com/everynode/everynode/internal/cli/command"
	"github.com/everynode/everynode/internal/footprint"
	"github.com/everynode/everynode/internal/local"
	"github.com/everynode/everynode/internal/network/dns"
	"github.com/everynode/everynode/internal/version"
)

func newAgentCommand() *cobra.Command {
	var (
		c      agentconfig.Config
		ip     string
		taints []string
		pods   connections
		config string
	)
	cmd := &cobra.Command{
		Use:   "agent --server URL --token TOKEN",
		Short: "Run a node",
		Long: `Run a node: join the cluster, then run the pods that are assigned to this machine
in the container runtime, in the foreground.

A token comes from "everynode token create" on the control plane. It is needed
only the first time; after that the node has a certificate of its own.`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return fmt.Errorf("a node needs root, to mount volumes and set up networks; run it with sudo")
			}
			var err error
			c.NodeIPs, err = nodeIPs(ip)
			if err != nil {
				return err
			}
			c.Taints, err = parseTaints(taints)
			if err != nil {
				return err
			}
			if err := loadAgentFile(cmd, &c, config); err != nil {
				return err
			}
			if err := pods.apply(&c); err != nil {
				return err
			}
			c.Version = version.Kubernetes()
			if c.Token == "" {
				c.Token = os.Getenv(local.TokenVariable)
			}
			// It is for nobody whom the agent starts.
			if err := os.Unsetenv(local.TokenVariable); err != nil {
				return fmt.Errorf("take the join token out of the environment: %w", err)
			}
			a, err := agent.New(c)
			if err != nil {
				return err
			}
			if err := a.Withdraw(cmd.Context()); err != nil {
				return err
			}
			go footprint.Keep(cmd.Context(), footprint.Agent, clock.RealClock{})
			return a.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&config, "config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1); flags win "+
		"over it")
	f.StringVar(&c.Server, "server", "", "URL of the API, such as https://10.0.0.1:6443")
	f.StringVar(&c.Token, "token", "",
		"join token; the environment variable "+local.TokenVariable+" keeps it out of the process list")
	f.StringVar(&c.DataDir, "data-dir", "/var/lib/everynode-agent",
		"where the node keeps its certificates and its pods' files")
	f.StringVar(&c.ManifestPath, "pod-manifest-path", "",
		"folder of manifests of static pods, or one manifest (default DATA-DIR/manifests)")
	f.StringVar(&c.RuntimeEndpoint, "runtime-endpoint", "unix:///run/containerd/containerd.sock",
		"socket of the container runtime")
	f.StringVar(&c.CgroupRoot, "cgroup-root", "",
		"cgroup of the node's pods (default /everynode/NODE, and / where the container runtime leaves cgroups to systemd)")
	f.StringVar(&c.RememberSecrets, "remember-secrets", agentconfig.RememberNoSecrets,
		"what the node keeps of Secrets on its disk, for a start without a control plane: none, plain, or the path of a "+
			"file with a key that encrypts everything that it remembers of pods")
	addNodeFlags(cmd, &c, &ip, &taints)
	addRoomFlags(cmd, &c)
	f.Int32Var(&c.Port, "port", 10250, "port at which the node serves logs, exec and metrics to those who may have them")
	f.StringVar(&c.HealthAddress, "healthz-bind-address", "127.0.0.1:10248",
		"where the node reports its health, at /healthz; empty for nowhere")
	pods.addFlags(cmd, &c)
	return cmd
}

// addNodeFlags binds what the Node is called, where it is, and what it registers with.
func addNodeFlags(cmd *cobra.Command, c *agentconfig.Config, ip *string, taints *[]string) {
	f := cmd.Flags()
	f.StringVar(&c.NodeName, "node-name", "", "name of the node (default: the host name)")
	f.StringVar(ip, "node-ip", "",
		"address at which the cluster reaches this machine (default: the one with which it speaks to the server, looked up "+
			"every ten seconds)")
	f.StringToStringVar(&c.Labels, "node-labels", nil, "labels for the node, as key=value")
	f.StringSliceVar(taints, "register-with-taints", nil, "taints that the node registers with, as key=value:Effect")
}

// nodeIPs returns the node's only address; none for "".
func nodeIPs(given string) ([]net.IP, error) {
	if given == "" {
		return nil, nil
	}
	ip := net.ParseIP(given)
	if ip == nil {
		return nil, fmt.Errorf(
			"--node-ip %q is not an IP address; give the address at which the other machines reach this one", given)
	}
	return []net.IP{ip}, nil
}

// loadAgentFile takes what the configuration file says, if there is one, but for what was given by a flag.
func loadAgentFile(cmd *cobra.Command, c *agentconfig.Config, path string) error {
	level := cmd.Flags().Lookup("verbosity")
	verbosity, err := strconv.Atoi(level.Value.String())
	if err != nil {
		return fmt.Errorf("--verbosity: %w", err)
	}
	c.Verbosity = verbosity
	if path == "" {
		return nil
	}
	if err := c.LoadFile(path, cmd.Flags().Changed); err != nil {
		return err
	}
	return setVerbosity("logging.verbosity", c.Verbosity)
}

// connections say who connects pods: to each other, to Services, and to names.
type connections struct{ network, services, names, serviceCIDR string }

func (n *connections) addFlags(cmd *cobra.Command, c *agentconfig.Config) {
	f := cmd.Flags()
	f.StringVar(
		&n.network, "pod-network", "auto",
		"how pods reach those of other nodes: auto (host-gw to nodes on the same link, else vxlan), host-gw, vxlan, or "+
			"none (by a network daemon of yours)",
	)
	f.StringVar(
		&n.services, "service-proxy", "auto",
		"who makes Services lead to their pods: auto (Everynode) or none (a service proxy of yours)",
	)
	f.StringVar(
		&c.ProxyHealthAddress, "proxy-healthz-bind-address", "0.0.0.0:10256",
		"where load balancers ask for the health of the service proxy; empty for nowhere",
	)
	f.StringVar(
		&c.ProxyMetricsAddress, "proxy-metrics-bind-address", "127.0.0.1:10249",
		"where the metrics of the service proxy are served; empty for nowhere",
	)
	f.StringVar(
		&n.serviceCIDR, "service-cidr", "10.96.0.0/16",
		"the server's --service-cidr: packets to addresses in it that no Service has are dropped; empty lets them go",
	)
	f.StringSliceVar(
		&c.ClusterDNS, "cluster-dns", []string{"10.96.0.10"},
		"address of the cluster's name server: the tenth of the server's --service-cidr; empty lets pods resolve as the "+
			"node does",
	)
	f.StringVar(&c.ClusterDomain, "cluster-domain", dns.DefaultDomain, "domain of the cluster's names")
	f.StringVar(
		&n.names, "name-server", "auto",
		"who answers at --cluster-dns: auto (every node answers its own pods) or none (a name server of yours)",
	)
	f.StringVar(
		&c.ResolvConf, "resolv-conf", "",
		"resolver file with the name servers for all other names (default /etc/resolv.conf, or systemd-resolved's own)",
	)
}

// apply checks what was chosen and tells the agent.
func (n *connections) apply(c *agentconfig.Config) (err error) {
	c.ForeignNetwork = n.network == "none"
	if !c.ForeignNetwork {
		c.NetworkMode, err = network.ParseMode(n.network)
		if err != nil {
			return fmt.Errorf("--pod-network: %w", err)
		}
	}
	for flag, address := range map[string]string{
		"proxy-healthz-bind-address": c.ProxyHealthAddress,
		"proxy-metrics-bind-address": c.ProxyMetricsAddress,
		"healthz-bind-address":       c.HealthAddress,
	} {
		if _, err := netip.ParseAddrPort(address); address != "" && err != nil {
			return fmt.Errorf("--%s %q is not of the form IP:PORT", flag, address)
		}
	}
	if n.serviceCIDR != "" {
		c.ServiceCIDR, err = netip.ParsePrefix(n.serviceCIDR)
		if err != nil {
			return fmt.Errorf("--service-cidr %q is not a network such as 10.96.0.0/16", n.serviceCIDR)
		}
	}
	for _, choice := range []struct {
		flag, value string
		foreign     *bool
	}{{"name-server", n.names, &c.ForeignDNS}, {"service-proxy", n.services, &c.ForeignServices}} {
		if choice.value != "auto" && choice.value != "none" {
			return fmt.Errorf("unknown --%s %q; use auto or none", choice.flag, choice.value)
		}
		*choice.foreign = choice.value == "none"
	}
	return nil
}

// addRoomFlags adds the flags that say what pods may take of the node, and how they leave it.
func addRoomFlags(cmd *cobra.Command, c *agentconfig.Config) {
	f := cmd.Flags()
	f.StringVar(
		&c.EvictionHard, "eviction-hard", eviction.Default,
		"what must stay free on the node; pods are evicted when less is, or never with \"none\"",
	)
	f.StringVar(
		&c.EvictionSoft, "eviction-soft", "",
		"what should stay free: pods are evicted when less is for as long as --eviction-soft-grace-period says",
	)
	f.StringVar(
		&c.EvictionSoftGrace, "eviction-soft-grace-period", "",
		"how long less may be free, such as memory.available=1m30s, for every signal of --eviction-soft",
	)
	f.Int64Var(
		&c.EvictionMaxPodGrace, "eviction-max-pod-grace-period", 0,
		"how many seconds at most a pod has to end that --eviction-soft evicts",
	)
	f.StringVar(
		&c.EvictionReclaim, "eviction-minimum-reclaim", "",
		"what must be free beyond a threshold before it is relieved, such as nodefs.available=500Mi",
	)
	f.DurationVar(
		&c.PressureTransition, "eviction-pressure-transition-period", eviction.DefaultTransition,
		"how long pressure must be over before the node's condition says so",
	)
	f.IntVar(
		&c.ImageGCHigh, "image-gc-high-threshold", 85,
		"percentage of the images' disk in use above which unused images are removed; 100 for never",
	)
	f.IntVar(&c.ImageGCLow, "image-gc-low-threshold", 80, "percentage in use down to which unused images are removed")
	f.DurationVar(
		&c.ImageMinAge, "minimum-image-ttl-duration", 2*time.Minute, "how old an image must be before it is removed",
	)
	f.DurationVar(
		&c.ImageMaxAge, "image-maximum-gc-age", 0,
		"after how long without use an image is removed, however full the disk is, such as 720h; 0 for never",
	)
	f.StringVar(
		&c.ProviderConfig, "image-credential-provider-config", "",
		"file with a CredentialProviderConfig (kubelet.config.k8s.io/v1): which programs say with which credentials images "+
			"are pulled",
	)
	f.StringVar(&c.ProviderDir, "image-credential-provider-bin-dir", "", "folder with the programs that the config names")
	f.Int64Var(&c.MaxPods, "max-pods", 110, "how many pods the node takes")
	f.StringToStringVar(
		&c.SystemReserved, "system-reserved", nil,
		"resources of the node that pods cannot request, such as cpu=500m,memory=1Gi,ephemeral-storage=2Gi,pid=1000",
	)
	f.StringToStringVar(
		&c.KubeReserved, "kube-reserved", nil, "resources that pods cannot request, for the agent and the container runtime",
	)
	f.StringVar(&c.LogMaxSize, "container-log-max-size", "10Mi", "size at which the log of a container is rotated")
	f.IntVar(&c.LogMaxFiles, "container-log-max-files", 5, "how many files a container's log has at most; 2 or more")
	f.Int64Var(&c.PodPIDs, "pod-max-pids", 0, "how many processes and threads a pod may have; 0 for no limit")
	f.BoolVar(
		&c.SeccompDefault, "seccomp-default", false,
		"use the container runtime's seccomp profile for containers that ask for none and are not privileged",
	)
	f.StringSliceVar(
		&c.AllowedUnsafeSysctls, "allowed-unsafe-sysctls", nil,
		"kernel parameters that pods may set besides the safe ones, such as kernel.msg*",
	)
	f.DurationVar(
		&c.ShutdownGrace, "shutdown-grace-period", 0,
		"how long pods have to end when the machine goes down, or, where no systemd tells, the agent gets SIGTERM; with 0 "+
			"the agent does not end them",
	)
	f.DurationVar(
		&c.ShutdownGraceCritical, "shutdown-grace-period-critical-pods", 0,
		"how much of --shutdown-grace-period is kept for critical pods, which end last",
	)
}

// parseTaints reads taints written as key=value:Effect or key:Effect.
func parseTaints(texts []string) (out []corev1.Taint, err error) {
	for _, text := range texts {
		head, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(head, "=")
		switch e := corev1.TaintEffect(effect); {
		case !ok || key == "":
			return nil, fmt.Errorf("--register-with-taints %q is not of the form key=value:Effect", text)
		case e != corev1.TaintEffectNoSchedule && e != corev1.TaintEffectPreferNoSchedule && e != corev1.TaintEffectNoExecute:
			return nil, fmt.Errorf(
				"--register-with-taints %q: the effect must be NoSchedule, PreferNoSchedule or NoExecute", text,
			)
		default:
			out = append(out, corev1.Taint{Key: key, Value: value, Effect: e})
		}
	}
	return out, nil
}
