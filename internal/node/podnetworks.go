package node

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which the control plane tells a node what its pod network is a part
// of, named after the flags of Kubernetes that say so.
const (
	ClusterCIDRAnnotation  = "everynode.io/cluster-cidr"
	NodeMaskSizeAnnotation = "everynode.io/node-cidr-mask-size"
)

// PodNetworks is the network of all pods, and how it is divided among nodes.
type PodNetworks struct {
	// Cluster is the network of all pods.
	Cluster netip.Prefix
	// NodeBits is the length of the prefix of a node's part.
	NodeBits int
}

// PodNetworksOf is what the control plane told the node, false if nothing, or nothing
// that makes sense.
func PodNetworksOf(n *corev1.Node) (PodNetworks, bool) {
	cluster, err := netip.ParsePrefix(n.Annotations[ClusterCIDRAnnotation])
	if err != nil {
		return PodNetworks{}, false
	}
	bits, err := strconv.Atoi(n.Annotations[NodeMaskSizeAnnotation])
	if err != nil || bits < cluster.Bits() || bits > cluster.Addr().BitLen() {
		return PodNetworks{}, false
	}
	return PodNetworks{Cluster: cluster.Masked(), NodeBits: bits}, true
}

// Annotations is what PodNetworksOf reads.
func (p PodNetworks) Annotations() map[string]string {
	return map[string]string{ClusterCIDRAnnotation: p.Cluster.String(), NodeMaskSizeAnnotation: strconv.Itoa(p.NodeBits)}
}

// Part reads a node's pod network. The error says why it is not a node's part of the
// cluster's.
func (p PodNetworks) Part(text string) (netip.Prefix, error) {
	part, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("the pod network %q is not a CIDR", text)
	case part.Addr().Is4() != p.Cluster.Addr().Is4() || !p.Cluster.Contains(part.Addr()) || part.Bits() != p.NodeBits ||
		part != part.Masked():
		return netip.Prefix{}, fmt.Errorf("the pod network %s is not a /%d of the cluster's network %s",
			part, p.NodeBits, p.Cluster)
	}
	return part, nil
}

// Age orders nodes by when they were created, so that all who look agree which of two
// was there first.
type Age struct {
	created int64
	name    string
}

// AgeOf is the age of a node, in whatever form it is told of.
func AgeOf(n metav1.Object) Age { return Age{n.GetCreationTimestamp().Unix(), n.GetName()} }

// Created is when the node was created, to the second.
func (a Age) Created() time.Time { return time.Unix(a.created, 0).UTC() }

// Before reports whether a was created before b; of two of the same second, the one whose
// name comes first.
func (a Age) Before(b Age) bool {
	if a.created != b.created {
		return a.created < b.created
	}
	return a.name < b.name
}
