// Package config is what a server is told, and what follows from it: its networks, its addresses, and whom its
// certificate is for.
package config

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/server/backups/schedule"
	"github.com/everynode/everynode/internal/server/folder"
	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/internal/version"
)

// Options say where the control plane keeps its data and how it is reached.
type Options struct {
	// DataDir holds certificates, the database and the administrator's kubeconfig.
	DataDir string
	// Listen are the host:port addresses of the API. The first is written to the
	// kubeconfig.
	Listen []string
	// AdvertiseAddress is where pods and nodes reach the API; by default the first
	// listen address that is not loopback, else the first.
	AdvertiseAddress string
	// API is what may be set about the API server, and where it keeps its objects.
	API *options.Options
	// ServiceCIDR is where Service addresses come from, ClusterCIDR where pod
	// addresses do. An empty ClusterCIDR means 10.244.0.0/16, or a network with room
	// for thousands of nodes when there are simulated ones.
	ServiceCIDR, ClusterCIDR string
	// NodeMaskSize is the length of the prefix of one node's part of ClusterCIDR; 0 for
	// 24, or 25 where that leaves no room for the simulated nodes.
	NodeMaskSize int
	// SimulatedNodes is the number of nodes that run inside this process.
	SimulatedNodes int
	// Faults says which of them, and of their pods, are ill; nil for none.
	Faults *illness.Plan
	// SigningDuration is how long the certificates of nodes, and others that are asked
	// for by request, are good for at most; 0 for a year.
	SigningDuration time.Duration
	// Metrics takes what the control loops count; nil counts for nobody. A process
	// that runs several servers gives it to one of them.
	Metrics prometheus.Registerer
	// NoDaemonSetController leaves the DaemonSets to a controller that runs elsewhere.
	NoDaemonSetController bool
	// BindDaemonsLater has the scheduler bind every pod of a daemon after it was created, also
	// where it could be created with its node.
	BindDaemonsLater bool
	// RecordDecisions is a file that gets a script of what the DaemonSet controller
	// decides and from what; empty for none.
	RecordDecisions string
	// Backups says when backups are made.
	Backups schedule.Options
	// Name is what this server is called among others; by default the machine's host name.
	Name string
	// PeerAddress is where other servers reach this one's database, host:port; by default
	// port 2380 of the address at which nodes reach the API. It is used when there are
	// other servers.
	PeerAddress string
	// Balancers are where the API is reached, too, host:port: what passes connections on to
	// one of several servers. The certificate is for them, and the first is written to the
	// kubeconfig in place of the first listen address.
	Balancers []string
	// NoFsync makes the embedded database faster and loses data on power failure.
	NoFsync bool
	// KeepHistory is how long lists that are read in parts, and watches, can go on where they were; the embedded
	// database's default if zero. Tests only.
	KeepHistory time.Duration
	// Kubernetes is the version of the API that this server says it has; empty for this program's. Tests only.
	Kubernetes string
}

// Defaults returns the options of a server that nobody has told anything.
func Defaults() Options {
	return Options{Listen: []string{"127.0.0.1:6443"}, ServiceCIDR: "10.96.0.0/16", API: options.New()}
}

// checkBalancers refuses what nobody could connect to.
func checkBalancers(addresses []string) error {
	for _, address := range addresses {
		host, port, err := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		if err != nil || host == "" || port == "" || port == "0" || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("the address %q of a balancer is not of the form HOST:PORT; "+
				"give one at which it is reached with --balancer", address)
		}
	}
	return nil
}

// Advertised is the address at which pods and nodes reach the API.
func (o *Options) Advertised() net.IP {
	if ip := net.ParseIP(o.AdvertiseAddress); ip != nil {
		return ip
	}
	var first net.IP
	for _, address := range o.Listen {
		host, _, _ := net.SplitHostPort(address)
		ip := net.ParseIP(host)
		if first == nil {
			first = ip
		}
		if ip != nil && !ip.IsLoopback() && !ip.IsUnspecified() {
			return ip
		}
	}
	if first == nil || first.IsUnspecified() {
		first = net.IPv4(127, 0, 0, 1)
	}
	return first
}

// useEncryption has the API server encrypt as the servers do that this one joined,
// unless it is told otherwise.
func (o *Options) useEncryption() {
	path := filepath.Join(o.DataDir, folder.EncryptionFile)
	_, err := os.Stat(path)
	if err == nil && o.API.Etcd.EncryptionProviderConfigFilepath == "" {
		o.API.Etcd.EncryptionProviderConfigFilepath = path
	}
}

// Version is that of the API, as this server tells the others.
func (o *Options) Version() string { return cmp.Or(o.Kubernetes, version.Kubernetes()) }

// Port is where a server with these options serves the API.
func (o *Options) Port() int {
	if len(o.Listen) == 0 {
		return 0
	}
	_, text, _ := net.SplitHostPort(o.Listen[0])
	port, _ := strconv.Atoi(text)
	return port
}
