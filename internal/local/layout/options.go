// Package layout decides what a local cluster consists of: its names, addresses and folders from what the user chose,
// and the file that says what of it exists.
package layout

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Runtime says what a node is made of.
type Runtime string

const (
	// RuntimeAuto is RuntimeContainerd where the machine can, else RuntimeSimulated.
	RuntimeAuto Runtime = "auto"
	// RuntimeContainerd makes nodes of namespaces, with real containers.
	RuntimeContainerd Runtime = "containerd"
	// RuntimeSimulated makes nodes inside the control plane's process.
	RuntimeSimulated Runtime = "simulated"
)

// DefaultNodes is how many nodes a new cluster gets.
const DefaultNodes = 3

// DefaultAPIPort is where a new cluster's API listens.
const DefaultAPIPort = 6443

// DefaultPodNetwork is how a new cluster's nodes connect their pods, and
// ForeignPodNetwork leaves that to somebody else.
const (
	DefaultPodNetwork = "auto"
	ForeignPodNetwork = "none"
)

// podNetworks are the ways that an agent knows.
var podNetworks = []string{DefaultPodNetwork, "host-gw", "vxlan", ForeignPodNetwork}

// maxNodes is what one /24 holds besides the gateway, the network and the
// broadcast address. Several servers take the last of these addresses.
const (
	maxNodes         = 253
	maxControlPlanes = 5
)

// Options are what a user can choose about a local cluster. Zero values mean
// what the cluster had when it last ran, or the default for a new one.
type Options struct {
	// DataDir holds all of the cluster's files; absolute.
	DataDir string
	// Nodes is how many nodes there are.
	Nodes int
	// ControlPlanes is how many servers there are: 1, 3 or 5.
	ControlPlanes int
	// Runtime says what the nodes are made of.
	Runtime Runtime
	// APIPort is the port of the API on 127.0.0.1.
	APIPort int
	// PodNetwork is how nodes connect their pods to those of other nodes: auto,
	// host-gw, vxlan, or none for a network daemon that the user brings.
	PodNetwork string
	// ServerFlags are given to the control plane as they are, in this run only.
	ServerFlags []string
	// Executable is this program's file; it is started again as the server and
	// the agents.
	Executable string
	// Program and DirFlag are how users call this program for this data dir, in
	// what they are told to type: "everynode", " --data-dir D" or nothing.
	Program string
	DirFlag string
}

// Complete fills what was not chosen from the last run, or with defaults, and
// checks the result.
func (o Options) Complete(last *State) (Options, error) {
	if last != nil {
		if o.Nodes == 0 {
			o.Nodes = last.Plan.NodeCount()
		}
		if o.ControlPlanes == 0 {
			o.ControlPlanes = last.Plan.ControlPlanes()
		}
		if o.Runtime == "" {
			o.Runtime = last.Plan.Runtime
		}
		if o.APIPort == 0 {
			o.APIPort = last.Plan.APIPort
		}
		if o.PodNetwork == "" {
			o.PodNetwork = last.Plan.PodNetwork
		}
	}
	if o.PodNetwork == "" {
		o.PodNetwork = DefaultPodNetwork
	}
	if o.Nodes == 0 {
		o.Nodes = DefaultNodes
	}
	o.ControlPlanes = max(o.ControlPlanes, 1)
	if o.Runtime == "" {
		o.Runtime = RuntimeAuto
	}
	if o.APIPort == 0 {
		o.APIPort = DefaultAPIPort
	}
	if last != nil && o.ControlPlanes < last.Plan.ControlPlanes() {
		return o, fmt.Errorf("this cluster has %d control planes, and the database of each counts in a majority; use "+
			"--control-planes %[1]d or more, or start afresh with everynode down --purge",
			last.Plan.ControlPlanes())
	}
	return o, o.Validate()
}

// Validate checks options that are complete.
func (o Options) Validate() error {
	switch {
	case !filepath.IsAbs(o.DataDir):
		return fmt.Errorf("data dir %q is not an absolute path", o.DataDir)
	case o.Nodes < 1:
		return fmt.Errorf("%d nodes: a cluster needs at least one; use --nodes 1 or more", o.Nodes)
	case o.ControlPlanes%2 == 0 || o.ControlPlanes < 1 || o.ControlPlanes > maxControlPlanes:
		return fmt.Errorf("%d control planes: one more than an odd number can lose no more of them; use --control-planes "+
			"1, 3 or %d", o.ControlPlanes, maxControlPlanes)
	case o.APIPort < 1 || o.APIPort > 65535:
		return fmt.Errorf("port %d does not exist; use --api-port 1 to 65535", o.APIPort)
	}
	if !slices.Contains(podNetworks, o.PodNetwork) {
		return fmt.Errorf("unknown pod network %q; use --pod-network %s", o.PodNetwork, strings.Join(podNetworks, ", "))
	}
	switch o.Runtime {
	case RuntimeAuto, RuntimeContainerd, RuntimeSimulated:
	default:
		return fmt.Errorf("unknown runtime %q; use --runtime auto, containerd or simulated", o.Runtime)
	}
	return nil
}

// ValidateFor checks what depends on the runtime that was chosen in the end.
func (o Options) ValidateFor(runtime Runtime) error {
	most := maxNodes
	if o.ControlPlanes > 1 {
		most -= maxControlPlanes
	}
	if runtime == RuntimeContainerd && o.Nodes > most {
		return fmt.Errorf("%d nodes: one machine holds at most %d nodes of containers; use fewer, or --runtime simulated",
			o.Nodes, most)
	}
	return nil
}
