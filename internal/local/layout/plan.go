package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
)

// Plan is everything about a cluster that is decided before anything is made:
// its names, addresses and folders. It is pure, and the same for the same data
// dir, nodes, runtime, port and subnet.
type Plan struct {
	ID       string  `json:"id"`
	DataDir  string  `json:"dataDir"`
	Runtime  Runtime `json:"runtime"`
	APIPort  int     `json:"apiPort"`
	Nodes    []Node  `json:"nodes,omitempty"`
	Simulate int     `json:"simulate,omitempty"`
	// Servers are the control planes if there are several. One alone has no name, and runs
	// in the host's own network.
	Servers []Node `json:"servers,omitempty"`
	// PodNetwork is given to the agents.
	PodNetwork string `json:"podNetwork,omitempty"`
	// Subnet holds the nodes and, as its last host, the gateway: the host's
	// end, where the nodes reach the API.
	Subnet  netip.Prefix `json:"subnet,omitzero"`
	Gateway netip.Addr   `json:"gateway,omitzero"`
}

// Node is the plan of one node, or of one of several servers.
type Node struct {
	Name string     `json:"name"`
	IP   netip.Addr `json:"ip"`
}

// ClusterID names everything of a cluster on the machine.
func ClusterID(dataDir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dataDir)))
	return hex.EncodeToString(sum[:4])
}

// New lays out a cluster. subnet is used by RuntimeContainerd only.
func New(o Options, runtime Runtime, subnet netip.Prefix) Plan {
	p := Plan{ID: ClusterID(o.DataDir), DataDir: o.DataDir, Runtime: runtime, APIPort: o.APIPort, PodNetwork: o.PodNetwork}
	if runtime == RuntimeSimulated {
		p.Simulate = o.Nodes
		p.Servers = p.servers(o.ControlPlanes, loopbackOf(p.ID))
		return p
	}
	p.Subnet = subnet
	p.Gateway = hostOf(subnet, maxNodes+1)
	p.Servers = p.servers(o.ControlPlanes, func(n int) netip.Addr { return hostOf(subnet, maxNodes+1-n) })
	for i := 1; i <= o.Nodes; i++ {
		p.Nodes = append(p.Nodes, Node{Name: fmt.Sprintf("node-%d", i), IP: hostOf(subnet, i)})
	}
	return p
}

// servers are the control planes, none for one alone.
func (p Plan) servers(count int, at func(n int) netip.Addr) (out []Node) {
	for n := 1; n <= count && count > 1; n++ {
		out = append(out, Node{Name: fmt.Sprintf("server-%d", n), IP: at(n)})
	}
	return out
}

// loopbackOf gives servers that have no network of their own an address each. It depends
// on the cluster, so that two clusters can have the same ports.
func loopbackOf(id string) func(n int) netip.Addr {
	sum, _ := hex.DecodeString(id)
	return func(n int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1 + sum[0]%250, sum[1], byte(n)}) }
}

// ControlPlanes is how many there are.
func (p Plan) ControlPlanes() int { return max(len(p.Servers), 1) }

// hostOf is the n-th address of a /24.
func hostOf(subnet netip.Prefix, n int) netip.Addr {
	bytes := subnet.Addr().As4()
	bytes[3] = byte(n)
	return netip.AddrFrom4(bytes)
}

// NodeCount is how many nodes there are, real or simulated.
func (p Plan) NodeCount() int {
	if p.Runtime == RuntimeSimulated {
		return p.Simulate
	}
	return len(p.Nodes)
}

// HostLink is the host's end of the link into the cluster's network.
func (p Plan) HostLink() string { return HostLinkPrefix + p.ID }

// HostLinkPrefix begins the names of the host's links into clusters.
const HostLinkPrefix = "evn"

// SwitchNetns is the named network namespace that holds the bridge.
func (p Plan) SwitchNetns() string { return netnsPrefix + p.ID }

const netnsPrefix = "everynode-"

// NodeNetns is the named network namespace of a node.
func (p Plan) NodeNetns(node string) string { return p.SwitchNetns() + "-" + node }

// NATTable is the nftables table on the host that lets nodes reach what the
// host reaches.
func (p Plan) NATTable() string { return "everynode-" + p.ID }

// CgroupRoot is the cgroup above those of all nodes' pods.
func (p Plan) CgroupRoot() string { return cgroupParent + "/" + p.ID }

const cgroupParent = "/everynode"

// NodeCgroup is the cgroup above those of a node's pods.
func (p Plan) NodeCgroup(node string) string { return p.CgroupRoot() + "/" + node }

// NodeDir holds the folders that a node has for itself.
func (p Plan) NodeDir(node string) string { return filepath.Join(p.DataDir, "nodes", node) }

// ServerDir holds the data of a server. The first of several has what was the data of one
// alone: the cluster's own folder.
func (p Plan) ServerDir(number int) string {
	if number == 0 {
		return p.DataDir
	}
	return filepath.Join(p.DataDir, "servers", p.Servers[number].Name)
}

// ServerLogOf is the log of one of several servers.
func (p Plan) ServerLogOf(number int) string {
	if number == 0 {
		return p.ServerLog()
	}
	return filepath.Join(p.DataDir, "logs", p.Servers[number].Name+".log")
}

// ServerAddress is where the API of one of several servers is.
func (p Plan) ServerAddress(number int) netip.AddrPort {
	return netip.AddrPortFrom(p.Servers[number].IP, uint16(p.APIPort)) //nolint:gosec // A port.
}

// GateAddresses are where clients of this machine, and its nodes, reach the API, whichever
// server answers.
func (p Plan) GateAddresses() []string {
	out := []string{strings.TrimPrefix(p.LocalURL(), "https://")}
	if p.Gateway.IsValid() {
		out = append(out, strings.TrimPrefix(p.NodesURL(), "https://"))
	}
	return out
}

// Kubeconfig is the file with the administrator's access.
func (p Plan) Kubeconfig() string { return filepath.Join(p.DataDir, "kubeconfig") }

// RegistriesDir is where users say how the nodes reach registries: containerd's
// HOST/hosts.toml. All nodes read the one folder.
func (p Plan) RegistriesDir() string { return filepath.Join(p.DataDir, "registries") }

// Mark is in the environment of every process of the cluster.
func (p Plan) Mark() string { return MarkName + p.ID }

// MarkName begins what marks the processes of a cluster.
const MarkName = "EVERYNODE_CLUSTER="

// ExamplesDir has the manifests that users are told to try.
func (p Plan) ExamplesDir() string { return filepath.Join(p.DataDir, "examples") }

// ServerLog and the other logs are kept when the cluster stops; boundLogs keeps them small.
func (p Plan) ServerLog() string { return filepath.Join(p.DataDir, "logs", "server.log") }

// ContainerdLog is in the node's own /var/log, as on any machine.
func (p Plan) ContainerdLog(node string) string {
	return filepath.Join(p.NodeDir(node), "log", "containerd.log")
}

// AgentLog is in the node's own /var/log too.
func (p Plan) AgentLog(node string) string {
	return filepath.Join(p.NodeDir(node), "log", "everynode-agent.log")
}

// LocalURL is the API's address on the host.
func (p Plan) LocalURL() string { return fmt.Sprintf("https://127.0.0.1:%d", p.APIPort) }

// NodesURL is the API's address for the nodes.
func (p Plan) NodesURL() string {
	return "https://" + netip.AddrPortFrom(p.Gateway, uint16(p.APIPort)).String()
}
